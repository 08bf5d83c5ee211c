"""`autosched build`: what its one line says, and configurations that the caller names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import autosched
from autosched.cli import main
from autosched.driver import extract_tasks
from autosched.driver.task_space import default_of
from autosched.frontend.onnx import from_onnx
from autosched.records import open_store
from autosched.target import Target
from tests.cli.models import dense_file, refuse
from tests.driver.test_trust import task_of, winner
from tests.frontend.onnx_models import make, node

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command line that builds a small model, where nothing is known of any kernel."""
    monkeypatch.setattr("autosched.records.shipped.tuning_logs_folder", lambda: None)
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "user.db"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return ["build", str(dense_file(tmp_path / "m.onnx")), "--threads", "1"]


def summary(capsys: Capture, words: list[str]) -> str:
    """The line of a build; there is no other but the one with the file's name."""
    capsys.readouterr()
    assert main(words) == 0
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    line, written = [line for line in lines if not line.startswith("[")]  # a slow step says so, with its time
    assert not captured.out and written.startswith("written to")
    return line


def test_one_line_says_what_tuning_may_gain(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    model = tmp_path / "m.onnx"
    assert summary(capsys, words).endswith(f"; to tune: autosched tune {model}")
    with open_store(tmp_path / "user.db") as store:
        store.add([winner(task_of())])  # another size, twice as fast as its default
    assert summary(capsys, words).endswith(f"; about 50 % to gain: autosched tune {model}")
    assert "autosched tune" not in summary(capsys, [*words, "--no-db"])
    (task,) = extract_tasks(from_onnx(str(model)), Target("cpu"), threads=1)
    with open_store(tmp_path / "user.db") as store:
        store.add([winner(task)])
    assert "autosched tune" not in summary(capsys, words)


def test_many_untuned_kernels_are_one_line(words: list[str], capsys: Capture) -> None:
    nodes = [node("Transpose", "x", "h0", perm=[1, 0])]
    for i in range(3):  # kernels of other sizes each
        nodes += [node("Concat", f"h{i} h{i}", f"c{i}", axis=0), node("Softmax", f"c{i}", f"h{i + 1}", axis=1)]
    Path(words[1]).write_bytes(make(nodes, {"x": (3, 2)}, ["h3"], {}).SerializeToString())
    line = summary(capsys, words)
    assert int(line.split()[0]) >= 4 and "default" in line


def test_a_configuration_can_be_pinned(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    (task,) = extract_tasks(from_onnx(str(tmp_path / "m.onnx")), Target("cpu"), threads=1)
    default = default_of(task)
    with open_store(tmp_path / "user.db") as store:
        store.add([winner(task)])
    capsys.readouterr()
    for pin in ("matmul: vectors=1 rows=2", "rows=2 vectors=1"):  # what is not named is the default's
        assert main([*words, "--pin", "matmul 4x16", pin, "-f", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["kernels"]
        assert row["config"] == str(default.with_knobs(rows=2, vectors=1)) and row["origin"] == "pinned"
        assert row["trust"] == "pinned"
    assert main([*words, "--pin", "matmul", "rows=2"]) == 0 and ": 1 pinned" in capsys.readouterr().err
    assert main([*words, "--pin", "matmul", "rows=2", "--strict"]) == 1  # nobody has verified it
    assert "1 of 1 kernels have no trusted record: matmul" in (said := capsys.readouterr().err) and "(pinned)" in said
    words = [*words, "-o", str(tmp_path / "x.asx")]
    for pin, said in (
        ("rows=two", "rows='two'"),
        ("rows=1000000", "cannot be used"),
        ("columns=2", "no knob 'columns'"),
        ("blocked: rows=2", "no template 'blocked'"),
        ("rows", "write knob=value"),
    ):
        refuse(capsys, [*words, "--pin", "matmul", pin], said)
    refuse(capsys, [*words, "--pin", "conv9d", "rows=2"], "no kernel's workload holds 'conv9d'")
    refuse(capsys, [*words, "--pin", "matmul", "rows=2", "--locked", "m.lock"], "--pin and --locked")
    assert not (tmp_path / "x.asx").exists()


def test_one_file_for_several_instruction_sets(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "both.asx")
    capsys.readouterr()
    assert main([*words, "--mcpu", "x86-64,x86-64-v3", "-o", path, "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(v["cpu"], len(v["kernels"])) for v in document["variants"]] == [("x86-64", 1), ("x86-64-v3", 1)]
    assert main(["run", path, "-v"]) == 0
    said = capsys.readouterr().err
    assert any(f"kernels for {cpu}, of x86-64, x86-64-v3" in said for cpu in ("x86-64", "x86-64-v3"))
    assert main([*words, "--mcpu", "x86-64", "-o", str(tmp_path / "one.asx"), "-f", "json"]) == 0
    assert "kernels" in json.loads(capsys.readouterr().out)
    refuse(capsys, [*words, "--mcpu", "x86-64-v9"], "unknown CPU 'x86-64-v9'")
    refuse(capsys, [*words, "--mcpu", "x86-64,x86-64"], "names a CPU twice")
    refuse(capsys, [*words, "--mcpu", "x86-64", "--target", "llvm"], "--mcpu and --target exclude")


def test_one_file_for_several_targets(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    """GPUs and a CPU; no GPU is needed."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="the CUDA packages are an extra")
    path = str(tmp_path / "several.asx")
    words = [*words, "-o", path]
    targets = ["--target", "nvidia/nvidia-h200", "--target", "cuda -arch=sm_80", "--target", "cpu"]
    capsys.readouterr()
    assert main([*words, *targets, "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    here = Target("cpu").mcpu
    assert [(v["target"], len(v["kernels"])) for v in document["variants"]] == [("sm_90a", 1), ("sm_80", 1), (here, 1)]
    found = {name: autosched.load(path, variant=name) for name in ("sm_90a", "sm_80", here)}
    assert [made.variant for made in found.values()] == list(found)
    (kernel,) = found["sm_80"].kernels.values()
    assert kernel.archs == ("sm_80", "compute_80")  # PTX for later devices
    assert main(["inspect", path, "--variant", "sm_80"]) == 0
    assert f"of      sm_90a, sm_80, {here}: sm_80 is shown" in capsys.readouterr().out
    refuse(capsys, ["inspect", path, "--variant", "sm_70"], "no variant 'sm_70'", f"there are sm_90a, sm_80, {here}")
    refuse(capsys, [*words, "--target", "cuda", "--target", "cuda"], "targets for sm_75, sm_75", "each GPU's arch")
    refuse(capsys, [*words, "--target", "cuda", "--target", "bogus"], "unknown target 'bogus'")


@pytest.mark.parametrize("command", ["tune", "run", "bench", "inspect"])
def test_other_commands_take_one_target(command: str, tmp_path: Path, capsys: Capture) -> None:
    model = str(dense_file(tmp_path / "m.onnx"))
    said = f"`autosched {command}` takes one --target, not 2; run it once for each"
    refuse(capsys, [command, model, "--target", "cpu", "--target", "llvm -mcpu=x86-64"], said, "autosched build")


def test_a_file_without_variants_has_none_to_show(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "one.asx")
    assert main([*words, "-o", path]) == 0
    refuse(capsys, ["inspect", path, "--variant", "sm_80"], "no variant 'sm_80'", "built for one target")
    refuse(capsys, ["inspect", words[1], "--variant", "sm_80"], "--variant is for artifacts", "--target")
