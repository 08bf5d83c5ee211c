"""What a built model is made of, as plain data: what `autosched inspect` and notebooks show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from autosched.printable import html_table
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.graph import Node
from autosched.runtime.graph_executor import Model
from autosched.runtime.graph_form import GraphForm
from autosched.runtime.kernel import Kernel

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject


class Built(Model, Protocol):
    """A built model: an `Executable`."""

    @property
    def variant(self) -> str: ...
    @property
    def variants(self) -> tuple[str, ...]: ...


@runtime_checkable
class BuiltForSizes(Protocol):
    """A built model whose sizes are known when it is called: a `DynamicExecutable`."""

    kernels: dict[str, Kernel]
    forms: dict[str, tuple[str, ...]]
    form: GraphForm
    constants: tuple[np.ndarray, ...]
    manifest: dict[str, Json]
    variant: str
    variants: tuple[str, ...]


def kernel_rows(executable: Built | BuiltForSizes) -> list[JsonObject]:
    """What is known of each kernel, in the order in which the graph first calls them.

    A batch of any size calls a kernel for each size of its blocks, the largest first.
    """
    report = {str(row["kernel"]): row for row in executable.manifest.get("report", ())}
    rows: dict[str, JsonObject] = {}
    for node, name in _calls(executable):
        kernel, known = executable.kernels[name], report.get(name, report.get(node.kernel, {}))
        config = _config(kernel)
        row = rows.setdefault(
            name,
            {
                "kernel": name,
                "calls": 0,
                "computes": [],
                "template": config.get("template"),
                "knobs": config.get("knobs", {}),
                **{key: known.get(key) for key in ("origin", "trust", "workload")},
                "code_bytes": len(kernel.code),
                **_resources(kernel),
            },
        )
        row["calls"] += 1
        row["computes"] += [name for name in node.origin.split(", ") if name and name not in row["computes"]]
    return list(rows.values())


def _resources(kernel: Kernel) -> JsonObject:
    """What a GPU's kernel has code for, and what it takes of the device: of its launches the one that takes most."""
    if not isinstance(kernel, CudaKernel):
        return {}
    used = kernel.resources
    names = ("registers", "shared_bytes", "stack_bytes", "spill_bytes", "occupancy")
    return {"images": list(kernel.archs), "launches": len(kernel.launches), **{n: getattr(used, n) for n in names}}


def _calls(executable: Built | BuiltForSizes) -> Iterator[tuple[Node, str]]:
    """Each node with the kernels that it calls."""
    if isinstance(executable, BuiltForSizes):
        for node in executable.form.nodes:
            names: Sequence[str] = executable.forms.get(node.kernel, (node.kernel,))
            yield from ((node, name) for name in names if name in executable.kernels)
    else:
        yield from ((node, node.kernel) for node in executable.graph.nodes if node.kernel in executable.kernels)


def facts(executable: Built | BuiltForSizes) -> JsonObject:
    """What is known of the model as a whole; sizes in bytes. Of one for all sizes, what depends on them is None."""
    manifest = executable.manifest
    known: JsonObject = {
        "target": str(manifest.get("target", "")),
        "autosched": manifest.get("autosched"),
        "variant": executable.variant,
        "variants": list(executable.variants),
        "weights_bytes": sum(constant.nbytes for constant in executable.constants),
        "code_bytes": sum(len(kernel.code) for kernel in executable.kernels.values()),
    }
    if isinstance(executable, BuiltForSizes):
        form = executable.form
        for kind, numbers in (("inputs", form.inputs), ("outputs", form.outputs)):
            known[kind] = [
                {"name": form.values[n].name, "shape": form.shape_words(n), "dtype": form.values[n].dtype}
                for n in numbers
            ]
        sizes = [{"name": size.name, "low": size.low, "high": size.high} for size in form.sizes]
        nodes = sum(node.kernel in executable.kernels or node.kernel in executable.forms for node in form.nodes)
        return {**known, "arena_bytes": None, "calls": nodes, "sizes": sizes}
    for kind, values in (("inputs", executable.inputs), ("outputs", executable.outputs)):
        known[kind] = [{"name": v.name, "shape": list(v.shape), "dtype": v.dtype} for v in values]
    graph = executable.graph
    calls = sum(node.kernel in executable.kernels for node in graph.nodes)
    known |= {"arena_bytes": graph.arena_bytes, "calls": calls}
    beside = sum(node.branch > 0 and node.kernel in executable.kernels for node in graph.nodes)
    return {**known, "calls_side_by_side": beside} if beside else known


def to_html(executable: Built | BuiltForSizes) -> str:
    """Inputs, outputs, memory and kernels as tables."""
    known = facts(executable)
    values = [
        {kind: value["name"], "dtype": value["dtype"], "shape": " × ".join(map(str, value["shape"]))}
        for kind in ("input", "output")
        for value in known[f"{kind}s"]
    ]
    parts = [part for part in ("weights", "arena", "code") if known[f"{part}_bytes"] is not None]
    sizes = {part: f"{known[f'{part}_bytes'] / 2**20:.3g} MiB" for part in parts}
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
