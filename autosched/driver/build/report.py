"""What a build says about itself: where each kernel's configuration came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosched.driver.build.choose import Choice
from autosched.records import Trust


@dataclass(frozen=True)
class BuildReport:
    """Rows of kernel, template, origin, trust and expected time; and one line that sums them up."""

    rows: tuple[Mapping[str, Any], ...]
    compile_s: float = 0.0

    @property
    def summary(self) -> str:
        """One line: how many kernels, where their configurations came from, how long compiling took."""
        trusts = Counter(str(r["trust"]) for r in self.rows)
        rest = {trust: trusts.pop(trust, 0) for trust in ("near shape", "pinned", "default")}
        parts = []
        if trusts:
            levels = ", ".join(f"{trusts[trust]} {trust}" for trust in map(str, Trust) if trust in trusts)
            parts.append(f"{trusts.total()} from records ({levels})")
        parts += [f"{n} {trust}" for trust, n in rest.items() if n]
        distinct = len(self.rows)
        text = f"{distinct} kernel{'s' if distinct != 1 else ''}: {', '.join(parts) or 'none'}"
        weak = sum(1 for r in self.rows if r["reason"] and r["trust"] == "default" and "invalid" in str(r["reason"]))
        if weak:
            text += f", {weak} with an unusable record (see -v)"
        return f"{text}; compiled in {self.compile_s:.1f} s" if self.compile_s else text


def report_of(choices: Sequence[Choice], compile_s: float) -> BuildReport:
    return BuildReport(tuple(c.row for c in choices), compile_s)
