"""The rewriting rules of `Analyzer.rewrite_simplify`, as texts: `pattern -> result`, and a condition behind `if`.

x, y, z and w stand for any integer expression, p, q and r for any condition, c1 to c3 for constants; `div` and `mod`
round to zero. `=>` in place of `->` says that rules apply to the result again. Conditions are Python over the
constants; `nonneg(x)`, `within(y, c)` (0 <= y < c) and `equal(x, y)` ask for a proof.
"""

from __future__ import annotations

ADD = """
x - y + y -> x
x + (y - x) -> y
(x - y) + (y - z) -> x - z
(x - y) + (z - x) -> z - y
min(x, y - z) + z -> min(x + z, y)
min(x - z, y) + z -> min(x, y + z)
max(x, y - z) + z -> max(x + z, y)
max(x - z, y) + z -> max(x, y + z)
max(x, y) + min(x, y) -> x + y
min(x, y) + max(x, y) -> x + y
max(x, y) + min(y, x) -> x + y
min(x, y) + max(y, x) -> x + y
min(x, y + c1) + c2 -> min(x + c2, y) if c1 == -c2
min(x + c1, y) + c2 -> min(x, y + c2) if c1 == -c2
max(x, y + c1) + c2 -> max(x + c2, y) if c1 == -c2
max(x + c1, y) + c2 -> max(x, y + c2) if c1 == -c2
x + c1 + c2 -> x + (c1 + c2)
x + x -> x * 2
x * y + x -> x * (y + 1)
y * x + x -> x * (y + 1)
x + y * x -> x * (1 + y)
x + x * y -> x * (1 + y)
y * x + z * x -> (y + z) * x
x * y + x * z -> (y + z) * x
y * x + x * z -> (y + z) * x
x * y + z * x -> (y + z) * x
div(x, y) * y + mod(x, y) -> x
x // y * y + x % y -> x
y * (x // y) + x % y -> x
x % y + x // y * y -> x
x % y + y * (x // y) -> x
(x % c1 + c2) // c1 + x // c1 -> (x + c2) // c1 if c1 > 0
x // c1 + (x % c1 + c2) // c1 -> (x + c2) // c1 if c1 > 0
x + (c1 - y) => (x - y) + c1
x + c1 + y => x + y + c1
x + (y + c1) => x + y + c1
x + (c1 + y) => x + y + c1
x + max(y, z) => max(y, z) + x
x + min(y, z) => min(y, z) + x
x % c1 + y * c1 => y * c1 + x % c1
select(p, x, y) + select(p, z, w) -> select(p, x + z, y + w)
"""

SUB = """
x - x -> 0
(x + y) - y -> x
(x + y) - x -> y
x - (y + x) -> 0 - y
x - (x + y) -> 0 - y
x - (x - y) -> y
(x - y) - x -> 0 - y
min(x, y) - x -> min(0, y - x)
min(x, y) - y -> min(x - y, 0)
max(x, y) - x -> max(0, y - x)
max(x, y) - y -> max(x - y, 0)
x - max(x, y) -> min(0, x - y)
y - max(x, y) -> min(y - x, 0)
x - min(x, y) -> max(0, x - y)
y - min(x, y) -> max(y - x, 0)
x * y - x -> x * (y - 1)
y * x - x -> x * (y - 1)
x - y * x -> x * (1 - y)
x - x * y -> x * (1 - y)
y * x - z * x -> (y - z) * x
x * y - x * z -> (y - z) * x
y * x - x * z -> (y - z) * x
x * y - z * x -> (y - z) * x
(x + c1) - c2 -> x + (c1 - c2)
(c1 - x) - (c2 - y) -> (y - x) + (c1 - c2)
(c1 - x) - c2 -> (c1 - c2) - x
c1 - (x + c2) -> (c1 - c2) - x
(x + y) - (x + z) -> y - z
(x + y) - (z + x) -> y - z
(y + x) - (z + x) -> y - z
(y + x) - (x + z) -> y - z
min(x + y, z) - x -> min(y, z - x)
min(y + x, z) - x -> min(y, z - x)
min(z, x + y) - x -> min(z - x, y)
min(z, y + x) - x -> min(z - x, y)
max(x + y, z) - x -> max(y, z - x)
max(y + x, z) - x -> max(y, z - x)
max(z, x + y) - x -> max(z - x, y)
max(z, y + x) - x -> max(z - x, y)
x - min(x + y, z) -> max(0 - y, x - z)
x - min(y + x, z) -> max(0 - y, x - z)
x - min(z, x + y) -> max(x - z, 0 - y)
x - min(z, y + x) -> max(x - z, 0 - y)
x - max(x + y, y) -> min(0, x) - y
x - max(x + y, z) -> min(0 - y, x - z)
x - max(y + x, z) -> min(0 - y, x - z)
x - max(z, x + y) -> min(x - z, 0 - y)
x - max(z, y + x) -> min(x - z, 0 - y)
min(x, y) - min(y, x) -> 0
max(x, y) - max(y, x) -> 0
min(x, y) - min(z, w) -> x - z if equal(x - z, y - w)
min(x, y) - min(z, w) -> x - w if equal(x - w, y - z)
max(x, y) - max(z, w) -> x - z if equal(x - z, y - w)
max(x, y) - max(z, w) -> x - w if equal(x - w, y - z)
x - div(x, c1) * c1 -> mod(x, c1) if c1 != 0
div(x, c1) * c1 - x -> 0 - mod(x, c1) if c1 != 0
x - div(x + y, c1) * c1 -> mod(x + y, c1) - y if c1 != 0
div(x + y, c1) * c1 - x -> y - mod(x + y, c1) if c1 != 0
x - div(x - y, c1) * c1 -> mod(x - y, c1) + y if c1 != 0
div(x - y, c1) * c1 - x -> 0 - mod(x - y, c1) - y if c1 != 0
x * c2 - div(x, c1) * c3 -> mod(x, c1) * c2 if c1 != 0 and c3 == c1 * c2
div(x, c1) * c3 - x * c2 -> 0 - mod(x, c1) * c2 if c1 != 0 and c3 == c1 * c2
x - x // c1 * c1 -> x % c1 if c1 != 0
x // c1 * c1 - x -> 0 - x % c1 if c1 != 0
x - (x + y) // c1 * c1 -> (x + y) % c1 - y if c1 != 0
(x + y) // c1 * c1 - x -> y - (x + y) % c1 if c1 != 0
x - (x - y) // c1 * c1 -> (x - y) % c1 + y if c1 != 0
(x - y) // c1 * c1 - x -> 0 - (x - y) % c1 - y if c1 != 0
x * c2 - x // c1 * c3 -> x % c1 * c2 if c1 != 0 and c3 == c1 * c2
x // c1 * c3 - x * c2 -> 0 - x % c1 * c2 if c1 != 0 and c3 == c1 * c2
(x + c1) // c3 - (x + c2) // c3 -> ((x + c2 % c3) % c3 + (c1 - c2)) // c3 if c3 > 0
(x + c1) // c3 - x // c3 -> (x % c3 + c1) // c3 if c3 > 0
(x + c1) - x // c2 * c2 -> x % c2 + c1 if c2 != 0
x - c1 => x + -c1
(x + c1) - y => (x - y) + c1
x - (y - z) => (x + z) - y
x - y * c1 => x + y * -c1 if c1 < 0
x - (y + c1) => (x - y) + -c1
select(p, x, y) - select(p, z, w) -> select(p, x - z, y - w)
select(p, x, y) - y -> select(p, x - y, 0)
select(p, x, y) - x -> select(p, 0, y - x)
"""

MUL = """
x * c1 * c2 -> x * (c1 * c2)
(x + c1) * c2 -> x * c2 + c1 * c2
min(x, y) * max(x, y) -> x * y
max(x, y) * min(x, y) -> x * y
min(x, y) * max(y, x) -> x * y
max(x, y) * min(y, x) -> x * y
x * (y * c1) => x * y * c1
(x * c1) * y => x * y * c1
(x - y) * c1 => (y - x) * -c1 if c1 < 0
"""

DIV = """
div(div(x, c1), c2) -> div(x, c1 * c2) if c1 > 0 and c2 > 0
div(div(x, c1) + c2, c3) -> div(x + c1 * c2, c1 * c3) if c1 > 0 and c2 >= 0 and c3 > 0 and nonneg(x)
div(x * c1, c2) -> x * (c1 // c2) if c1 > 0 and c2 > 0 and c1 % c2 == 0
div(x * c1, c2) -> div(x, c2 // c1) if c1 > 0 and c2 > 0 and c2 % c1 == 0
div(x * c1 + y, c2) -> x * (c1 // c2) + div(y, c2) if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y)
div(y + x * c1, c2) -> div(y, c2) + x * (c1 // c2) if c1 >= 0 and c2 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y)
div(x + c1, c2) -> div(x, c2) + c1 // c2 if c1 > 0 and c2 > 0 and c1 % c2 == 0 and nonneg(x)
div(min(x * c1, y), c2) -> min(x * (c1 // c2), div(y, c2)) if c2 > 0 and c1 > 0 == c1 % c2 and nonneg(x) and nonneg(y)
div(max(x * c1, y), c2) -> max(x * (c1 // c2), div(y, c2)) if c2 > 0 and c1 > 0 == c1 % c2 and nonneg(x) and nonneg(y)
"""

MOD = """
mod(x * c1, c2) -> 0 if c2 != 0 and c1 % c2 == 0
mod(x * c1 + y, c2) -> mod(y, c2) if c2 > 0 and c1 % c2 == 0 and nonneg(x * c1) and nonneg(y)
mod(x + c1, c2) -> mod(x, c2) if c2 > 0 and c1 >= 0 and c1 % c2 == 0 and nonneg(x)
mod(x + y * c1, c2) -> mod(x, c2) if c2 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y * c1)
"""

FLOORDIV = """
x // c1 // c2 -> x // (c1 * c2) if c1 > 0 and c2 > 0
(x // c1 + c2) // c3 -> (x + c1 * c2) // (c1 * c3) if c1 > 0 and c3 > 0
(x * c1) // c2 -> x * (c1 // c2) if c2 != 0 and c1 % c2 == 0
(x * c1) // c2 -> x // (c2 // c1) if c1 > 0 and c2 > 0 and c2 % c1 == 0
(x * c1 + y) // c2 -> x * (c1 // c2) if c2 > 0 and c1 % c2 == 0 and within(y, c2)
(y + x * c1) // c2 -> x * (c1 // c2) if c2 > 0 and c1 % c2 == 0 and within(y, c2)
(x * c1 + y) // c2 -> 0 if c1 > 0 and c2 > 0 and c2 % c1 == 0 and within(y, c1) and within(x, c2 // c1)
(x * c1 + y) // c2 -> x * (c1 // c2) + y // c2 if c2 > 0 and c1 % c2 == 0
(x * c1 + y) // c2 -> x // (c2 // c1) if c1 > 0 and c2 > 0 and c2 % c1 == 0 and within(y, c1)
(y + x * c1) // c2 -> x * (c1 // c2) + y // c2 if c2 > 0 and c1 % c2 == 0
(x * c1 + y + z) // c2 -> x * (c1 // c2) + (y + z) // c2 if c2 > 0 and c1 % c2 == 0
(x * c1 - y + z) // c2 -> x * (c1 // c2) + (z - y) // c2 if c2 > 0 and c1 % c2 == 0
(x * c1 + y - z) // c2 -> x * (c1 // c2) + (y - z) // c2 if c2 > 0 and c1 % c2 == 0
(y + x * c1 + z) // c2 => x * (c1 // c2) + (y + z) // c2 if c2 > 0 and c1 % c2 == 0
(x * c1 + y) // c2 => (x + y // c1) // (c2 // c1) if c2 > c1 > 0 == c2 % c1 and constant(y // c1)
(x + c1) // c2 -> x // c2 + c1 // c2 if c2 > 0 and c1 % c2 == 0
(x % 2 + 1) // 2 -> x % 2
min(x * c1, y) // c2 -> min(x * (c1 // c2), y // c2) if c2 > 0 and c1 % c2 == 0
max(x * c1, y) // c2 -> max(x * (c1 // c2), y // c2) if c2 > 0 and c1 % c2 == 0
min(y, x * c1) // c2 -> min(y // c2, x * (c1 // c2)) if c2 > 0 and c1 % c2 == 0
max(y, x * c1) // c2 -> max(y // c2, x * (c1 // c2)) if c2 > 0 and c1 % c2 == 0
"""

FLOORMOD = """
(x * c1) % c2 => x * (c1 % c2) % c2 if c2 > 0 and not 0 <= c1 < c2
(x * c1 + y) % c2 => (x * (c1 % c2) + y) % c2 if c2 > 0 and not 0 <= c1 < c2
(y + x * c1) % c2 => (y + x * (c1 % c2)) % c2 if c2 > 0 and not 0 <= c1 < c2
(x + c1) % c2 => (x + c1 % c2) % c2 if c2 > 0 and not 0 <= c1 < c2
(x + y * c1 + z) % c2 => (x + y * (c1 % c2) + z) % c2 if c2 > 0 and not 0 <= c1 < c2
(y * c1 + x + z) % c2 => (y * (c1 % c2) + x + z) % c2 if c2 > 0 and not 0 <= c1 < c2
(x * c1 + c2) % c3 -> x % (c3 // c1) * c1 + c2 if c1 > 0 and c3 > 0 and c3 % c1 == 0 and 0 < c2 < c1
x * y % y -> 0
y * x % y -> 0
"""

MIN = """
min(x, x) -> x
min(x + c1, x + c2) -> x + min(c1, c2)
min(x + c1, x) -> x if c1 >= 0
min(x + c1, x) -> x + c1 if c1 < 0
min(x, x + c1) -> x if c1 >= 0
min(x, x + c1) -> x + c1 if c1 < 0
min(c1 - x, c2 - x) -> min(c1, c2) - x
min(div(x + c1, c2) * c2, x) -> x if c2 > 0 and c1 + 1 == c2
min(x, div(x + c1, c2) * c2) -> x if c2 > 0 and c1 + 1 == c2
min((x + c1) // c2 * c2, x) -> x if c2 > 0 and c1 + 1 == c2
min(x, (x + c1) // c2 * c2) -> x if c2 > 0 and c1 + 1 == c2
min(x // c2 * c2, x) -> x // c2 * c2 if c2 > 0
min(x, x // c2 * c2) -> x // c2 * c2 if c2 > 0
min(max(x, y), min(x, y)) -> min(x, y)
min(max(x, y), min(y, x)) -> min(x, y)
min(min(x, y), max(x, y)) -> min(x, y)
min(min(x, y), max(y, x)) -> min(x, y)
min(max(x, y), x) -> x
min(max(x, y), y) -> y
min(min(x, y), x) -> min(x, y)
min(min(x, y), y) -> min(x, y)
min(x, max(x, y)) -> x
min(y, max(x, y)) -> y
min(x, min(x, y)) -> min(x, y)
min(y, min(x, y)) -> min(x, y)
min(min(min(x, y), z), y) -> min(min(x, y), z)
min(max(x, y), max(x, z)) -> max(min(y, z), x)
min(max(x, y), max(z, x)) -> max(min(y, z), x)
min(max(y, x), max(x, z)) -> max(min(y, z), x)
min(max(y, x), max(z, x)) -> max(min(y, z), x)
min(min(x, y), min(x, z)) -> min(min(y, z), x)
min(min(x, y), min(z, x)) -> min(min(y, z), x)
min(min(y, x), min(x, z)) -> min(min(y, z), x)
min(min(y, x), min(z, x)) -> min(min(y, z), x)
min(y + x, z + x) -> min(y, z) + x
min(y + x, x + z) -> min(y, z) + x
min(x + y, x + z) -> min(y, z) + x
min(x + y, z + x) -> min(y, z) + x
min(x - y, x - z) -> x - max(y, z)
min(y - x, z - x) -> min(y, z) - x
min(select(p, x, y), select(p, z, w)) -> select(p, min(x, z), min(y, w))
min(div(x, c1), div(y, c1)) -> div(min(x, y), c1) if c1 > 0
min(div(x, c1), div(y, c1)) -> div(max(x, y), c1) if c1 < 0
min(x // c1, y // c1) -> min(x, y) // c1 if c1 > 0
min(x // c1, y // c1) -> max(x, y) // c1 if c1 < 0
min(x * c1, y * c1) -> min(x, y) * c1 if c1 > 0
min(x * c1, y * c1) -> max(x, y) * c1 if c1 < 0
min(x * c1, c2) -> min(x, c2 // c1) * c1 if c1 > 0 and c2 % c1 == 0
min(x * c1, c2) -> max(x, c2 // c1) * c1 if c1 < 0 and c2 % c1 == 0
min(min(x, c1), c2) -> min(x, min(c1, c2))
min(max(x, c1), c2) -> c2 if c1 >= c2
min(c1 - x, c2) -> c1 - max(x, c1 - c2) if c2 != 0
min(min(x, c1), y) => min(min(x, y), c1)
min(c1, x) => min(x, c1) if c1 != 0
"""

MAX = (
    "\n".join(
        line.replace("min(", "m_(").replace("max(", "min(").replace("m_(", "max(")
        for line in MIN.strip().splitlines()
        if not any(text in line for text in ("c1 +", "+ c1", "// c2 * c2", "c1 >= c2"))
    )
    + """
max(x + c1, x + c2) -> x + max(c1, c2)
max(x + c1, x) -> x + c1 if c1 >= 0
max(x + c1, x) -> x if c1 < 0
max(x, x + c1) -> x + c1 if c1 >= 0
max(x, x + c1) -> x if c1 < 0
max(div(x + c1, c2) * c2, x) -> div(x + c1, c2) * c2 if c2 > 0 and c1 + 1 == c2
max(x, div(x + c1, c2) * c2) -> div(x + c1, c2) * c2 if c2 > 0 and c1 + 1 == c2
max((x + c1) // c2 * c2, x) -> (x + c1) // c2 * c2 if c2 > 0 and c1 + 1 == c2
max(x, (x + c1) // c2 * c2) -> (x + c1) // c2 * c2 if c2 > 0 and c1 + 1 == c2
max(x // c2 * c2, x) -> x if c2 > 0
max(x, x // c2 * c2) -> x if c2 > 0
max(min(x, c1), c2) -> c2 if c1 <= c2
"""
)

EQ = """
x - c1 == 0 -> x == c1
c1 - x == 0 -> x == c1
x + c1 == 0 -> x == -c1
x + c1 == c2 -> x == c2 - c1
c1 - x == c2 -> x == c1 - c2
c1 - x == c2 - y -> x == y if c1 == c2
x * c1 == 0 -> x == 0 if c1 != 0
x * y == 0 => x == 0 or y == 0
"""

LT = """
x + y < x + z -> y < z
x + y < z + x -> y < z
y + x < x + z -> y < z
y + x < z + x -> y < z
y - x < z - x -> y < z
x - y < x - z -> z < y
x < x + z -> 0 < z
x < z + x -> 0 < z
x < x - z -> z < 0
c1 < x + c2 -> c1 - c2 < x
x + c1 < c2 -> x < c2 - c1
c1 < c2 - x -> x < c2 - c1
c1 - x < c2 -> c1 - c2 < x
x * c1 < y * c1 -> x < y if c1 > 0
x * c1 < y * c1 -> y < x if c1 < 0
x * c2 < c1 -> x < (c1 - 1) // c2 + 1 if c2 > 0
x * c2 < c1 -> c1 // c2 < x if c2 < 0
c1 < x * c2 -> c1 // c2 < x if c2 > 0
c1 < x * c2 -> x < -(c1 // -c2) if c2 < 0
div(x, c1) < c2 -> x < c1 * c2 if c1 > 0 and c2 > 0
div(x, c1) < c2 -> x < c1 * (c2 - 1) + 1 if c1 > 0 and c2 <= 0
c1 < div(x, c2) -> (c1 + 1) * c2 - 1 < x if c1 >= 0 and c2 > 0
c1 < div(x, c2) -> c1 * c2 < x if c1 < 0 and c2 > 0
x // c1 < c2 -> x < c1 * c2 if c1 > 0
c1 < x // c2 -> (c1 + 1) * c2 - 1 < x if c2 > 0
x // c1 * c1 < x -> 0 < x % c1 if c1 > 0
x < x // c1 * c1 -> False if c1 > 0
x // c1 * c1 < x + y -> 0 < x % c1 + y if c1 > 0
x // c1 * c1 < x - y -> y < x % c1 if c1 > 0
(x + c2) // c1 * c1 < x -> c2 < (x + c2) % c1 if c1 > 0
(x + c2) // c1 * c1 < x + y -> c2 < (x + c2) % c1 + y if c1 > 0
min(x, y) < c1 => x < c1 or y < c1
max(x, y) < c1 => x < c1 and y < c1
c1 < min(x, y) => c1 < x and c1 < y
c1 < max(x, y) => c1 < x or c1 < y
min(x, y) < x -> y < x
min(x, y) < y -> x < y
x < max(x, y) -> x < y
y < max(x, y) -> y < x
x + c1 < max(c2, x) => x < c2 - c1 if c1 >= 0
x + c1 < max(x, c2) => x < c2 - c1 if c1 >= 0
x + c1 < y + c2 -> x < y + (c2 - c1)
x < y + c1 -> x <= y if c1 == 1
x + c1 < y -> x < y + -c1 if c1 < 0
x - c1 < y + c2 -> x < y + (c1 + c2)
"""

NOT = """
not not p -> p
not x < y -> y <= x
not x <= y -> y < x
not x == y -> x != y
not x != y -> x == y
not (p or q) => (not p) and (not q)
not (p and q) => (not p) or (not q)
"""

AND = """
p and not p -> False
(not p) and p -> False
x <= y and y < x -> False
y < x and x <= y -> False
x == y and x != y -> False
x != y and x == y -> False
x < c1 and c2 < x -> False if c2 + 1 >= c1
c2 < x and x < c1 -> False if c2 + 1 >= c1
x < c1 and c2 <= x -> False if c2 >= c1
c2 <= x and x < c1 -> False if c2 >= c1
x <= c1 and c2 < x -> False if c2 >= c1
c2 < x and x <= c1 -> False if c2 >= c1
x <= c1 and c2 <= x -> False if c2 > c1
c2 <= x and x <= c1 -> False if c2 > c1
x == c1 and x != c2 -> x == c1 if c1 != c2
x != c2 and x == c1 -> x == c1 if c1 != c2
x == c1 and x == c2 -> False if c1 != c2
p and (q and r) => p and q and r
"""

OR = """
p or not p -> True
(not p) or p -> True
x <= y or y < x -> True
y < x or x <= y -> True
x == y or x != y -> True
x != y or x == y -> True
x < c1 or c2 < x -> True if c2 < c1
c2 < x or x < c1 -> True if c2 < c1
x < c1 or c2 <= x -> True if c2 <= c1
c2 <= x or x < c1 -> True if c2 <= c1
x <= c1 or c2 < x -> True if c2 <= c1
c2 < x or x <= c1 -> True if c2 <= c1
x <= c1 or c2 <= x -> True if c2 <= c1 + 1
c2 <= x or x <= c1 -> True if c2 <= c1 + 1
x != c1 or x == c2 -> x != c1 if c1 != c2
x == c2 or x != c1 -> x != c1 if c1 != c2
x != c1 or x != c2 -> True if c1 != c2
p or (q or r) => p or q or r
"""

SELECT = """
select(p, x, x) -> x
"""

RULES = "".join((ADD, SUB, MUL, DIV, MOD, FLOORDIV, FLOORMOD, MIN, MAX, EQ, LT, NOT, AND, OR, SELECT))
