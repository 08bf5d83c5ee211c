"""Importers of model formats, one package each."""

from autosched.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
