"""docs/onnx.md: every operator of ONNX, how it is computed here, and what became of the onnx package's cases of it.

python -m benchmarks.conformance --json cases.json && python -m benchmarks.onnx_table cases.json > docs/onnx.md
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HEAD = """# ONNX

`autosched build model.onnx`, `autosched.build("model.onnx")` and `autosched.onnx.InferenceSession` take models of
opsets 1 to 28 as they are. Where all sizes and shapes are known, the model is compiled at once, and the artifact needs
no compiler. A model in which only dimensions of inputs (batch, sequence, height) are open is compiled once for all
sizes too, where every kernel allows that, and so is one whose course or sizes follow from data: branches (`If`), loops
that end by data, collect or grow, positions that `NonZero`, `Compress` and `NonMaxSuppression` find, counts of `TopK`,
`Tile` and `Split` that are inputs. Dimensions of the same name are equal in each call. Those without a name
are taken for different ones. Where two names meet in an element-wise operator, each may be 1 in a call.
A model that depends on more (axes and shapes that are inputs, operators that a library computes) is compiled at the
call, part by part, for the call's sizes and values, and kept
(`AUTOSCHED_SYMBOLIC_SIZES`). Where a later call comes with others, a part is compiled once more, for all of them, where
its kernels allow that; later calls compile nothing. A call that compiles takes seconds; `AUTOSCHED_STRICT` forbids it.

How an operator is computed:

- **kernel**: compiled. Dtypes are bool, integers of 8 to 64 bits, float16, bfloat16, float32 and float64;
- **definition**: ONNX defines it by other operators, which are compiled;
- **NumPy**, **onnx.reference**: a library computes it, between compiled parts; `autosched build` names the nodes. The
  same holds for other dtypes (texts, complex numbers, floats of 8 and 4 bits, integers of 4 and 2 bits) and for
  variants without a kernel. Products, convolutions, recurrent layers and softmax of these kinds are refused;
- **refused**: an error names the node and the reason.

Which is chosen depends on the node; the table names the first that is tried. Cases of random operators are compared by
shape and dtype. A bfloat16 may be two places off: the package rounds every step, kernels add up in float32. A Fourier
transform's values may be off by one place of the largest of them.
"""
TRAINING = "operators that train"


def how(domain: str, name: str, opset: int) -> str:
    """Who computes an operator first."""
    from onnx import helper

    from autosched.frontend.onnx.functions import DIVIDED, has_standard_function
    from autosched.frontend.onnx.importer import fill_tables
    from autosched.frontend.onnx.library import LIBRARY, has_library
    from autosched.frontend.onnx.registry import CONVERTERS

    fill_tables()
    key = f"{domain}.{name}" if domain else name
    if key in CONVERTERS or key in DIVIDED:
        return "kernel"
    if not domain and has_standard_function(name, opset):
        return "definition"
    node = helper.make_node(name, [], [], domain=domain)
    if key in LIBRARY:
        return "NumPy"
    return "onnx.reference" if has_library(node, opset) else "refused"


def schemas() -> dict[tuple[str, str], list[int]]:
    """The opsets in which each operator was defined, by domain and name."""
    from onnx import defs

    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        if not schema.deprecated:
            found[schema.domain, schema.name].append(schema.since_version)
    return {key: sorted(versions) for key, versions in sorted(found.items())}


def rows(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each operator."""
    from onnx import defs

    passed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    reasons: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        for name in case["operators"]:
            total[name] += 1
            passed[name] += case["status"] == "pass"
            if case["status"] != "pass":
                reasons[name].add(case["name"].removeprefix("test_"))
    lines = []
    for (domain, name), versions in schemas().items():
        key = f"{domain}.{name}" if domain else name
        way = how(domain, name, defs.onnx_opset_version())
        note = ", ".join(sorted(reasons[key])[:3])
        if way == "refused":
            note = TRAINING if "training" in domain else note
        share = f"{passed[key]} of {total[key]}" if total[key] else ""
        lines.append(f"| {key} | {', '.join(map(str, versions))} | {way} | {share} | {note} |")
    return lines


def contrib() -> tuple[list[str], list[str]]:
    """The operators of com.microsoft that kernels and libraries compute."""
    from autosched.frontend.onnx.functions import TWINS
    from autosched.frontend.onnx.importer import fill_tables
    from autosched.frontend.onnx.library import LIBRARY
    from autosched.frontend.onnx.registry import CONVERTERS

    fill_tables()
    domain = "com.microsoft."
    own, others = ([n.removeprefix(domain) for n in table if n.startswith(domain)] for table in (CONVERTERS, LIBRARY))
    return sorted((*own, *TWINS)), sorted(others)


def page(cases: Sequence[Mapping[str, Any]], version: str) -> str:
    """The document."""
    count = Counter(case["status"] for case in cases)
    counts = ", ".join(f"{count[s]} {s}" for s in ("pass", "refused", "wrong", "error") if count[s])
    parts = [HEAD, f"Of the {len(cases)} cases of onnx {version} (`make conformance`): {counts}.\n"]
    parts += ["| operator | defined in opsets | how | cases that pass | cases that do not |", "|---|---|---|---|---|"]
    parts += rows(cases)
    kernels, libraries = contrib()
    parts.append(
        "\nOperators of `com.microsoft` with kernels: " + ", ".join(kernels) + ".\n"
        "By NumPy or Python, between compiled parts: " + ", ".join(libraries) + ".\n"
        "An input, attribute or output of theirs that is not converted is refused by name.\n"
    )
    parts.append("This page is written by `python -m benchmarks.onnx_table`.")
    return "\n".join(parts)


def main() -> None:
    """Print the document for a file that `benchmarks.conformance --json` wrote."""
    import onnx

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="what `benchmarks.conformance --json` wrote")
    print(page(json.loads(parser.parse_args().cases.read_text()), onnx.__version__))


if __name__ == "__main__":
    main()
