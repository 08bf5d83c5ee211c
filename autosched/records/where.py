"""The words in which records are asked for: `op=conv2d and (status!=ok or ms>2)`. Read by hand, never evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from autosched.errors import RecordError

# Field -> what its values are; "word" compares whole text, "part" looks for a part of it
FIELDS = {
    "op": "word",
    "target": "word",
    "workload": "part",
    "template": "word",
    "status": "word",
    "device": "part",
    "family": "word",
    "host": "word",
    "session": "word",
    "uid": "word",
    "threads": "number",
    "ms": "number",
    "winner": "flag",
    "default": "flag",
}
OPERATORS = ("!=", "<=", ">=", "=", "<", ">", "~")
TOKEN = re.compile(r"""\s*(?:(!=|<=|>=|[=<>~()])|"([^"]*)"|'([^']*)'|([^\s"'=<>!~()]+))""")
LONGEST, DEEPEST = 2000, 40


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field against one value; "~" means "holds the text"."""

    field: str
    operator: str
    value: str | float | bool


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Both:
    """All of several conditions, or any of them."""

    is_and: bool
    parts: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Not | Both


def parse_where(text: str) -> Condition:
    """Read a condition: `field operator value` joined by and, or, not and parentheses.

    Raises  RecordError that says which fields and operators there are.
    """
    if len(text) > LONGEST:
        raise RecordError(f"a condition of more than {LONGEST} characters")
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.tokens: list[tuple[str, bool]] = []  # text, whether it was quoted
        self.at = 0
        position = 0
        while text[position:].strip():
            found = TOKEN.match(text, position)
            if found is None:
                self._refuse(f"cannot read '{text[position:].strip()[:20]}'")
            sign, double, single, word = found.groups()
            quoted = double if double is not None else single
            self.tokens.append((quoted, True) if quoted is not None else (sign or word, False))
            position = found.end()

    def parse(self) -> Condition:
        condition = self._any(0)
        if self.at < len(self.tokens):
            self._refuse(f"'{self.tokens[self.at][0]}' after the end")
        return condition

    def _any(self, depth: int) -> Condition:
        parts = [self._all(depth)]
        while self._take("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else Both(False, tuple(parts))

    def _all(self, depth: int) -> Condition:
        parts = [self._one(depth)]
        while self._take("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else Both(True, tuple(parts))

    def _one(self, depth: int) -> Condition:
        if depth > DEEPEST:
            self._refuse("too many parentheses")
        if self._take("not"):
            return Not(self._one(depth + 1))
        if self._take("("):
            condition = self._any(depth + 1)
            if not self._take(")"):
                self._refuse("a parenthesis is not closed")
            return condition
        return self._comparison()

    def _comparison(self) -> Comparison:
        if len(self.tokens) - self.at < 3:
            self._refuse("it ends too early")
        (field, _), (operator, is_quoted), (value, _) = self.tokens[self.at : self.at + 3]
        self.at += 3
        if field not in FIELDS:
            self._refuse(f"no field '{field}'")
        if operator not in OPERATORS or is_quoted:
            self._refuse(f"'{operator}' is no operator")
        return Comparison(field, operator, self._value(field, operator, value))

    def _value(self, field: str, operator: str, text: str) -> str | float | bool:
        kind = FIELDS[field]
        if kind == "number":
            try:
                number = float(text)
            except ValueError:
                self._refuse(f"{field} is a number, not '{text}'")
            if operator == "~" or not abs(number) < 1e15:
                self._refuse(f"{field} cannot be compared like that")
            return number
        if kind == "flag":
            if text not in ("yes", "no", "true", "false") or operator not in ("=", "!="):
                self._refuse(f"{field} is yes or no")
            return text in ("yes", "true")
        if operator not in ("=", "!=", "~"):
            self._refuse(f"{field} is text: compare it with =, != or ~")
        return text

    def _take(self, word: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == (word, False):
            self.at += 1
            return True
        return False

    def _refuse(self, reason: str) -> NoReturn:
        hint = f'write as in "op=conv2d and ms>2"; fields: {", ".join(FIELDS)}; operators: {" ".join(OPERATORS)}'
        raise RecordError(f"cannot understand the condition '{self.text[:60]}': {reason}", hint=hint)
