"""Search strategies: one interface (`ask`, `tell`, `expected_gain`), one file each."""

from autosched.tuner.search.base import BaseSearch as BaseSearch
from autosched.tuner.search.base import Search as Search
from autosched.tuner.search.registry import STRATEGIES as STRATEGIES
from autosched.tuner.search.registry import make_search as make_search
