"""What the surroundings say: targets that code can be made for and run here, and whether records are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.driver.settings import check_runs_here, resolve_records, resolve_target
from autosched.errors import TargetError, UsageError
from autosched.records import FallbackContext
from autosched.records.lookup import Lookup
from autosched.target import Target, host_cpu


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("opencl", "no code generator for target 'opencl'; there is one for llvm, cuda, nvptx"),
        ("llvm -mtriple=riscv64-linux-gnu", "no code generator for riscv64"),
        ("llvm -mtriple=hexagon-unknown-elf", "no code generator for hexagon"),
    ],
)
def test_targets_without_a_code_generator(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        resolve_target(text)


@pytest.mark.parametrize(
    ("text", "architecture", "mcpu"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", "x86_64", "haswell"),
        ("llvm -mtriple=arm64-linux-gnu", "aarch64", "generic"),
        ("llvm -mcpu=neoverse-n1", "aarch64", "neoverse-n1"),
    ],
)
def test_architectures_are_named_by_triple_or_cpu(text: str, architecture: str, mcpu: str) -> None:
    target = resolve_target(text)
    assert (target.architecture, target.mcpu) == (architecture, mcpu)


def test_a_system_that_no_code_is_made_for() -> None:
    with pytest.raises(TargetError, match=r"system of triple 'aarch64-apple-darwin'.*use aarch64-linux-gnu"):
        resolve_target("llvm -mtriple=aarch64-apple-darwin")


def test_another_architecture_is_not_measured_here() -> None:
    other = "aarch64" if host_cpu().architecture == "x86_64" else "x86_64"
    with pytest.raises(UsageError, match=f"this machine is {host_cpu().architecture}, and target .* is {other}"):
        check_runs_here(Target(f"llvm -mtriple={other}-linux-gnu"))


def test_only_what_runs_here_is_measured() -> None:
    check_runs_here(Target("cpu"))  # no CPU has both of these, Intel's and AMD's
    with pytest.raises(UsageError, match="this machine lacks .*xop"):
        check_runs_here(Target("llvm -mcpu=x86-64 -mattr=+amx-tile,+xop"))


def looks_nothing_up(lookup: Lookup) -> bool:
    return any(isinstance(reader, FallbackContext) for reader in lookup.readers)


def test_tuning_switched_off_reads_no_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert not looks_nothing_up(resolve_records())
    monkeypatch.setenv("AUTOSCHED_TUNE", "off")
    assert looks_nothing_up(resolve_records())
    (tmp_path / "log.jsonl").write_text("")
    assert not looks_nothing_up(resolve_records(tmp_path / "log.jsonl"))  # an argument wins
