"""autosched: a tensor compiler and auto-tuner in pure Python that generates Numba kernels.

`import autosched` loads nothing heavy; each name is loaded when it is first used (the table is in `faces.py`).
"""

from autosched.faces import install_aliases, lazy_names
from autosched.version import __version__ as __version__

__getattr__, __dir__ = lazy_names(__name__)
install_aliases()
