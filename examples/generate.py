"""A small decoder as users run one: PyTorch exports the step with its cache, autosched builds it, text comes out.

python -m examples.generate --style llama --width 512 --layers 4

Weights are random: what it shows is the way, and tokens per second of one thread in float32, bfloat16 and with weights
of 8 and 4 bits. ONNX Runtime and llama.cpp stand beside them in the same types where they are installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import autosched
from autosched.frontend.torch import from_exported_program
from autosched.ir import IRModule
from autosched.relax.transform import FoldConstant, PackWeights
from examples.decoder import STYLES, Decoder, Generator, Shape, Step, Writes, example
from examples.generate_peers import PEERS, NotOfferedError

KINDS = ("float32", "bf16", "int8", "int4")


def step_module(decoder: Decoder, steps: int) -> IRModule:
    """A step over so many words."""
    with torch.no_grad():
        program = torch.export.export(decoder.eval(), example(decoder.shape, steps))
    return FoldConstant()(from_exported_program(program, unwrap_unit_return_tuple=True))


def build_step(module: IRModule, kind: str) -> Step:
    """A step, compiled with weights of a kind."""
    if kind.startswith("int"):
        module = PackWeights(bits=int(kind[3:]), block=32)(module)
    built = autosched.build(module, threads=1, precision="bf16" if kind == "bf16" else None)
    return lambda *inputs: tuple(x.numpy() for x in built(*inputs))  # type: ignore[return-value]


def main(words: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m examples.generate", description="Run a small decoder.")
    parser.add_argument("--style", choices=STYLES, default="llama", help="(%(default)s)")
    for name, value in (("width", 512), ("heads", 8), ("layers", 4), ("words", 4096), ("prompt", 16), ("count", 32)):
        parser.add_argument(f"--{name}", type=int, default=value, help="(%(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="(all)")
    parser.add_argument("--alone", action="store_true", help="leave ONNX Runtime and llama.cpp out")
    given = parser.parse_args(words)
    shape = Shape(
        given.style, given.width, given.heads, given.layers, given.words, capacity=given.prompt + given.count
    )  # fmt: skip
    torch.manual_seed(0)
    decoder = Decoder(shape)
    text = np.random.default_rng(0).integers(0, shape.words, given.prompt).tolist()
    modules = [step_module(decoder, n) for n in (given.prompt, 1)]
    makers: dict[str, Callable[[], Writes]] = {
        kind: lambda kind=kind: Generator(shape, *(build_step(module, kind) for module in modules)).run
        for kind in given.kinds
    }
    if not given.alone:
        for kind in given.kinds:
            makers |= {f"{peer} {kind}": lambda make=make, kind=kind: make(decoder, given.prompt, kind)
                       for peer, make in PEERS.items()}  # fmt: skip
    first: list[int] = []
    results: dict[str, Any] = {}
    for name, make in makers.items():
        try:
            run = make()
        except (ImportError, NotOfferedError) as error:
            print(f"{name:20} left out: {error}")
            continue
        run(text, min(4, given.count))
        found, prompt_s, words_s = run(text, given.count)
        first = first or found
        same = sum(a == b for a, b in zip(first, found, strict=True))
        print(
            f"{name:20} prompt {given.prompt / prompt_s:6.0f} tokens/s, then {(given.count - 1) / words_s:6.0f}; "
            f"{same} of {given.count} words as in the first line"
        )
        results[name] = found
    return results


if __name__ == "__main__":
    main()
