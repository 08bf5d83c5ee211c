"""Search spaces: knobs, constraints, configurations, their TOML files and their numeric form."""

from autosched.space.check import check_space_file as check_space_file
from autosched.space.config import Config as Config
from autosched.space.config import KnobValue as KnobValue
from autosched.space.config_space import ConfigSpace as ConfigSpace
from autosched.space.constraint import Constraint as Constraint
from autosched.space.constraint import constraint as constraint
from autosched.space.expression import Expression as Expression
from autosched.space.expression import parse_expression as parse_expression
from autosched.space.knob import Knob as Knob
from autosched.space.knob import boolean as boolean
from autosched.space.knob import choice as choice
from autosched.space.knob import int_range as int_range
from autosched.space.knob import split as split
from autosched.space.location import use_spaces as use_spaces
from autosched.space.toml import find_space as find_space
from autosched.space.toml import list_spaces as list_spaces
from autosched.space.toml import load_space as load_space
from autosched.space.union import UnionSpace as UnionSpace
from autosched.space.union import union as union
