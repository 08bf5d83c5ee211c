"""What `import autosched` must not load: these packages come in when they are used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import autosched
from autosched.lazy_names import hook, lazy_names, resolve
from autosched.public_names import HOOKS, NAMES

HEAVY = (
    "numba", "llvmlite", "numpy", "scipy", "sklearn", "xgboost", "optuna", "sqlalchemy", "torch", "onnx", "onnxruntime",
    "rich", "click", "safetensors",
)  # fmt: skip
COMPILER = ("codegen", "templates", "tir", "te", "topi", "relax", "tuner", "driver", "frontend", "records")


def loaded_after(statement: str) -> set[str]:
    """Run a statement in a new process; returns the names of all modules that it left loaded."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_loads_nothing_heavy() -> None:
    assert not loaded_after("import autosched") & set(HEAVY)


def test_runtime_loads_no_compiler() -> None:
    loaded = loaded_after("import autosched.runtime")
    assert not loaded & {"numba", "sklearn", "xgboost", "optuna", "sqlalchemy", "torch", "onnx", "rich", "click"}
    assert not loaded & {f"autosched.{name}" for name in COMPILER}


def test_processes_that_time_load_no_compiler() -> None:
    models = loaded_after("import autosched.tuner.measure.run_role")
    assert "numba" not in models
    for loaded in (models, loaded_after("import autosched.own.role")):
        assert not loaded & {f"autosched.{name}" for name in COMPILER if name != "tuner"}


def test_help_loads_no_compiler() -> None:
    assert not loaded_after("import autosched.cli") & {"numba", "xgboost", "sklearn", "optuna", "torch", "onnx", "rich"}


def test_analyses_are_imported_before_passes() -> None:
    assert "autosched.relax.transform" not in loaded_after("import autosched.relax.analysis")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'bild'"):
        _ = autosched.bild


def test_dir_shows_late_names() -> None:
    assert {"build", "tune", "Target", "__version__"} <= set(dir(autosched))
    assert not {"TYPE_CHECKING", "lazy_names", "annotations"} & set(dir(autosched)), "what the package itself imports"


@pytest.mark.parametrize("where", sorted({where for names in (*NAMES.values(), HOOKS) for where in names.values()}))
def test_every_late_name_exists(where: str) -> None:
    resolve(where)


def test_a_late_name_is_looked_up_once() -> None:
    value = autosched.TVMError
    assert vars(autosched)["TVMError"] is value


def test_a_package_that_nothing_is_registered_for_has_no_late_names() -> None:
    with pytest.raises(KeyError):
        lazy_names("autosched.nothing")


def test_a_hook_is_called_by_its_name() -> None:
    assert hook("build") is autosched.build
    with pytest.raises(KeyError):
        hook("nothing")


def test_names_come_only_from_the_table() -> None:
    get, _ = lazy_names("autosched")
    with pytest.raises(AttributeError):
        get("os")


def test_a_look_into_a_database_loads_neither_numpy_nor_mapped_classes(tmp_path: Path) -> None:
    """Process start is most of what `autosched logs list` takes."""
    database = str(tmp_path / "r.db")
    with autosched.records.open_store(database):
        pass
    loaded = loaded_after(
        f"from autosched.cli import main\nassert main(['logs', 'list', '-q', '--db', {database!r}]) == 0"
    )
    assert "sqlalchemy" in loaded
    assert not loaded & {"numpy", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "alembic", "numba", "onnx"}
