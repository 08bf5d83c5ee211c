"""Operators of ONNX Runtime on texts in Python, for nodes that libraries compute: hashes and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from autosched.errors import WrongInputError
from autosched.frontend.onnx.library import LibraryCall, library

Array = np.ndarray
WORD = (1 << 32) - 1


@library("com.microsoft.MurmurHash3")
def murmur_hash(call: LibraryCall, x: Array) -> Array:
    """32-bit hashes (MurmurHash3_x86_32) of texts, or of the bytes of numbers."""
    seed, is_positive = call.attributes.get("seed", 0), call.attributes.get("positive", 1)
    keys = [_bytes(v) if x.dtype == object else v.tobytes() for v in x.reshape(-1)]
    found = np.array([hash_of(key, seed) for key in keys], np.uint32).reshape(x.shape)
    return found if is_positive else found.view(np.int32)


def _bytes(text: object) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def hash_of(key: bytes, seed: int) -> int:
    """MurmurHash3_x86_32 (Appleby 2011)."""

    def mixed(word: int) -> int:
        word = word * 0xCC9E2D51 & WORD
        return (word << 15 | word >> 17) * 0x1B873593 & WORD

    state, whole = seed & WORD, len(key) // 4 * 4
    for i in range(0, whole, 4):
        state ^= mixed(int.from_bytes(key[i : i + 4], "little"))
        state = ((state << 13 | state >> 19) & WORD) * 5 + 0xE6546B64 & WORD
    if rest := key[whole:]:
        state ^= mixed(int.from_bytes(rest, "little"))
    state ^= len(key)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & WORD
    return state


@library("com.microsoft.Tokenizer")
def tokenizer(call: LibraryCall, x: Array) -> Array:
    """[..., most tokens]: the tokens of each text, between marks where these are asked for, filled up behind.

    Texts are cut at separators, one kind after the other, or tokens are what an expression matches; an empty
    separator, or the expression ".", makes each character a token.
    """
    attrs = call.attributes
    separators = [_text(s) for s in attrs.get("separators", ())]
    expression, least = attrs.get("tokenexp"), attrs["mincharnum"]
    if bool(separators) == (expression is not None) or least < 1 or x.ndim not in (1, 2):
        raise WrongInputError("separators or an expression of tokens, and texts [C] or [N, C], are needed")
    if least > 1 and (separators == [""] or expression == "."):
        raise WrongInputError(f"tokens of one character, and of {least} at least")

    by_characters = separators == [""] or expression == "."
    kinds = [] if by_characters else [_compiled(e) for e in separators or (str(expression),)]

    def cut(text: str) -> list[str]:
        if by_characters:
            return list(text)
        parts = [text]
        for kind in kinds:
            parts = [p for part in parts for p in _parts(kind, part, is_token=expression is not None)]
        return [p for p in parts if len(p) >= least]

    rows = [cut(_text(text)) for text in x.reshape(-1)]
    if attrs["mark"]:
        rows = [["\x02", *row, "\x03"] for row in rows]
    width = max(map(len, rows), default=0)
    filled = [row + [attrs["pad_value"]] * (width - len(row)) for row in rows]
    return np.array(filled, object).reshape(*x.shape, width)


def _compiled(expression: str) -> Any:
    """The expression as ONNX Runtime reads it: RE2's syntax, the longest match, no search that takes exponential time.

    Raises WrongInputError where the package google-re2 is not installed, or does not take the expression.
    """
    try:
        import re2
    except ImportError:
        raise WrongInputError("expressions of tokens need google-re2", hint="pip install google-re2") from None
    options = re2.Options()
    options.longest_match, options.log_errors = True, False
    try:
        return re2.compile(expression, options)
    except re2.error as e:
        raise WrongInputError(f"the expression {expression!r}: {_text(e.args[0])}") from None


def _parts(expression: Any, text: str, is_token: bool) -> Iterator[str]:
    """What an expression matches, or what lies between. As in ONNX Runtime, no part has a character that an empty
    match precedes.
    """
    start = 0
    while start < len(text) and (found := expression.search(text, start)):
        first, behind = found.span()
        yield text[first:behind] if is_token else text[start:first]
        start = max(behind, first + 1)
    if not is_token:
        yield text[start:]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
