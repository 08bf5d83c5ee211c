import pytest

from autosched.printable import printable, printable_values


@pytest.mark.parametrize("text", ["", "plain, ünïcode 模型 ✓", "a  b"])
def test_ordinary_text_stays(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("abc\u202etxt", "abc\\u202etxt"),
        ("\u2028\udcff", "\\u2028\\udcff"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text, shown):
    assert printable(text) == shown
    printable(text).encode()


def test_lines_and_tabs_may_stay():
    assert printable("a\n\tb\x1b", "\n\t") == "a\n\tb\\x1b"


def test_all_texts_of_plain_data():
    assert printable_values({"a\x1b": ["b\x07", 1, None, ("c\n",)]}) == {"a\\x1b": ["b\\x07", 1, None, ["c\n"]]}
