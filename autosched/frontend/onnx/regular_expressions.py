"""Regular expressions as ONNX Runtime reads them: RE2's syntax, the leftmost longest match, in linear time.

The syntax differs from that of `re`: classes such as \\w know ASCII alone, "$" is the very end, and there are neither
references nor looks around. A model's expression cannot make a search take exponential time, as `re` would let it:
all states of an automaton are followed at once (Thompson 1968).
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from autosched.errors import WrongInputError

MOST_REPEATS, MOST_INSTRUCTIONS, MOST_NESTED = 1000, 5_000, 100
Test = Callable[[str], bool]  # of a character
Check = Callable[[str, int], bool]  # of a place in a text
Fragment = list["Instruction"]
CLASSES = {"d": string.digits, "s": "\t\n\f\r ", "w": string.ascii_letters + string.digits + "_"}
POSIX = {
    "alnum": string.ascii_letters + string.digits, "alpha": string.ascii_letters, "blank": " \t",
    "ascii": "".join(map(chr, range(128))), "cntrl": "".join(map(chr, [*range(32), 127])), "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))), "lower": string.ascii_lowercase, "punct": string.punctuation,
    "print": "".join(map(chr, range(32, 127))), "space": "\t\n\v\f\r ", "upper": string.ascii_uppercase,
    "word": CLASSES["w"], "xdigit": string.hexdigits,
}  # fmt: skip
CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """A step of the automaton: a character to read, a place to be at, or places of the program to go on at."""

    test: Test | None = None
    check: Check | None = None
    jumps: tuple[int, ...] = ()  # from here


@dataclass(frozen=True)
class Flags:
    """What (?ims) has set."""

    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False  # without a meaning where the longest match is taken


class Expression:
    """A compiled expression. Raises WrongInputError where RE2 would not take it, or it would be very large."""

    def __init__(self, text: str):
        self.program = _Parser(text).parse()

    def search(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """(first, behind) of the match that begins first, and of those the longest."""
        found: tuple[int, int] | None = None
        end = len(self.program)
        threads: dict[int, int] = {}  # state: where its match began; in the order of the beginnings
        for at in range(start, len(text) + 1):
            following: dict[int, int] = {}
            for state, began in threads.items():
                if state < end and (test := self.program[state].test) and test(text[at - 1]):
                    self._follow(state + 1, began, text, at, following)
            if found is None:
                self._follow(0, at, text, at, following)
            threads = following
            if (began := threads.get(end, -1)) >= 0:  # the first beginning of those that end here
                found = began, at
                threads = {state: first for state, first in threads.items() if first <= began}
            elif not threads and found:
                break
        return found

    def _follow(self, state: int, began: int, text: str, at: int, reached: dict[int, int]) -> None:
        """Add the states that are reached without a character."""
        waiting = [state]
        while waiting:
            state = waiting.pop()
            if state in reached:
                continue
            reached[state] = began
            if state == len(self.program):
                continue
            step = self.program[state]
            if step.jumps:
                waiting += [state + jump for jump in step.jumps]
            elif step.check is not None and step.check(text, at):
                waiting.append(state + 1)


class _Parser:
    """Recursive descent over alternatives, sequences, repeats and atoms."""

    def __init__(self, text: str):
        self.text = re.sub(r"\\Q(.*?)(?:\\E|$)|\\.", _unquoted, text, flags=re.DOTALL)
        self.at, self.nested, self.flags = 0, 0, Flags()

    def parse(self) -> Fragment:
        made = self.alternatives()
        if self.at < len(self.text):
            raise self.wrong("a ')' too many")
        return made

    def wrong(self, what: str) -> WrongInputError:
        return WrongInputError(f"the expression {self.text!r} has {what} before place {self.at}")

    def take(self, text: str) -> bool:
        """Go past a text, if it comes next."""
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def next(self) -> str:
        """The next character, which there has to be."""
        if self.at == len(self.text):
            raise self.wrong("its end too early,")
        self.at += 1
        return self.text[self.at - 1]

    def until(self, end: str) -> str:
        """What comes before an end, which there has to be."""
        behind = self.text.find(end, self.at)
        if behind < 0:
            raise self.wrong(f"no {end!r}")
        found, self.at = self.text[self.at : behind], behind + len(end)
        return found

    def alternatives(self) -> Fragment:
        made = self.sequence()
        while self.take("|"):
            other = self.sequence()
            ahead = Instruction(jumps=(len(other) + 1,))
            made = self.limited([Instruction(jumps=(1, len(made) + 2)), *made, ahead, *other])
        return made

    def sequence(self) -> Fragment:
        made: Fragment = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            made = self.limited(made + self.repeated())
        return made

    def limited(self, made: Fragment) -> Fragment:
        if len(made) > MOST_INSTRUCTIONS:
            raise self.wrong("too many repeats")
        return made

    def repeated(self) -> Fragment:
        if self.text[self.at] in "*+?" or self.counts():
            raise self.wrong("nothing to repeat")
        one = self.atom()
        if self.take("*"):
            low, high = 0, None
        elif self.take("+"):
            low, high = 1, None
        elif self.take("?"):
            low, high = 0, 1
        elif found := self.counts():
            low, high, self.at = found
        else:
            return one
        self.take("?")  # the longest match is taken all the same
        if self.at < len(self.text) and (self.text[self.at] in "*+?" or self.counts()):
            raise self.wrong("a repeat of a repeat")
        if low > MOST_REPEATS or high is not None and not low <= high <= MOST_REPEATS:
            raise self.wrong("a repeat of no use")
        if max(low, high or 0, 1) * (len(one) + 1) > MOST_INSTRUCTIONS:
            raise self.wrong("too many repeats")
        made = one * low
        if high is None:
            return [*made, Instruction(jumps=(1, len(one) + 2)), *one, Instruction(jumps=(-len(one) - 1,))]
        return made + [Instruction(jumps=(1, len(one) + 1)), *one] * (high - low)

    def counts(self) -> tuple[int, int | None, int] | None:
        """(least, most, the place behind) of {n}, {n,} or {n,m}; other braces are characters."""
        end = self.text.find("}", self.at)
        if not self.text.startswith("{", self.at) or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit() and (high == "" or high.isascii() and high.isdigit())):
            return None
        if len(low) > 4 or len(high) > 4:
            raise self.wrong("a repeat of no use")
        return int(low), int(high) if high else None if comma else int(low), end + 1

    def atom(self) -> Fragment:
        match self.next():
            case "(":
                return self.group()
            case "[":
                return [Instruction(test=self.brackets())]
            case ".":
                return [Instruction(test=(lambda c: True) if self.flags.s else (lambda c: c != "\n"))]
            case "^":
                is_start = (lambda t, i: i == 0 or t[i - 1] == "\n") if self.flags.m else (lambda t, i: i == 0)
                return [Instruction(check=is_start)]
            case "$":
                is_end = (lambda t, i: i == len(t) or t[i] == "\n") if self.flags.m else (lambda t, i: i == len(t))
                return [Instruction(check=is_end)]
            case "\\":
                for letter, check in CHECKS.items():
                    if self.take(letter):
                        return [Instruction(check=check)]
                found = self.escape()
                return [Instruction(test=self.among(found) if isinstance(found, str) else found)]
            case character:
                return [Instruction(test=self.among(character))]

    def group(self) -> Fragment:
        before = self.flags
        if self.take("?P<") or self.take("?<"):
            name = self.until(">")
            if not all(c.isalnum() or c == "_" for c in name) or not name:
                raise self.wrong("a look behind or a name of no use")
        elif self.take("?"):
            is_set = True
            while (letter := self.next()) not in ":)":
                if letter == "-" and is_set and not self.text.startswith((")", ":"), self.at):
                    is_set = False
                elif letter in "imsU":
                    self.flags = Flags(**{**vars(self.flags), letter: is_set})
                else:
                    raise self.wrong(f"a group '(?{letter}', which RE2 does not know,")
            if letter == ")":
                return []
        self.nested += 1
        if self.nested > MOST_NESTED:
            raise self.wrong("too many groups in groups")
        made = self.alternatives()
        if not self.take(")"):
            raise self.wrong("no ')'")
        self.nested, self.flags = self.nested - 1, before
        return made

    def brackets(self) -> Test:
        """What [...] takes."""
        tests: list[Test] = []
        is_negated, is_first = self.take("^"), True
        while is_first or not self.take("]"):
            is_first = False
            if self.take("[:"):
                name = self.until(":]")
                if name.removeprefix("^") not in POSIX:
                    raise self.wrong(f"a class '{name}', which RE2 does not know,")
                tests.append(self.named(POSIX[name.removeprefix("^")], name.startswith("^")))
                continue
            low = self.member()
            if not isinstance(low, str):
                tests.append(low)
            elif self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                high = self.member()
                if not isinstance(high, str) or high < low:
                    raise self.wrong("a range of no use")
                tests.append(self.range(low, high))
            else:
                tests.append(self.among(low))
        return lambda c: any(test(c) for test in tests) != is_negated

    def member(self) -> str | Test:
        character = self.next()
        return self.escape() if character == "\\" else character

    def escape(self) -> str | Test:
        """The character, or the class, behind a backslash."""
        letter = self.next()
        if letter in "dDsSwW":
            return self.named(CLASSES[letter.lower()], letter.isupper())
        if letter in "pP":
            name = self.until("}") if self.take("{") else self.next()
            is_negated = (letter == "P") != name.startswith("^")
            name = name.removeprefix("^")
            if name not in CATEGORIES:
                raise self.wrong(f"the kind of characters '{name}', for which there is no table,")
            return lambda c: unicodedata.category(c).startswith(name) != is_negated
        if letter in CONTROLS:
            return CONTROLS[letter]
        if letter == "x":
            digits = self.until("}") if self.take("{") else self.next() + self.next()
            if len(digits) > 8 or not digits or not all(c in string.hexdigits for c in digits):
                raise self.wrong("no number of a character")
            return self.character(int(digits, 16))
        if letter in "01234567":
            digits = letter
            while len(digits) < 3 and self.at < len(self.text) and self.text[self.at] in string.octdigits:
                digits += self.next()
            if letter == "0" or len(digits) > 1:
                return self.character(int(digits, 8))
        elif letter in string.punctuation:
            return letter
        raise self.wrong(f"'\\{letter}', which RE2 does not know,")

    def character(self, number: int) -> str:
        if number > 0x10FFFF:
            raise self.wrong("no number of a character")
        return chr(number)

    def named(self, characters: str, is_negated: bool) -> Test:
        among = self.among(characters)
        return lambda c: among(c) != is_negated

    def among(self, characters: str) -> Test:
        if self.flags.i:
            either = {form for c in characters for form in (c, c.lower(), c.upper())}
            return lambda c: c in either or c.lower() in either or c.upper() in either
        return lambda c: c in characters

    def range(self, low: str, high: str) -> Test:
        if self.flags.i:
            return lambda c: low <= c <= high or low <= c.lower() <= high or low <= c.upper() <= high
        return lambda c: low <= c <= high


def _unquoted(match: re.Match[str]) -> str:
    """What stands between \\Q and \\E, with a backslash before each sign; other escapes as they are."""
    quoted = match.group(1)
    return match.group() if quoted is None else "".join("\\" * (c in string.punctuation) + c for c in quoted)


def _is_word_edge(text: str, at: int) -> bool:
    return (at > 0 and text[at - 1] in CLASSES["w"]) != (at < len(text) and text[at] in CLASSES["w"])


CHECKS: dict[str, Check] = {
    "A": lambda t, i: i == 0,
    "z": lambda t, i: i == len(t),
    "b": _is_word_edge,
    "B": lambda t, i: not _is_word_edge(t, i),
}
CATEGORIES = {unicodedata.category(chr(n))[:k] for n in range(0x3000) for k in (1, 2)} | {"Cs", "Co"}
