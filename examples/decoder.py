"""A small decoder with a cache in PyTorch, and what writes text with a step of it that somebody has compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

STYLES = ("gpt2", "llama")
HIDDEN = -1e9
Step = Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]
Writes = Callable[[list[int], int], tuple[list[int], float, float]]


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
