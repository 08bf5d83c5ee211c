"""The configurations that ship with the package: readable, of today's templates, and used by a build."""

import dataclasses
from pathlib import Path

import pytest

import autosched.target.target
from autosched.driver.build.choose import choose
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.settings import resolve_records
from autosched.driver.tasks import extract_tasks
from autosched.frontend.onnx import from_onnx
from autosched.records.package import read_package
from autosched.records.shipped import ShippedReader
from autosched.target import CacheSizes, Target, host_cpu
from autosched.templates import template_versions
from benchmarks.light import load_light

LOGS = Path(__file__).parents[1] / "tuning_logs"


@pytest.mark.parametrize("path", sorted(LOGS.rglob("*.jsonl")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_package_is_whole_and_of_today(path: Path) -> None:
    records = read_package(path)
    versions = template_versions(records[0].device.kind)
    assert records and all(r.is_winner and r.workload.op == path.stem for r in records)
    assert {r.device.family for r in records} == {path.parent.name} and {r.host for r in records} == {""}
    stale = {r.config.template for r in records if versions.get(r.config.template) != r.template_version}
    assert not stale, "tune again, or take them out"
    assert all(r.default is not None for r in records), "what a winner was compared with decides whether it is used"


@pytest.mark.parametrize(
    ("maker", "generation", "is_used"),
    [("AuthenticAMD", 25, True), ("AuthenticAMD", 26, False), ("AnotherMaker", 25, False)],
)
def test_a_build_uses_what_is_shipped(
    maker: str, generation: int, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where cores are of the maker and generation of those which the logs were made on, and the default is the same."""
    caches = CacheSizes(32 << 10, 512 << 10, 7 << 20)  # of no machine that the logs were made on
    machine = dataclasses.replace(host_cpu(), vendor=maker, family=generation, model_name="some CPU", cache=caches)
    monkeypatch.setattr(autosched.target.target, "host_cpu", lambda: machine)
    target = Target("llvm -mcpu=x86-64-v3")
    reader = resolve_records([ShippedReader(LOGS)])
    module = from_onnx(load_light("squeezenet"))
    tasks = extract_tasks(module, target, threads=1, layouts=TunedLayouts(reader, target, 1))
    found = [choose(task, reader, task.name).found for task in tasks]
    used = [f for f in found if f.origin == "shipped x86-64-v3"]
    assert bool(used) == is_used and len([f for f in found if f]) == len(used), [f.reason for f in found]
