import json
from dataclasses import replace

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.driver.build.graph import prepare
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.settings import resolve_records
from autosched.driver.tasks import extract_tasks, prepared_tasks
from autosched.records import make_record, open_store
from autosched.records.lock import read_lock, write_lock
from autosched.relax import op
from autosched.relax.transform import ChooseLayouts
from autosched.target import Target
from autosched.task import Measurement, Status, Trial
from autosched.templates import default_config

TARGET = Target("llvm -mcpu=x86-64-v3")


def _model():
    rng = np.random.default_rng(0)

    def weight(*shape):
        return relax.const(rng.standard_normal(shape).astype("float32"))

    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((1, 32, 10, 10), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit(op.nn.relu(op.nn.conv2d(x, weight(64, 32, 3, 3), padding=1)))
            out = bb.emit_output(op.nn.conv2d(a, weight(48, 64, 1, 1)))
        bb.emit_func_output(out)
    return bb.get()


def _blocked_tasks(block):
    """The model's tasks with layouts of so many channels and no others."""
    return prepared_tasks(prepare(ChooseLayouts(block)(_model()), TARGET, {}), TARGET, threads=1, cache="cold")


def _store(path, times):
    """A database with winners of the 3x3 convolution, by the channels in its blocks."""
    store = open_store(path)
    with store:
        for block, seconds in times.items():
            task = next(t for t in _blocked_tasks(block) if t.workload.shapes[1][2] == 3)
            measured = Measurement(Status.OK, (seconds,) * 3, "float64 reference", how={"cache": "cold"})
            trial = Trial(default_config(task.func, TARGET), measured)
            store.add([make_record(task, trial, session="s", is_default=True, is_winner=True)])
    return path


def test_the_time_of_what_was_the_default_once_does_not_count(tmp_path):
    path = _store(tmp_path / "r.db", {8: 5e-5, 16: 1e-5})
    with open_store(path) as store:
        old = [replace(r, config=r.config.with_knobs(**{next(iter(r.config.knobs)): 99})) for r in store.records()]
    with open_store(tmp_path / "old.db") as store:
        store.add(old)
    layouts = _layouts([tmp_path / "old.db"])
    _blocks(layouts)
    assert len(layouts.known) == 2 and not layouts.answers


def _blocks(layouts):
    """Channels in the blocks of the two convolutions' results."""
    tasks = extract_tasks(_model(), TARGET, layouts=layouts)
    return {t.workload.shapes[1][2]: t.workload.shapes[-1][-1] for t in tasks if t.workload.op == "conv2d"}


def _layouts(records):
    return TunedLayouts(resolve_records(records), TARGET, 1)


@pytest.mark.parametrize(("times", "block"), [({8: 5e-5, 16: 1e-5}, 16), ({8: 1e-5, 16: 5e-5}, 8)])
def test_measured_times_decide(tmp_path, times, block):
    layouts = _layouts([_store(tmp_path / "r.db", times)])
    assert _blocks(layouts)[3] == block
    assert sorted(layouts.answers.values()) == [1e-5, 5e-5]


def test_one_time_alone_changes_nothing(tmp_path):
    usual = _blocks(None)
    other = 24 - usual[3]
    assert _blocks(_layouts([_store(tmp_path / "r.db", {other: 1e-9})])) == usual


def test_times_of_other_threads_or_devices_do_not_count(tmp_path):
    path = _store(tmp_path / "r.db", {8: 5e-5, 16: 1e-5})
    assert TunedLayouts(resolve_records([path]), TARGET, 2).known == {}
    assert TunedLayouts(resolve_records([path]), Target("llvm -mcpu=x86-64-v4"), 1).known == {}


def test_a_locked_build_has_the_layouts_of_the_lock(tmp_path):
    layouts = _layouts([_store(tmp_path / "r.db", {8: 5e-5, 16: 1e-5})])
    tasks = extract_tasks(_model(), TARGET, layouts=layouts)
    chosen = {t.key: (default_config(t.func, TARGET), "default") for t in tasks}
    write_lock(tmp_path / "m.lock", chosen, {}, layouts.answers)
    lock = read_lock(tmp_path / "m.lock")
    assert _blocks(TunedLayouts(lock, TARGET, 1))[3] == 16
    built = autosched.build(_model(), TARGET, records=lock, threads=1)
    assert len(built.manifest["report"]) == len(tasks)


@pytest.mark.parametrize("seconds", [0, -1, "1", None, True, 1e999])
def test_a_malformed_time_in_a_lock_is_refused(tmp_path, seconds):
    write_lock(tmp_path / "m.lock", {}, {}, {})
    document = json.loads((tmp_path / "m.lock").read_text())
    document["layouts"] = [{"workload": {"op": "a", "dtypes": [], "shapes": []}, "seconds": seconds}]
    (tmp_path / "m.lock").write_text(json.dumps(document))
    with pytest.raises(autosched.errors.RecordError, match="malformed lock"):
        read_lock(tmp_path / "m.lock")


def test_the_time_with_the_least_behind_it_stands_for_the_bare_one(tmp_path):
    path = _store(tmp_path / "r.db", {8: 5e-5, 16: 1e-5})
    layouts = _layouts([path])
    near = next(entries for entries in layouts.known.values() if entries[0].seconds == 5e-5)
    near.append(replace(near[0], workload=replace(near[0].workload, epilogue=""), seconds=4e-5))
    assert _blocks(layouts)[3] == 16 and sorted(layouts.answers.values()) == [1e-5, 4e-5]
