"""A walk through the compiler with one vector addition: from tensor expression to machine code, each stage printed.

python -m examples.walkthrough
"""

from __future__ import annotations

import numpy as np

import autosched
from autosched import te


def show(title: str, *things: object) -> None:
    print(f"\n== {title} ==")
    for thing in things:
        print(thing)


def main() -> None:
    n = 1024
    a = te.placeholder((n,), name="A")
    b = te.placeholder((n,), name="B")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    show("tensor expression", f"A is made by a {type(a.op).__name__}, C by a {type(c.op).__name__}", c.op.axis, c)

    s = te.create_schedule(c.op)
    show("schedule: a stage per operation", *s.stages)
    show("lowered: plain loops", autosched.lower(s, [a, b, c], simple_mode=True))

    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    show("the stage after split, parallel, vectorize", s[c])
    show("lowered again", autosched.lower(s, [a, b, c], simple_mode=True))

    target = "llvm"
    fadd = autosched.build(s, [a, b, c], target, name="myadd")
    show("built", fadd, fadd.entry_func.signature)
    show("the kernel that was generated", fadd.get_source())

    dev = autosched.device(target, 0)
    x = autosched.nd.array(np.random.default_rng(0).random(n, dtype=np.float32), dev)
    y = autosched.nd.array(np.random.default_rng(1).random(n, dtype=np.float32), dev)
    out = autosched.nd.array(np.zeros(n, dtype=np.float32), dev)
    fadd(x, y, out)
    difference = float(np.abs(out.numpy() - (x.numpy() + y.numpy())).max())
    show("called", f"on {dev}: largest difference from NumPy: {difference:.1e}")
    timed = fadd.time_evaluator("myadd", dev, number=100, repeat=3)(x, y, out)
    show("timed", timed)


if __name__ == "__main__":
    main()
