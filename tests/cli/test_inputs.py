"""Inputs from files, by name, or made up; outputs to files; nothing is unpickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autosched.cli.inputs import collect_inputs, compare, largest, make_array, write_arrays
from autosched.errors import UsageError, VerificationFailed

WANTED = {"x": ((2, 3), "float32"), "ids": ((4,), "int64")}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "in.npz"
    np.savez(path, x=np.ones((2, 3), np.float32), ids=np.arange(4))
    return path


def test_archive_gives_inputs_in_the_model_s_order(archive: Path) -> None:
    found = collect_inputs(WANTED, archive=archive)
    assert list(found) == ["x", "ids"]
    assert found["ids"].tolist() == [0, 1, 2, 3]


def test_a_named_file_wins_over_the_archive(archive: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 3), 7, np.float32))
    found = collect_inputs(WANTED, archive=archive, files=[f"x={tmp_path / 'x.npy'}"])
    assert found["x"].max() == 7


def test_nothing_given_means_random_and_repeatable() -> None:
    first, second = collect_inputs(WANTED), collect_inputs(WANTED)
    assert all(np.array_equal(first[name], second[name]) for name in WANTED)
    assert first["x"].dtype == np.float32
    assert first["ids"].dtype == np.int64
    assert not np.array_equal(first["x"], collect_inputs(WANTED, seed=1)["x"])


@pytest.mark.parametrize(("fill", "value"), [("zeros", 0), ("ones", 1)])
def test_fill(fill: str, value: int) -> None:
    assert (make_array("x", (2, 2), "float32", fill, 0) == value).all()


def test_a_part_given_and_no_fill_names_what_is_missing(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    files = [f"x={tmp_path / 'x.npy'}"]
    with pytest.raises(UsageError, match="no data for input 'ids'"):
        collect_inputs(WANTED, files=files)
    assert collect_inputs(WANTED, files=files, fill="ones")["ids"].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("array", "name", "message"),
    [
        (np.zeros((3, 2), np.float32), "x", r"shape \[3, 2\], the model takes \[2, 3\]"),
        (np.zeros((2, 3), np.float64), "x", "float64, the model takes float32"),
        (np.zeros((2, 3), np.float32), "y", "no input 'y'"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, array: np.ndarray, name: str, message: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(UsageError, match=message) as caught:
        collect_inputs(WANTED, files=[f"{name}={tmp_path / 'a.npy'}"])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("content", [b"", b"not numpy", b"PK\x03\x04 broken zip"])
def test_unreadable_files_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="bad.npz"):
        collect_inputs(WANTED, archive=path)


def test_a_missing_file_and_a_nameless_one() -> None:
    with pytest.raises(UsageError, match="no file nowhere.npz"):
        collect_inputs(WANTED, archive=Path("nowhere.npz"))
    with pytest.raises(UsageError, match="names no file"):
        collect_inputs(WANTED, files=["x"])


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"
    np.savez(path, x=np.array([print], dtype=object))
    with pytest.raises(UsageError, match="evil.npz"):
        collect_inputs(WANTED, archive=path)


def test_outputs_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.npz"
    write_arrays(path, {"y": np.arange(3)})
    assert np.load(path)["y"].tolist() == [0, 1, 2]

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(UsageError, match=r"cannot write .*out.npz: No space left on device"):
        write_arrays(path, {"y": np.arange(9)})
    monkeypatch.undo()
    assert np.load(path)["y"].tolist() == [0, 1, 2]
    assert [item.name for item in tmp_path.iterdir()] == ["out.npz"]


def test_largest_elements_come_first_and_ties_by_position() -> None:
    found = largest(np.array([[1, 5], [5, 2]], np.float32), 3)
    assert found == [((0, 1), 5.0), ((1, 0), 5.0), ((1, 1), 2.0)]


def test_compare_names_the_first_difference(tmp_path: Path) -> None:
    path = tmp_path / "expected.npz"
    expected = np.array([1.0, 100.0, 3.0], np.float32)
    np.savez(path, y=expected)
    compare({"y": expected + np.float32(0.009)}, path, rtol=1e-4, atol=0)
    with pytest.raises(VerificationFailed, match=r"1 of 3 elements, first at \[2\]") as caught:
        compare({"y": np.array([1.0, 100.0, 3.1], np.float32)}, path, rtol=1e-4, atol=0)
    assert caught.value.exit_code == 4
    with pytest.raises(VerificationFailed, match=r"first at \[0\]"):
        compare({"y": np.array([np.nan, 100.0, 3.0], np.float32)}, path, rtol=1e-4, atol=0)


def test_random_integers_lie_in_the_range_that_the_model_allows() -> None:
    wanted = {"ids": ((2000,), "int64"), "mask": ((50,), "int64")}
    found = collect_inputs(wanted, ranges={"ids": 300})
    assert (found["ids"].min(), found["ids"].max()) == (0, 299)
    assert set(found["mask"].tolist()) == {0, 1}


def test_compare_tells_the_largest_error_and_where(tmp_path: Path) -> None:
    want = np.array([[1.0, -4.0], [np.nan, np.inf]], np.float32)
    np.savez(tmp_path / "ref.npz", y=want)
    got = want + np.array([[1e-6, 2e-5], [0, 0]], np.float32)
    assert "largest error of 'y' 2e-05 (5.0e-06 of the largest value)" in compare(
        {"y": got}, tmp_path / "ref.npz", 1e-4, 0
    )
    wrong = want + np.array([[0.5, 2.0], [0, 0]], np.float32)
    with pytest.raises(VerificationFailed, match=r"differs in 2 of 4.*first at \[0, 0\].*largest error 2 at \[0, 1\]"):
        compare({"y": wrong}, tmp_path / "ref.npz", 1e-4, 0)
    with pytest.raises(VerificationFailed, match="differs in 1 of 4"):
        compare({"y": np.nan_to_num(want, posinf=np.inf)}, tmp_path / "ref.npz", 1e-4, 0)
