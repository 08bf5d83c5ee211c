from pathlib import Path

import pytest

from autosched.errors import SpaceError
from autosched.space import check_space_file

GOOD = """[space]
template = "demo"
values = ["M"]
[knobs.rows]
range = [1, "M"]
default = "min(M, 4)"
[knobs.order]
values = ["a", "b"]
default = "b"
[knobs.tile]
split = { extent = "M", max_inner = 8 }
[[constraint]]
require = "rows * tile[1] <= M"
"""


def test_a_good_file_needs_no_values(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(GOOD)
    file = check_space_file(path)
    assert (file.template, file.values, tuple(file.knobs)) == ("demo", ("M",), ("rows", "order", "tile"))


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('range = [1, "M"]', 'range = "M"', 4, "must be a list"),
        ('"min(M, 4)"', '"min(N, 4)"', 4, "unknown name 'N'"),
        ('"min(M, 4)"', '"min(M"', 4, "cannot be read"),
        ('extent = "M"', 'extant = "M"', 10, "a split needs extent"),
        ("tile[1] <= M", "tiles[1] <= M", 13, "unknown name 'tiles'"),
        ('require = "rows', 'requires = "rows', 12, "a constraint needs require"),
        ("[knobs.tile]\n", "[knobs.tile]\nbool = true\n", 10, "exactly one of"),
    ],
)
def test_mistakes_have_a_line(tmp_path: Path, old: str, new: str, line: int, reason: str) -> None:
    path = tmp_path / "demo.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(SpaceError, match=reason) as caught:
        check_space_file(path)
    assert f"demo.toml:{line}" in str(caught.value)
