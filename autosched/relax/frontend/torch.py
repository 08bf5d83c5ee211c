"""`relax.frontend.torch.from_fx` and `from_exported_program`, attached on first use."""

from autosched.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
