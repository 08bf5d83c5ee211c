"""Built models in a session: sent as artifacts, and what they take and give."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from autosched.errors import InvalidTypeError
from autosched.rpc.client import RemoteExecutor, RemoteModule, RPCSession
from autosched.runtime import Executable

Specs = dict[str, tuple[tuple[int, ...], str]]


class RemoteModel:
    """A model there; its file is gone once it is loaded.

    model   an executable, or the path of an artifact, which may be for another kind of machine than this
    Raises  OSError for a file that cannot be read, ArtifactError for one that does not run there, InvalidTypeError for
            one that is no model of fixed sizes.
    """

    def __init__(self, session: RPCSession, model: Executable | str | os.PathLike[str]):
        self.session = session
        name = f"{uuid.uuid4().hex}.asx"
        if isinstance(model, Executable):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / name
                model.save(path)
                session.upload(path, name)
        else:
            session.upload(model, name)
        try:
            found = session.load_module(name)
        finally:
            session.remove(name)
        if not isinstance(found, RemoteModule) or found.facts["kind"] != "executable":
            hint = "build the model for sizes that are known"
            raise InvalidTypeError("only models of fixed sizes run on remote devices so", hint=hint)
        self.library: RemoteModule = found

    @property
    def inputs(self) -> Specs:
        """Shape and dtype of each input by name."""
        return {name: (tuple(shape), dtype) for name, dtype, shape in self.library.facts["inputs"]}

    @property
    def outputs(self) -> Specs:
        """Shape and dtype of each output by name."""
        return {name: (tuple(shape), dtype) for name, dtype, shape in self.library.facts["outputs"]}

    @property
    def ranges(self) -> Mapping[str, int]:
        """Of integer inputs that are positions: how many there are."""
        found: Mapping[str, int] = self.library.facts["ranges"]
        return found

    def executor(self, threads: int | None = None) -> RemoteExecutor:
        """A graph executor on its CPU."""
        return self.library.create_executor(self.session.cpu(), threads)
