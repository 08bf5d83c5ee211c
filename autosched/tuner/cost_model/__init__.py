"""Models that predict which configurations are fast.

Failures have no time: they are kept out of the prediction of times and train a classifier of their own.
"""

from autosched.tuner.cost_model.built import BuiltModel as BuiltModel
from autosched.tuner.cost_model.built import built_features as built_features
from autosched.tuner.cost_model.expectation import Expectation as Expectation
from autosched.tuner.cost_model.feasibility import Feasibility as Feasibility
from autosched.tuner.cost_model.feasibility import likely as likely
from autosched.tuner.cost_model.forest import Forest as Forest
from autosched.tuner.cost_model.gaussian import GaussianProcess as GaussianProcess
from autosched.tuner.cost_model.gaussian import Posterior as Posterior
from autosched.tuner.cost_model.gaussian import Observed as Observed
from autosched.tuner.cost_model.gaussian import most_telling as most_telling
from autosched.tuner.cost_model.hint import Describe as Describe
from autosched.tuner.cost_model.hint import Hint as Hint
from autosched.tuner.cost_model.hint import Source as Source
from autosched.tuner.cost_model.hint import TrialsHint as TrialsHint
from autosched.tuner.cost_model.hint import WorkloadsHint as WorkloadsHint
from autosched.tuner.cost_model.joint_kernel import JointKernel as JointKernel
from autosched.tuner.cost_model.kernel import Points as Points
from autosched.tuner.cost_model.kernel import SpaceKernel as SpaceKernel
from autosched.tuner.cost_model.loop_features import FEATURES as FEATURES
from autosched.tuner.cost_model.loop_features import loop_features as loop_features
from autosched.tuner.cost_model.target import Clipping as Clipping
from autosched.tuner.cost_model.target import clip_log_times as clip_log_times
from autosched.tuner.cost_model.target import expected_improvement as expected_improvement
from autosched.tuner.cost_model.target import one_thread as one_thread
from autosched.tuner.cost_model.trees import BoostedTrees as BoostedTrees
from autosched.tuner.cost_model.trees import BoostOptions as BoostOptions
