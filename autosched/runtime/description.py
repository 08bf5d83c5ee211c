"""What a built model is made of, as plain data: what `autosched inspect` and notebooks show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from autosched.printable import html_table
from autosched.runtime.graph_executor import Model
from autosched.runtime.kernel import Kernel

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject


class Built(Model, Protocol):
    """A built model: an `Executable`."""

    @property
    def variant(self) -> str: ...
    @property
    def variants(self) -> tuple[str, ...]: ...


def kernel_rows(executable: Built) -> list[JsonObject]:
    """What is known of each kernel, in the order in which the graph first calls them."""
    report = {str(row["kernel"]): row for row in executable.manifest.get("report", ())}
    rows: dict[str, JsonObject] = {}
    for node in executable.graph.nodes:
        if node.kernel not in executable.kernels:
            continue
        kernel, known = executable.kernels[node.kernel], report.get(node.kernel, {})
        config = _config(kernel)
        row = rows.setdefault(
            node.kernel,
            {
                "kernel": node.kernel,
                "calls": 0,
                "computes": [],
                "template": config.get("template"),
                "knobs": config.get("knobs", {}),
                **{key: known.get(key) for key in ("origin", "trust", "workload")},
                "code_bytes": len(kernel.code),
            },
        )
        row["calls"] += 1
        row["computes"] += [name for name in node.origin.split(", ") if name and name not in row["computes"]]
    return list(rows.values())


def facts(executable: Built) -> JsonObject:
    """What is known of the model as a whole; sizes in bytes."""
    graph, manifest = executable.graph, executable.manifest
    return {
        "target": str(manifest.get("target", "")),
        "variant": executable.variant,
        "variants": list(executable.variants),
        "autosched": manifest.get("autosched"),
        "inputs": [{"name": v.name, "shape": list(v.shape), "dtype": v.dtype} for v in executable.inputs],
        "outputs": [{"name": v.name, "shape": list(v.shape), "dtype": v.dtype} for v in executable.outputs],
        "weights_bytes": sum(constant.nbytes for constant in executable.constants),
        "arena_bytes": graph.arena_bytes,
        "code_bytes": sum(len(kernel.code) for kernel in executable.kernels.values()),
        "calls": sum(node.kernel in executable.kernels for node in graph.nodes),
    }


def to_html(executable: Built) -> str:
    """Inputs, outputs, memory and kernels as tables."""
    known = facts(executable)
    values = [
        {kind: value["name"], "dtype": value["dtype"], "shape": " × ".join(map(str, value["shape"]))}
        for kind in ("input", "output")
        for value in known[f"{kind}s"]
    ]
    sizes = {part: f"{known[f'{part}_bytes'] / 2**20:.3g} MiB" for part in ("weights", "arena", "code")}
    rows = [
        {
            **{key: row[key] for key in ("kernel", "calls", "template")},
            "computes": ", ".join(row["computes"]),
            "configuration from": row["origin"],
            "trust": row["trust"],
            "configuration": " ".join(f"{name}={value}" for name, value in row["knobs"].items()),
        }
        for row in kernel_rows(executable)
    ]
    inputs = [row for row in values if "input" in row]
    outputs = [row for row in values if "output" in row]
    return "".join(html_table(part) for part in (inputs, outputs, [sizes], rows) if part)


def _config(kernel: Kernel) -> Mapping[str, Json]:
    found = json.loads(kernel.config) if kernel.config else {}
    return found if isinstance(found, dict) else {}
