"""Expressions of a model's Tokenizer, with what RE2 says of them under `longest_match`."""

from __future__ import annotations

import pytest

from autosched.errors import WrongInputError
from autosched.frontend.onnx.regular_expressions import Expression


@pytest.mark.parametrize(
    ("expression", "text", "first", "found"),
    [("a|ab", "xab", 1, "ab"), ("a+?", "aaa", 0, "aaa"), ("(a*)*b?", "aab", 0, "aab"), (r"\w+", "é a1_ä", 2, "a1_"),
     (r"\s", "\v\u00a0 ", 2, " "), ("a$", "a\n", -1, ""), ("(?m)a$", "a\n", 0, "a"), (".", "\na", 1, "a"),
     ("(?s).", "\na", 0, "\n"), ("[]a-]+", "b]-a", 1, "]-a"), ("[^]a]", "]ab", 2, "b"),
     ("[[:^alpha:]]+", "a1-", 1, "1-"), (r"\pL+", "1éa1", 1, "éa"), (r"\P{Lu}", "Aa", 1, "a"),
     (r"\x41|\x{e9}|\101", "éA", 0, "é"), (r"\Qa.\E+", "aba..", 2, "a.."), ("(?i)[a-c]+d", "xABcD", 1, "ABcD"),
     ("(?i:a)b", "ABAb", 2, "Ab"), ("a{2,3}", "aaaa", 0, "aaa"), ("a{,2}", "a{,2}", 0, "a{,2}"),
     ("(a{2}){2}", "aaaaa", 0, "aaaa"), ("a{0}b", "ab", 1, "b"), (r"\bb\b", "ab b", 3, "b"), (r"\Bb", "b ab", 3, "b"),
     ("(?P<n>a)(?<m>b)", "ab", 0, "ab"), ("()|a", "a", 0, "a"), ("^*", "aa", 0, ""), ("c", "ab", -1, "")],
)  # fmt: skip
def test_the_first_and_longest(expression: str, text: str, first: int, found: str) -> None:
    assert Expression(expression).search(text) == (None if first < 0 else (first, first + len(found)))


@pytest.mark.parametrize(
    "expression",
    [r"(a)\1", "(?=a)", "(?<!a)", "[", "[]", "a**", "a{2}{2}", "*a", "a)", "(a", "\\", "{1}", "[z-a]", "a{3,2}",
     "a{1001}", "((a{100}){100}){10}", r"\8", r"\é", r"\p{Klingon}", "[[:x:]]", "(?-)a", r"\x{110000}", r"\x{",
     "(" * 5000],
)  # fmt: skip
def test_others_are_refused(expression: str) -> None:
    with pytest.raises(WrongInputError):
        Expression(expression)


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|a)*$c", "(a*)*b", "(a?){40}a{40}b"])
def test_a_search_that_tries_every_way_would_not_end(expression: str) -> None:
    assert Expression(expression).search("a" * 60) is None


def test_a_search_goes_on_where_it_is_told() -> None:
    assert Expression("^a|b").search("aaab", 1) == (3, 4)
    assert Expression(r"\ba").search("aa a", 1) == (3, 4)
