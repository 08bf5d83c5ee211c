"""IR as JSON text: what `ir.save_json` writes and `ir.load_json` reads."""

from __future__ import annotations

import json

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.node import Node
from autosched.script.parser import from_source
from autosched.script.parser.module import ModuleOrFunction


def save_json(node: object) -> str:
    """A module or function as JSON. Raises TypeError for anything else."""
    if not isinstance(node, Node) or not hasattr(node, "script"):
        raise InvalidTypeError(f"save_json takes a module or a function, got {type(node).__name__}")
    kind = "IRModule" if isinstance(node, IRModule) else type(node).__name__
    return json.dumps({"kind": kind, "script": node.script(show_meta=True)})


def load_json(json_str: str) -> ModuleOrFunction:
    """What `save_json` wrote. Raises InvalidValueError for any other text."""
    try:
        text = json.loads(json_str)["script"]
    except (TypeError, ValueError, LookupError, RecursionError) as error:
        raise InvalidValueError(f"load_json: no IR in JSON ({error})") from None
    if not isinstance(text, str):
        raise InvalidValueError("load_json: no IR in JSON")
    return from_source(text)
