"""Records as an Optuna storage, a study for each task: Optuna's dashboard opens it."""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from autosched.errors import RecordError
from autosched.records.record import Record
from autosched.task import Status

if TYPE_CHECKING:
    from autosched.json_types import JsonObject
    from autosched.space.config import KnobValue

TaskOf = tuple[str, str, int]


def write_storage(path: Path, records: Iterable[Record]) -> int:
    """Write records to a SQLite file in Optuna's form, which is replaced only when all are written; gives their number.

    A study a task, named by workload, device and threads; its value is the median time in ms, to be minimised. Knobs
    are categorical parameters; failures are failed trials with their status as an attribute.
    Raises  RecordError if the file cannot be written, or Optuna is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise RecordError("Optuna's storage is written by Optuna", hint="pip install 'autosched[optuna]'") from None

    groups: dict[TaskOf, list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload.key, record.device.key, record.threads), []).append(record)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        os.close(handle)
    except OSError as error:
        raise RecordError(f"cannot write the storage: {error.strerror}", where=str(path)) from None
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{quote(temporary, safe='/')}", skip_compatibility_check=False)
        for number, group in enumerate(groups.values(), start=1):
            _write_study(storage, number, group)
        storage.engine.dispose()
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        raise RecordError(f"cannot write the storage: {error.strerror}", where=str(path)) from None
    finally:
        optuna.logging.set_verbosity(level)
        Path(temporary).unlink(missing_ok=True)
    return sum(map(len, groups.values()))


def _write_study(storage: object, number: int, records: list[Record]) -> None:
    import optuna

    first = records[0]
    name = f"{number} {first.workload} | {first.device.name} | {first.threads} threads"
    study = optuna.create_study(storage=storage, study_name=name[:500], direction="minimize")
    study.set_user_attr("unit", "ms")
    study.set_user_attr("workload", first.workload.key[:2000])
    rows = [_parameters(record) for record in records]
    values: dict[str, dict[KnobValue, None]] = {}
    for row in rows:
        for knob, value in row.items():
            values.setdefault(knob, {})[value] = None
    categories = {knob: optuna.distributions.CategoricalDistribution(tuple(known)) for knob, known in values.items()}
    study.add_trials([_trial(record, row, categories) for record, row in zip(records, rows)])


def _parameters(record: Record) -> dict[str, str]:
    """Knobs as text: True and 1, or a tuple, are different values to us and not to Optuna."""
    knobs: JsonObject = {"template": record.config.template, **record.config.knobs}
    return {knob: value if isinstance(value, str) else repr(value) for knob, value in knobs.items()}


def _trial(record: Record, parameters: Mapping[str, str], categories: Mapping[str, object]) -> object:
    import optuna

    measurement = record.measurement
    when = datetime.datetime.fromtimestamp(record.time)
    attributes = {"status": str(measurement.status), "record": record.uid, "winner": record.is_winner}
    if measurement.error:
        attributes["error"] = measurement.error[:1000]
    state = optuna.trial.TrialState.COMPLETE if measurement.status is Status.OK else optuna.trial.TrialState.FAIL
    trial = optuna.trial.create_trial(
        state=state,
        value=measurement.median_s * 1e3 if measurement.is_ok else None,
        params=dict(parameters),
        distributions={knob: categories[knob] for knob in parameters},
        user_attrs=attributes,
    )
    trial.datetime_start = trial.datetime_complete = when
    return trial
