"""autosched: a tensor compiler and auto-tuner in pure Python that generates Numba kernels.

`import autosched` loads nothing heavy; each name is loaded when it is first used (the table is in `public_names.py`).
"""

from typing import TYPE_CHECKING

from autosched import lazy_names, public_names
from autosched.version import __version__ as __version__

if TYPE_CHECKING:
    from autosched.driver.bench.entry import BenchReport, bench
    from autosched.driver.build.entry import build
    from autosched.driver.build.lower import lower
    from autosched.driver.options import TuneOptions
    from autosched.driver.tune.entry import tune
    from autosched.driver.tune.report import TuneReport
    from autosched.ir import IRModule
    from autosched.own.decorate import autotune
    from autosched.runtime import Executable, Module
    from autosched.runtime.library import load
    from autosched.target import Target

public_names.register()
__getattr__, __dir__ = lazy_names.lazy_names(__name__)
