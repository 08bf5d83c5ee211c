# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.relax.training import loss as loss
from autosched.relax.training import optimizer as optimizer
from autosched.relax.training import setup_trainer as setup_trainer
from autosched.relax.training import trainer as trainer
from autosched.relax.training import utils as utils
from autosched.relax.training.setup_trainer import SetupTrainer as SetupTrainer
from autosched.relax.training.trainer import Trainer as Trainer
from autosched.relax.training.utils import AppendLoss as AppendLoss
