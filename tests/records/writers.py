"""Processes that write to a store while a test looks on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

WRITER = """
    import sys
    from autosched.records import open_store
    from autosched.testing.tasks import record
    import dataclasses
    store = open_store(sys.argv[1])
    for batch in range(int(sys.argv[3])):
        records = [dataclasses.replace(record(i), session=sys.argv[2], time=float(batch)) for i in range(1, 4)]
        store.add(records)
        print(batch, flush=True)
"""


def start_writer(where: Path | str, name: str, batches: int) -> subprocess.Popen[str]:
    code = textwrap.dedent(WRITER)
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", code, str(where), name, str(batches)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)
