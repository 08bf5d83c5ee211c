"""Convergence and knob importance of one task as a picture, PNG or SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosched.errors import RecordError
from autosched.records.importance import HOW, knob_importance
from autosched.records.record import Record
from autosched.records.report.document import improvements

if TYPE_CHECKING:
    pass

FORMATS = (".png", ".svg")
MOST_KNOBS = 12
FAR = 2.5  # trials that take so many times the default are not drawn
BLUE, GREY, BROWN = "#0b5cad", "#57606a", "#9a6700"


def save_figure(path: Path, title: str, records: Sequence[Record]) -> None:
    """Write the picture of one task's trials; the suffix says in which form, and equal records give equal bytes.

    Raises  RecordError for another suffix, or if matplotlib is not installed; OSError if the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise RecordError(f"{path} is neither a PNG nor an SVG file", hint="end its name in .png or .svg")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise RecordError("pictures need matplotlib", hint="pip install 'autosched[plot]'") from None
    options = {"svg.hashsalt": "autosched", "svg.fonttype": "none", "text.parse_math": False, "font.size": 9.5}
    with matplotlib.rc_context(options):
        figure = Figure(figsize=(10, 4), layout="constrained")
        figure.suptitle(title if len(title) <= 110 else f"{title[:109]}…", x=0.01, ha="left", fontsize=11)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _convergence(left, records)
        _importance(right, records)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(color="#d8dee4", linewidth=0.6)
            axes.set_axisbelow(True)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
        figure.savefig(path, dpi=150, metadata=metadata)


def _convergence(axes: Any, records: Sequence[Record]) -> None:
    steps = improvements(records)
    axes.set(xlabel="trials", ylabel="ms")
    axes.set_title("Convergence", loc="left", fontsize=10)
    if not steps:
        axes.text(0.5, 0.5, "nothing has worked", transform=axes.transAxes, ha="center", color=GREY)
        return
    default = min((r.measurement.median_s * 1e3 for r in records if r.is_default and r.measurement.is_ok), default=None)
    ceiling = FAR * (steps[0][1] if default is None else default)
    times = [(n, r.measurement.median_s * 1e3) for n, r in enumerate(records, start=1) if r.measurement.is_ok]
    near = [(n, time_ms) for n, time_ms in times if time_ms <= ceiling]
    axes.scatter(*zip(*near), s=8, color=GREY, alpha=0.5, linewidths=0, label="trials")
    axes.step(*zip(*steps), where="post", color=BLUE, linewidth=2, label=f"best: {steps[-1][1]:.4g} ms")
    if default is not None:
        axes.axhline(default, color=BROWN, linewidth=1.2, linestyle="--", label=f"default: {default:.4g} ms")
    axes.set_ylim(bottom=0)
    axes.legend(framealpha=0.85, edgecolor="none", fontsize=8.5, loc="upper right")


def _importance(axes: Any, records: Sequence[Record]) -> None:
    ranked = knob_importance(records)[:MOST_KNOBS][::-1]
    axes.set_title("Knob importance", loc="left", fontsize=10)
    axes.set_xlabel("\n".join(textwrap.wrap(HOW, 62)), fontsize=7.5, color=GREY)
    axes.set_xlim(0, 100)
    axes.barh([name[:24] for name, _ in ranked], [100 * share for _, share in ranked], color=BLUE, height=0.6)
    axes.xaxis.set_major_formatter("{x:.0f} %")
    if not ranked:
        axes.text(0.5, 0.5, "too few times", transform=axes.transAxes, ha="center", color=GREY)
