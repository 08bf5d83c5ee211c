"""`Report`: what a profile says, call by call, as TVM's `runtime.profiling` has it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject


@dataclass(frozen=True)
class Report:
    """Times of calls.

    calls           one mapping per call: "Name", "Duration (us)", "Percent", "Device", "Count", "Argument Shapes"
    device_metrics  device -> mapping of the same kind for the whole run
    configuration   how it was measured
    """

    calls: Sequence[Mapping[str, Json]]
    device_metrics: Mapping[str, Mapping[str, Json]]
    configuration: Mapping[str, Json] = field(default_factory=dict)

    def columns(self) -> list[str]:
        """The names of all metrics, in order of first use."""
        return list(dict.fromkeys(key for call in self.calls for key in call))

    def csv(self) -> str:
        """The calls as comma-separated values, names first."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.calls)
        return text.getvalue()

    def json(self) -> str:
        """Everything as JSON."""
        return json.dumps(
            {
                "calls": [dict(call) for call in self.calls],
                "device_metrics": {name: dict(metrics) for name, metrics in self.device_metrics.items()},
                "configuration": dict(self.configuration),
            }
        )

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """The calls as a table: the longest first, calls of one name together, sums below."""
        rows = [dict(call) for call in self.calls]
        if aggregate:
            rows = _aggregate(rows)
        if sort:
            rows.sort(key=lambda row: -row["Duration (us)"])
        total = sum(row["Duration (us)"] for row in rows)
        if col_sums:
            rows.append({"Name": "Sum", "Duration (us)": total, "Percent": sum(row["Percent"] for row in rows)})
            for device, metrics in self.device_metrics.items():
                rows.append({"Name": "Total", "Device": device, **metrics})
        return layout(self.columns(), [[_text(row.get(column, "")) for column in self.columns()] for row in rows])

    def __str__(self) -> str:
        return self.table()


def _aggregate(rows: Sequence[dict[str, object]]) -> list[JsonObject]:
    joined: dict[tuple[str, str], JsonObject] = {}
    for row in rows:
        key = str(row["Name"]), str(row.get("Argument Shapes", ""))
        if key in joined:
            for metric in ("Duration (us)", "Percent", "Count"):
                joined[key][metric] += row[metric]
        else:
            joined[key] = dict(row)
    return list(joined.values())


def _text(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def layout(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in plain text: columns as wide as their widest cell, a rule below the names."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * len(name) for name in header], *rows]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)
