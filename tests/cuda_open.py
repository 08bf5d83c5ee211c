"""Functions of models over open sizes, as GPUs get them: each is one kernel, whose sizes come with the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched import te, tir, topi
from autosched.te import Tensor, create_prim_func
from autosched.tir import PrimFunc
from autosched.topi.attention import attention
from autosched.topi.recurrent import recurrent
from autosched.topi.sort import argsort, cumsum, take_along

PANEL = 128  # columns of a recurrent layer's weights that lie together


def _tensor(name: str, *shape: Any, dtype: str = "float32") -> Tensor:
    sizes = [tir.const(s, "int64") if isinstance(s, int) else s for s in shape]
    return te.placeholder(sizes, dtype=dtype, name=name)


def _sizes(names: str) -> list[tir.Var]:
    return [te.var(name, dtype="int64") for name in names]


def _dense(k: int, columns: int, dtype: str) -> PrimFunc:
    batch, tokens = _sizes("bt")
    a, b = _tensor("a", batch, tokens, k, dtype=dtype), _tensor("w", k, columns, dtype=dtype)
    bias = _tensor("bias", columns, dtype=dtype)
    return create_prim_func([a, b, bias, topi.nn.relu(topi.add(topi.matmul(a, b), bias))])


def _of(shape: str, compute: Callable[[Tensor], Tensor], dtype: str = "float32") -> PrimFunc:
    """Of one tensor, "n 12 m" of which n and m are open."""
    sizes = {name: te.var(name, dtype="int64") for name in shape.split() if name.isalpha()}
    x = _tensor("x", *(sizes[s] if s in sizes else int(s) for s in shape.split()), dtype=dtype)
    return create_prim_func([x, compute(x)])


def _attention(d: int, dtype: str, queries: int | None = None, causal: str | None = None) -> PrimFunc:
    batch, n, m = _sizes("bnm")
    count = n if causal else queries or m
    q, k, v = (_tensor(name, batch, c, 12, d, dtype=dtype) for name, c in (("q", count), ("k", n), ("v", n)))
    return create_prim_func([q, k, v, attention(q, k, v, None, d**-0.5, causal)])


def _masked_attention(d: int, dtype: str) -> PrimFunc:
    batch, n, m = _sizes("bnm")
    q, k, v = (_tensor(name, batch, c, 12, d, dtype=dtype) for name, c in (("q", m), ("k", n), ("v", n)))
    mask = _tensor("mask", batch, 1, m, n, dtype=dtype)
    return create_prim_func([q, k, v, mask, attention(q, k, v, mask, d**-0.5, None)])


def _conv(channels: int, out: int, kernel: int, stride: int, dtype: str, groups: int = 1) -> PrimFunc:
    batch, height, width = _sizes("bhw")
    x = _tensor("x", batch, channels, height, width, dtype=dtype)
    w = _tensor("w", out, channels // groups, kernel, kernel, dtype=dtype)
    if groups == 1:
        made = topi.nn.conv2d(x, w, stride, kernel // 2, 1, "NCHW")
    else:
        made = topi.nn.group_conv2d_nchw(x, w, stride, kernel // 2, 1, groups)
    return create_prim_func([x, w, topi.nn.relu(made)])


def _recurrent(kind: str, hidden: int) -> PrimFunc:
    steps, batch = _sizes("sb")
    columns = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind] * hidden
    x = _tensor("x", steps, batch, columns)
    parts = [2 * hidden, hidden] if kind == "GRU" else [columns]
    weights = [_tensor(f"w{i}", -(-c // PANEL), hidden, min(PANEL, c)) for i, c in enumerate(parts)]
    start = [_tensor(f"h{i}", batch, hidden) for i in range(1 + (kind == "LSTM"))]
    functions = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}[kind]
    made = recurrent(x, weights, _tensor("bias", columns), start, kind, functions, False, False)
    return create_prim_func([x, *weights, *start, *made])


def _sort(shape: str, axis: int, dtype: str, count: int | None) -> PrimFunc:
    def sorted_values(x: Tensor) -> Tensor:
        return take_along(x, argsort(x, axis, True, "int32", count), axis)

    return _of(shape, sorted_values, dtype)


def _joined() -> PrimFunc:
    """A cache of n entries and m new ones."""
    n, m = _sizes("nm")
    x, y = _tensor("x", 2, n, 12, 64), _tensor("y", 2, m, 12, 64)
    return create_prim_func([x, y, topi.concatenate([x, y], axis=1)])


def _norm(axes: int | Sequence[int]) -> Callable[[Tensor], Tensor]:
    def made(x: Tensor) -> Tensor:
        total = topi.sum(topi.multiply(x, x), axes, True)
        return topi.divide(x, topi.sqrt(topi.add(total, tir.const(1.0, x.dtype))))

    return made


def _pool(x: Tensor) -> Tensor:
    return topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")


OPEN_CASES: dict[str, Callable[[], PrimFunc]] = {
    "open: dense 768-3072": lambda: _dense(768, 3072, "float32"),
    "open: dense 768-3072 float16": lambda: _dense(768, 3072, "float16"),
    "open: dense 777-1001": lambda: _dense(777, 1001, "float32"),
    "open: dense 777-1001 float16": lambda: _dense(777, 1001, "float16"),
    "open: attention d64": lambda: _attention(64, "float32"),
    "open: attention d128 causal": lambda: _attention(128, "float32", causal="TopLeft"),
    "open: attention d64 with a mask": lambda: _masked_attention(64, "float32"),
    "open: attention d64 with a mask float16": lambda: _masked_attention(64, "float16"),
    "open: attention d64 float16": lambda: _attention(64, "float16"),
    "open: attention d40 bfloat16 causal": lambda: _attention(40, "bfloat16", causal="TopLeft"),
    "open: attention d64 float16 causal": lambda: _attention(64, "float16", causal="TopLeft"),
    "open: attention d80 with a mask float16": lambda: _masked_attention(80, "float16"),
    "open: attention d128 with a mask bfloat16": lambda: _masked_attention(128, "bfloat16"),
    "open: attention d128 float16 causal": lambda: _attention(128, "float16", causal="TopLeft"),
    "open: attention d192 float16": lambda: _attention(192, "float16"),
    "open: attention of 16 queries d64 float16": lambda: _attention(64, "float16", 16),
    "open: attention of 20 queries d128 float16": lambda: _attention(128, "float16", 20),
    "open: attention of 77 queries d40 float16": lambda: _attention(40, "float16", 77),
    "open: attention of 1 query d128 float16": lambda: _attention(128, "float16", 1),
    "open: attention of 4 queries d64": lambda: _attention(64, "float32", 4),
    "open: softmax": lambda: _of("b 12 n m", lambda x: topi.nn.softmax(x, -1)),
    "open: softmax float16": lambda: _of("b 12 n m", lambda x: topi.nn.softmax(x, -1), "float16"),
    "open: norm of 768": lambda: _of("b n 768", _norm(-1)),
    "open: norm of a channel's pixels": lambda: _of("b 32 h w", _norm((2, 3))),
    "open: mean of pixels": lambda: _of("b 512 h w", lambda x: topi.mean(x, (2, 3))),
    "open: largest of rows": lambda: _of("n m", lambda x: topi.argmax(x, 1)),
    "open: conv 3x3 64-64": lambda: _conv(64, 64, 3, 1, "float32"),
    "open: conv 3x3 64-64 float16": lambda: _conv(64, 64, 3, 1, "float16"),
    "open: conv 3x3 s2 3-32": lambda: _conv(3, 32, 3, 2, "float32"),
    "open: conv 1x1 64-256 float16": lambda: _conv(64, 256, 1, 1, "float16"),
    "open: conv 3x3 128-256 bfloat16": lambda: _conv(128, 256, 3, 1, "bfloat16"),
    "open: conv dw 5x5 48": lambda: _conv(48, 48, 5, 1, "float32", 48),
    "open: pool": lambda: _of("b 64 h w", _pool),
    "open: cumsum": lambda: _of("b n", lambda x: cumsum(x, 1, False)),
    "open: cumsum across bfloat16": lambda: _of("n m", lambda x: cumsum(x, 0, True), "bfloat16"),
    "open: cumsum int64": lambda: _of("n", lambda x: cumsum(x, 0, False), "int64"),
    "open: sort": lambda: _sort("b n", 1, "float32", None),
    "open: sort across int64": lambda: _sort("n 80", 0, "int64", None),
    "open: topk 100 of rows of 80 n": lambda: _sort("b n", 1, "float16", 100),
    "open: joined": _joined,
    "open: turned": lambda: _of("b n 12 64", lambda x: topi.transpose(x, (0, 2, 1, 3))),
    "open: gelu": lambda: _of("b n 3072", topi.gelu),
    "open: LSTM of 256": lambda: _recurrent("LSTM", 256),
    "open: GRU of 100": lambda: _recurrent("GRU", 100),
    "open: RNN of 32": lambda: _recurrent("RNN", 32),
}
