"""Importers of model formats, one package each."""
