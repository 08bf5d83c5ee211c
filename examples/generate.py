"""A small decoder as users run one: PyTorch exports the step with its cache, autosched builds it, text comes out.

python -m examples.generate --style llama --width 512 --layers 4

Weights are random: what it shows is the way, and tokens per second of one thread in float32, bfloat16 and with weights
of 8 and 4 bits, ONNX Runtime's float32 beside them where it is installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import autosched
from autosched.frontend.torch import from_exported_program
from autosched.relax.transform import FoldConstant, PackWeights

STYLES = ("gpt2", "llama")
KINDS = ("float32", "bf16", "int8", "int4")
HIDDEN = -1e9
Step = Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder; `capacity` is how many positions its cache has."""

    style: str = "llama"
    width: int = 512
    heads: int = 8
    layers: int = 4
    words: int = 4096
    capacity: int = 128

    @property
    def head(self) -> int:
        return self.width // self.heads


class Layer(nn.Module):
    """Attention over the cache and the new positions, then two or three products."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape, width = shape, shape.width
        is_llama = shape.style == "llama"
        norm = nn.RMSNorm if is_llama else nn.LayerNorm
        self.before, self.between = norm(width), norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, not is_llama), nn.Linear(width, width, not is_llama)
        self.gate = nn.Linear(width, 4 * width, False) if is_llama else None
        self.up, self.down = nn.Linear(width, 4 * width, not is_llama), nn.Linear(4 * width, width, not is_llama)

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor] | None, mask: torch.Tensor,
        keys: torch.Tensor, values: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        steps, shape = x.shape[0], self.shape
        q, k, v = (
            part.reshape(steps, shape.heads, shape.head).transpose(0, 1)
            for part in self.qkv(self.before(x)).split(shape.width, dim=1)
        )
        if angles is not None:
            q, k = turned(q, *angles), turned(k, *angles)
        scores = q @ torch.cat([keys, k], 1).transpose(1, 2) / shape.head**0.5 + mask
        mixed = torch.softmax(scores, -1) @ torch.cat([values, v], 1)
        x = x + self.out(mixed.transpose(0, 1).reshape(steps, shape.width))
        inner = self.up(self.between(x))
        inner = (
            nn.functional.gelu(inner) if self.gate is None else inner * nn.functional.silu(self.gate(self.between(x)))
        )
        return x + self.down(inner), k, v


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Pairs of a head's elements turned by the angles of their position."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Decoder(nn.Module):
    """Scores of the last word, keys and values of the new positions.

    words, places [T]; mask [T, capacity + T]; keys, values [layers, heads, capacity, head]
    returns [words], [layers, heads, T, head] twice
    """

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.words, shape.width)
        self.places = nn.Embedding(shape.capacity, shape.width) if shape.style == "gpt2" else None
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width) if shape.style == "llama" else nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.words, bias=False)
        steps = torch.outer(torch.arange(shape.capacity), 10000.0 ** (-torch.arange(0, shape.head, 2) / shape.head))
        self.register_buffer("cos", torch.cos(steps))
        self.register_buffer("sin", torch.sin(steps))

    def forward(
        self, words: torch.Tensor, places: torch.Tensor, mask: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, angles = self.embed(words), None
        if self.places is not None:
            x = x + self.places(places)
        else:
            angles = (self.cos[places], self.sin[places])  # type: ignore[index]
        new_keys, new_values = [], []
        for layer, k, v in zip(self.layers, keys, values, strict=True):
            x, k, v = layer(x, angles, mask, k, v)
            new_keys.append(k)
            new_values.append(v)
        return self.head(self.norm(x[-1:]))[0], torch.stack(new_keys), torch.stack(new_values)


def example(shape: Shape, steps: int) -> tuple[torch.Tensor, ...]:
    """Inputs of a step over so many words, each an array of its own: the exporter takes equal objects for one input."""
    cache = torch.zeros(shape.layers, shape.heads, shape.capacity, shape.head)
    ids = torch.arange(steps)
    return ids, ids.clone(), torch.zeros(steps, shape.capacity + steps), cache, cache.clone()


def build_step(decoder: Decoder, steps: int, kind: str) -> Step:
    """A step over so many words, compiled with weights of a kind."""
    with torch.no_grad():
        program = torch.export.export(decoder.eval(), example(decoder.shape, steps))
    module = FoldConstant()(from_exported_program(program, unwrap_unit_return_tuple=True))
    if kind.startswith("int"):
        module = PackWeights(bits=int(kind[3:]), block=32)(module)
    built = autosched.build(module, threads=1, precision="bf16" if kind == "bf16" else None)
    return lambda *inputs: tuple(x.numpy() for x in built(*inputs))  # type: ignore[return-value]


def onnx_step(decoder: Decoder, steps: int) -> Step:
    """The same step in ONNX Runtime. Raises ImportError where it, or the exporter, is not installed."""
    import io

    import onnxruntime
    import onnxscript  # noqa: F401

    file = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(decoder.eval(), example(decoder.shape, steps), dynamo=True, verbose=False).save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), options)
    names = [i.name for i in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=False)))  # type: ignore[return-value]


class Generator:
    """Writes text: the prompt in one step, then word by word, each from what the cache holds of those before."""

    def __init__(self, shape: Shape, prompt: Step, word: Step):
        self.shape, self.prompt, self.word = shape, prompt, word

    def run(self, words: list[int], count: int) -> tuple[list[int], float, float]:
        """(the words that follow, seconds for the prompt, seconds for all words after the first)"""
        shape = self.shape
        keys = np.zeros((shape.layers, shape.heads, shape.capacity, shape.head), np.float32)
        cache, used, found = (keys, keys.copy()), 0, []
        spent = [0.0, 0.0]
        for turn in range(count):
            step, new = (self.prompt, words) if turn == 0 else (self.word, found[-1:])
            start = time.perf_counter()
            scores, *parts = step(*self.inputs(new, used), *cache)
            for whole, part in zip(cache, parts, strict=True):
                whole[:, :, used : used + len(new)] = part
            used += len(new)
            found.append(int(scores.argmax()))
            spent[turn > 0] += time.perf_counter() - start
        return found, spent[0], spent[1]

    def inputs(self, new: list[int], used: int) -> tuple[np.ndarray, ...]:
        """Words, positions, and a mask: of the cache what is filled, of the new words those before."""
        mask = np.full((len(new), self.shape.capacity + len(new)), HIDDEN, np.float32)
        mask[:, :used] = 0
        mask[:, self.shape.capacity :] = np.triu(np.full((len(new), len(new)), HIDDEN, np.float32), 1)
        return np.array(new, np.int64), np.arange(used, used + len(new)), mask


def main(words: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m examples.generate", description="Run a small decoder.")
    parser.add_argument("--style", choices=STYLES, default="llama", help="(%(default)s)")
    for name, value in (("width", 512), ("heads", 8), ("layers", 4), ("words", 4096), ("prompt", 16), ("count", 32)):
        parser.add_argument(f"--{name}", type=int, default=value, help="(%(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="(all)")
    parser.add_argument("--alone", action="store_true", help="leave ONNX Runtime out")
    given = parser.parse_args(words)
    shape = Shape(
        given.style, given.width, given.heads, given.layers, given.words, capacity=given.prompt + given.count
    )  # fmt: skip
    torch.manual_seed(0)
    decoder = Decoder(shape)
    text = np.random.default_rng(0).integers(0, shape.words, given.prompt).tolist()
    makers: dict[str, Callable[[int], Step]] = {
        kind: lambda steps, kind=kind: build_step(decoder, steps, kind) for kind in given.kinds
    }
    if not given.alone:
        makers["onnxruntime float32"] = lambda steps: onnx_step(decoder, steps)
    first: list[int] = []
    results: dict[str, Any] = {}
    for name, make in makers.items():
        try:
            generator = Generator(shape, make(given.prompt), make(1))
        except ImportError as error:
            print(f"{name:20} left out: {error}")
            continue
        generator.run(text, min(4, given.count))
        found, prompt_s, words_s = generator.run(text, given.count)
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
