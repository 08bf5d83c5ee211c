"""What an emulated machine needs of this project: the runtime and the script that runs the cases."""

from __future__ import annotations

import shutil
from pathlib import Path

import autosched

RUNTIME = (
    *("__init__.py", "durations.py", "env.py", "errors.py", "lazy_names.py", "printable.py"),
    *("json_types.py", "project.py", "public_names.py"),
    *("trust.py", "version.py", "runtime", "target"),
)


def copy_runtime(site: Path) -> None:
    """Copy them into a folder of packages; nothing else of the project is there."""
    source = Path(autosched.__file__).parent
    (site / "autosched").mkdir(parents=True)
    for name in RUNTIME:
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, site / "autosched" / name)
    shutil.copy(Path(__file__).with_name("guest.py"), site)
