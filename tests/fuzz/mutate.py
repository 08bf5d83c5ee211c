"""Mutations of bytes, of text and of parsed documents; all by a seeded generator."""

from __future__ import annotations

import copy
import re
from random import Random
from typing import Any

INTEGERS = (0, 1, -1, 2, 3, 7, 127, 255, -128, 65535, 2**31 - 1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
NUMBERS = (0.0, -0.0, 1e-45, 1e38, -1e308, float("inf"), float("-inf"), float("nan"), 0.5, -1.0)
TEXTS = ("", "x", "\x00", "\x1b[31m", "ä" * 9, "../../etc/passwd", "/etc/passwd", "a" * 5000, "NaN", "-1", "{}", "%s%n")


def mutate_bytes(data: bytes, rng: Random) -> bytes:
    """One to four changes: bits, bytes, runs taken out, repeated or moved, the end cut off."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(out)) if out else 0
        run = min(len(out) - at, rng.choice((1, 2, 8, 64, 1024)))
        match rng.randrange(7):
            case 0 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del out[at : at + run]
            case 3:
                out[at:at] = out[at : at + run]
            case 4:
                del out[at:]
            case 5:
                out[at : at + run] = rng.randbytes(run)
            case _:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 16)))
    return bytes(out)


_TOKEN = re.compile(r"\d+(?:\.\d+)?|\w+|\"[^\"\n]*\"|\s+|.", re.S)


def mutate_text(text: str, rng: Random) -> str:
    """One to three changes of tokens: taken out, doubled, swapped, replaced by others of the text or by odd values."""
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if not tokens:
            break
        at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(6):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[other])
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = tokens[other]
            case 4:
                numbers = [i for i, token in enumerate(tokens) if token[:1].isdigit()] or [at]
                tokens[rng.choice(numbers)] = str(rng.choice(INTEGERS + NUMBERS))
            case _:
                tokens[at] = rng.choice((*TEXTS, "(" * 300, "[" * 2000, "-" * 500, "\t", "\r", "lambda: 0"))
    return "".join(tokens)


def odd_value(like: Any, rng: Random) -> Any:
    """A value to stand for `like`: most often of its own type."""
    if rng.random() < 0.2:
        return rng.choice((None, True, [], {}, "x", -1, 1e300, [[]], [None] * 3))
    if isinstance(like, bool):
        return not like
    if isinstance(like, int):
        return rng.choice((*INTEGERS, like + 1, like - 1, -like, like * 1000))
    if isinstance(like, float):
        return rng.choice((*NUMBERS, like * 2))
    if isinstance(like, str):
        return rng.choice((*TEXTS, like + "x", like[:-1], mutate_text(like, rng)))
    if isinstance(like, list):
        return rng.choice((like[:-1], like * 2, [like], like * 300))
    return rng.choice((None, "x", 3, []))


def mutate_document(document: Any, rng: Random) -> Any:
    """A copy of a JSON document with one to three of its entries changed, taken out or doubled."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = _places(document)
        if not places:
            return odd_value(document, rng)
        box, key = rng.choice(places)
        match rng.randrange(5):
            case 0:
                del box[key]
            case 1 if isinstance(box, list):
                box.insert(key, copy.deepcopy(rng.choice(box)))
            case 2:
                other, name = rng.choice(places)
                box[key] = copy.deepcopy(other[name]) if not isinstance(other, list) or name < len(other) else None
            case _:
                box[key] = odd_value(box[key], rng)
    return document


def _places(document: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every entry below a document."""
    found: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        top = stack.pop()
        entries = list(top.items()) if isinstance(top, dict) else list(enumerate(top)) if isinstance(top, list) else []
        found += [(top, key) for key, _ in entries]
        stack += [value for _, value in entries]
    return found
