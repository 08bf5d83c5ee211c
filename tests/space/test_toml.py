from pathlib import Path

import pytest

from autosched.errors import SpaceError
from autosched.space import Config, find_space, list_spaces, load_space, use_spaces
from autosched.space.location import search_spaces_folder
from autosched.space.toml import make_space, parse_space, space_from_file

GOOD = """
[space]
template = "demo"
values = ["M", "registers"]

[knobs.rows]
range = [1, "registers - 4"]
default = "M"

[knobs.block]
powers_of_two = [16, 256]
also = ["M"]
at_most = "M"
default = 100

[knobs.order]
values = ["mn", "nm"]
default = "nm"

[knobs.fast]
bool = true
default = true

[knobs.tile]
split = { extent = "M", parts = 2, max_inner = 8 }

[[constraint]]
require = "rows * 2 <= registers"
because = "the tile must stay in registers"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "demo.toml"
    path.write_text(text)
    return path


def test_good_file(tmp_path: Path) -> None:
    space = space_from_file(write(tmp_path, GOOD), {"M": 48, "registers": 16, "unused": 3})
    knobs = {k.name: k for k in space.knobs}
    assert knobs["rows"].values == tuple(range(1, 13)) and knobs["rows"].default == 12
    assert knobs["block"].values == (16, 32, 48) and knobs["block"].default == 48
    assert knobs["order"].default == "nm" and knobs["fast"].default is True
    assert knobs["tile"].values[0] == (48, 1) and len(knobs["tile"].values) == 6
    assert space.name == "demo" and all(c["rows"] <= 8 for c in space.sample(0, 20))
    assert "stay in registers" in space.why_not(space.default.with_knobs(rows=9))


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('template = "demo"', "", 2, "template"),
        ('[1, "registers - 4"]', '[1, "registers - "]', 6, "cannot be read"),
        ('[1, "registers - 4"]', '[1, "lanes"]', 6, "'lanes' has no value"),
        ('[1, "registers - 4"]', "[5, 1]", 6, "no candidates"),
        ('[1, "registers - 4"]', "[1, 9e9]", 6, "candidates"),
        ('[1, "registers - 4"]', "[-4611686018427387903, 4611686018427387903]", 6, "candidates"),
        ('[1, "registers - 4"]', f"[1, {10**400}]", 6, "too large"),
        ("bool = true", "bool = true\nvalues = [1]", 20, "exactly one of"),
        ("bool = true", "boolean = true", 20, "exactly one of"),
        ("bool = true", "bool = true\nnote = 1", 22, "unknown key 'note'"),
        ('["mn", "nm"]', '["mn", 3]', 16, "mixes kinds"),
        ('default = "nm"', 'default = "km"', 16, "default"),
        ("rows * 2 <=", "rowz * 2 <=", 28, "unknown name 'rowz'"),
        ("rows * 2 <=", "__import__('os') <=", 28, "uses Call"),
        ("because", "why", 27, "require"),
        ("max_inner", "inner", 24, "split needs"),
        ("[space]", "[spaces]", 2, "unknown section"),
    ],
)
def test_mistakes_name_file_line_and_reason(tmp_path: Path, old: str, new: str, line: int, reason: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(SpaceError) as error:
        space_from_file(path, {"M": 48, "registers": 16})
    assert reason in str(error.value)
    assert str(path) in (error.value.where or "")
    assert f":{line}" in (error.value.where or "")


def test_not_toml_and_missing_values(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="line 2"):
        space_from_file(write(tmp_path, "[space]\n= 3"), {})
    with pytest.raises(SpaceError, match="no value for registers"):
        space_from_file(write(tmp_path, GOOD), {"M": 48})
    with pytest.raises(SpaceError, match="cannot read"):
        space_from_file(tmp_path / "none.toml", {})
    (tmp_path / "demo.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SpaceError, match="cannot read"):
        space_from_file(tmp_path / "demo.toml", {})


def test_a_users_folder_overrides_and_the_rest_comes_from_the_project(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    write(tmp_path / "cpu", GOOD)
    assert load_space("cpu", "demo", {"M": 48, "registers": 16}, folder=tmp_path).name == "demo"
    assert "matmul" in list_spaces("cpu")
    with pytest.raises(SpaceError, match="there are .*matmul"):
        load_space("cpu", "nonsense", {}, folder=tmp_path)


def test_every_shipped_file_can_be_read() -> None:
    folder = search_spaces_folder()
    for path in folder.rglob("*.toml"):
        file = parse_space(path.read_text(), path)
        assert file.document["space"]["template"] == path.stem
        needed = dict.fromkeys(file.document["space"].get("values", []), 32)
        space = make_space(file, needed)
        assert space.knobs and space.count_is_exact


def test_a_users_folder_comes_first(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "matmul.toml").write_text('[space]\ntemplate = "matmul"\n[knobs.own]\nvalues = [1, 2]\n')
    with use_spaces(tmp_path):
        assert [k.name for k in load_space("cpu", "matmul", {}).knobs] == ["own"]
        assert find_space("cpu", "conv2d").parent.parent == search_spaces_folder()
        assert list_spaces("cpu") == tuple(sorted({*list_spaces("cpu"), "matmul"}))
        with use_spaces(None):
            assert find_space("cpu", "matmul").parent.parent == tmp_path
    assert find_space("cpu", "matmul").parent.parent == search_spaces_folder()
    with pytest.raises(SpaceError, match="no such folder"), use_spaces(tmp_path / "no"):
        pass


def test_what_a_configuration_without_a_knob_means(tmp_path: Path) -> None:
    text = GOOD.replace("default = 100", 'default = 100\nabsent = "M"')
    space = space_from_file(write(tmp_path, text), {"M": 48, "registers": 16})
    knobs = dict(space.default.knobs)
    old = Config("demo", {name: value for name, value in knobs.items() if name != "block"})
    assert not space.why_not(old) and space.to_config(space.to_rows([old])[0])["block"] == 48
    without = Config("demo", {name: value for name, value in knobs.items() if name != "order"})
    assert space.why_not(without) == "it has no knob 'order'"
    assert "is no candidate" in space_from_file(
        write(tmp_path, text.replace('absent = "M"', "absent = 7")), {"M": 48, "registers": 16}
    ).why_not(old)
