# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.tir.arith.analyzer import Analyzer as Analyzer
from autosched.tir.arith.analyzer import ConstIntBound as ConstIntBound
from autosched.tir.arith.analyzer import ModularSet as ModularSet
from autosched.tir.arith.bounds import deduce_bound as deduce_bound
from autosched.tir.arith.bounds import detect_clip_bound as detect_clip_bound
from autosched.tir.arith.bounds import detect_linear_equation as detect_linear_equation
from autosched.tir.arith.int_set import IntSet as IntSet
from autosched.tir.arith.int_set import IntervalSet as IntervalSet
from autosched.tir.arith.int_set import estimate_region_lower_bound as estimate_region_lower_bound
from autosched.tir.arith.int_set import estimate_region_strict_bound as estimate_region_strict_bound
from autosched.tir.arith.int_set import estimate_region_upper_bound as estimate_region_upper_bound
