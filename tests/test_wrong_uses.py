"""Wrong uses of every interface: each is refused with an error of the right kind that names what is wrong.

A case of `wrong_uses.txt` begins with `# === name | builtin | parts of the message`; its last statement is wrong. The
error is a TVMError and that Python builtin at once; `!` says that TVM itself raises the bare builtin there.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autosched.errors import TVMError
from tests.spread import spread

FILE = Path(__file__).with_name("wrong_uses.txt")
ROOT = Path(__file__).parents[1]
NEEDS = {"from_fx": "torch", "from_onnx": "onnx"}
DANGEROUS = ("call ", "array ", "vm ", "relay vm ", "graph: ", "module ", "load_module", "Executable", "from_dlpack")


@dataclass(frozen=True)
class Case:
    """A wrong use: `text` up to its last statement is right."""

    name: str
    kind: type[BaseException]
    is_ours: bool
    parts: tuple[str, ...]
    text: str


def read_cases() -> list[Case]:
    pieces = re.split(r"^# === (.+)\n", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    cases = []
    for head, text in zip(pieces[1::2], pieces[2::2], strict=True):
        name, kind, *parts = (field.strip() for field in head.split("|"))
        cases.append(Case(name, getattr(builtins, kind.rstrip("!")), not kind.endswith("!"), tuple(parts), text))
    return cases


CASES = read_cases()


def names() -> dict[str, Any]:
    from tests import wrong_use_helpers

    return {k: v for k, v in vars(wrong_use_helpers).items() if not k.startswith("__")}


def run_case(case: Case) -> None:
    """Run a case and look at its error."""
    tree = ast.parse(case.text)
    last = ast.Module([tree.body.pop()], [])
    file = f"<{case.name}>"
    linecache.cache[file] = (len(case.text), None, case.text.splitlines(True), file)  # decorators read their source
    scope = names() | {"__name__": "wrong_use"}
    exec(compile(tree, file, "exec"), scope)
    with pytest.raises(case.kind) as caught:
        exec(compile(last, file, "exec"), scope)
    if case.is_ours:
        assert isinstance(caught.value, TVMError), f"{case.name}: {caught.value!r} is no TVMError"
    text = str(caught.value)
    for part in case.parts:
        assert part in text, f"{case.name}: '{part}' is missing in: {text}"


@spread(5, "case", CASES, ids=lambda case: case.name)
def test_wrong_use(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for start, module in NEEDS.items():
        if case.name.startswith(start):
            pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    run_case(case)


def test_there_are_many() -> None:
    assert len(CASES) == len({case.name for case in CASES}) >= 400


def test_a_case_that_raises_nothing_is_seen() -> None:
    with pytest.raises(pytest.fail.Exception):
        run_case(Case("harmless", ValueError, True, (), "x = 1"))


def test_an_error_that_is_not_ours_is_seen() -> None:
    with pytest.raises(AssertionError):
        run_case(Case("bare", ValueError, True, (), "int('x')"))


@pytest.mark.slow
def test_no_wrong_use_of_memory_ends_the_process(tmp_path: Path) -> None:
    """Arrays, handles and files that are not what they should be: all in one process, which lives to say so."""
    code = (
        "from tests import test_wrong_uses as t\n"
        "for case in t.CASES:\n"
        "    if case.name.startswith(t.DANGEROUS):\n"
        "        t.run_case(case)\n"
        "print('alive')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("alive\n")
