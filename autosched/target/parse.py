"""The text and dictionary forms of a target, read into kind, keys and attributes."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.errors import InvalidTypeError, TargetError
from autosched.json_types import Json, JsonObject
from autosched.target.gpus import GPU_TAGS
from autosched.target.kinds import KINDS, TargetKind

AttrValue = int | str | tuple[str, ...]

POSITIVE = (
    "num-cores", "vector-width", "l1-bytes", "l2-bytes", "l3-bytes", "max_num_threads", "max_threads_per_block",
    "thread_warp_size", "max_shared_memory_per_block", "shared_memory_per_block", "registers_per_block",
    "l2_cache_size_bytes",
)  # fmt: skip

# Short names for a kind with attributes. "cpu" is this machine: `Target` fills in its CPU's name.
TAGS: dict[str, dict[str, Json]] = {
    "cpu": {"kind": "llvm", "tag": "cpu"},
    **GPU_TAGS,
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A target's parts, checked, before anything is looked up on this machine."""

    kind: TargetKind
    tag: str
    keys: tuple[str, ...]
    attrs: dict[str, AttrValue]
    host: Json  # whatever `Target` accepts, or None


def parse_target(text: str) -> Parsed:
    """Read "cpu", "llvm -mcpu=haswell -num-cores=4" or JSON text.

    Raises TargetError if the kind or an attribute is unknown or a value has the wrong type.
    """
    text = text.strip()
    if text.startswith("{"):
        try:
            return parse_mapping(json.loads(text))
        except (json.JSONDecodeError, RecursionError) as error:
            raise TargetError(f"target is not valid JSON: {error}") from error
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target '{text}' cannot be read: {error}") from error
    if not words:
        raise TargetError("the target is empty", hint='use "cpu", "cuda" or "llvm -mcpu=x86-64-v3"')
    return parse_mapping({**_kind_entries(words[0]), **_options(words[1:], text)})


def parse_mapping(entries: Mapping[str, object]) -> Parsed:
    """Read {"kind": "llvm", "mcpu": …}.

    Raises TargetError as `parse_target` does, and where "kind" is missing.
    """
    rest: JsonObject = {str(key): value for key, value in entries.items()}
    if "kind" not in rest:
        if rest.get("tag") in TAGS:
            rest = {**TAGS[rest["tag"]], **rest}
        else:
            raise TargetError('a target dictionary needs the key "kind"')
    named = _kind_entries(str(rest.pop("kind")))
    rest = {**named, **rest}
    kind, tag = KINDS[rest.pop("kind")], str(rest.pop("tag", ""))
    host, given_keys = rest.pop("host", None), _as_list(rest.pop("keys", ()))
    attrs = {name: _convert(kind, name, value) for name, value in rest.items()}
    device = attrs.get("device")
    keys = dict.fromkeys((*given_keys, *((str(device),) if device else ()), *kind.default_keys))
    return Parsed(kind, tag, tuple(keys), {**kind.defaults, **attrs}, host)


def _kind_entries(name: str) -> JsonObject:
    if name in TAGS:
        return dict(TAGS[name])
    if name in KINDS:
        return {"kind": name}
    close = ["cuda"] if name in ("gpu", "nvidia", "cuda:0") else difflib.get_close_matches(name, (*KINDS, *TAGS), n=2)
    close = close or [tag for tag in TAGS if tag.endswith(f"-{name}")]  # h200
    if arch := re.fullmatch(r"(?:cuda:)?(sm_\d+[af]?)", name):
        close = [f"'cuda -arch={arch[1]}'"]
    hint = f"did you mean {' or '.join(close)}?" if close else 'use "cpu", "cuda" or "llvm -mcpu=x86-64-v3"'
    raise TargetError(f"unknown target '{name}'", hint=hint)


def _options(words: list[str], text: str) -> JsonObject:
    options: JsonObject = {}
    position = 0
    while position < len(words):
        word = words[position]
        if not word.startswith("-") or word.strip("-") == "":
            raise TargetError(f"'{word}' in target '{text}' is no option", hint="options look like -mcpu=haswell")
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and position + 1 < len(words) and not words[position + 1].startswith("-"):
            position += 1
            value, equals = words[position], "="  # "-mcpu haswell"
        given = value if equals else 1
        if options.setdefault(name, given) != given:
            hint = "a list of targets makes one artifact for several: build(model, target=[…])"
            raise TargetError(f"-{name} is given twice in target '{text}'", hint=hint)
        position += 1
    return options


def _convert(kind: TargetKind, name: str, value: Json) -> AttrValue:
    wanted = kind.attributes.get(name)
    if wanted is None:
        close = difflib.get_close_matches(name, kind.attributes, n=3)
        usual = "-arch=sm_90a" if "arch" in kind.attributes else "-mcpu=x86-64-v3 or -num-cores=2"
        hint = f"did you mean -{' or -'.join(close)}?" if close else f"options look like {usual}"
        raise TargetError(f"target kind {kind.name} has no attribute '{name}'", hint=hint)
    if wanted is list:
        return tuple(_as_list(value))
    if wanted is int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise TargetError(f"target attribute -{name}={value!r} is not a whole number") from None
        if name in POSITIVE and number < 1:
            raise TargetError(f"target attribute -{name}={number} is not a positive number")
        return number
    if not isinstance(value, str):
        raise TargetError(f"target attribute -{name}={value!r} is not a text")
    return value


def _as_list(value: object) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, (list, tuple)):
        return [str(part) for part in value]
    raise InvalidTypeError(f"{value!r} is neither a list nor a text with commas")
