"""Text that is wrong: an error that shows where, and nothing else."""

from __future__ import annotations

import random
import re
import textwrap

import pytest

from autosched.errors import AutoschedError, ScriptError
from autosched.script import from_source, script
from tests.script import samples
from tests.script.printer import test_relax_func as graphs


def t_function(*lines: str) -> str:
    body = textwrap.indent("\n".join(lines), "    ")
    return f'@T.prim_func\ndef f(A: T.Buffer((4, 8), "float32"), p: T.handle, n: T.int32):\n{body}\n'


def r_function(*lines: str) -> str:
    body = textwrap.indent("\n".join(lines), "    ")
    return f'@R.function\ndef f(x: R.Tensor((4, 8), "float32")):\n{body}\n'


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        (t_function("A[0, 0] = y"), "undefined name 'y'", "y"),
        (t_function("A[0] = 1.0"), "has 2 dimensions, got 1 indices", "0"),
        (t_function("A[0, 0] = A"), "buffer 'A' must be indexed", "A"),
        (t_function("A[0, 0:4] = 1.0"), "an element is needed", "0:4"),
        (t_function("n[0] = 1.0"), "expected the name of a buffer", "n"),
        (t_function("A[0, 0] = T.frobnicate(n)"), "unknown function T.frobnicate", "T.frobnicate"),
        (t_function("A[0, 0] = print(n)"), "undefined function", "print"),
        (t_function("A[0, n / 2] = 1.0"), "write // or T.truncdiv", "n / 2"),
        (t_function("A[0, n // 0] = 1.0", "A[0, 1 // 0] = 1.0"), "division by", "1 // 0"),
        (t_function("A[0, 0] = T.Cast('float33', n)"), "unknown dtype 'float33'", "'float33'"),
        (t_function("A[0, 0] = [x for x in n]"), "not an expression", "[x for x in n]"),
        (t_function("import os"), "not part of the T dialect", "import os"),
        (t_function("A[0, 0] **= 2.0"), "operator is not part", "A[0, 0] **= 2.0"),
        (t_function("for i in A: pass"), "not part of the T dialect", None),
        (t_function("for i in T.grid(4, 8): pass"), "1 loop variables for 2 extents", "T.grid(4, 8)"),
        (t_function("for i in T.serial(4, step=2): pass"), "unexpected keyword 'step'", "step=2"),
        (t_function("for i in T.serial(1, 2, 3): pass"), "expected an extent", "T.serial(1, 2, 3)"),
        (t_function("with T.block('b'):", "    T.reads()"), "block 'b' has no body", None),
        (
            t_function("with T.block('b'):", "    v = T.axis.remap('S', [n])", "    A[v, 0] = 1.0"),
            "takes loop variables",
            "n",
        ),  # noqa: E501
        (
            t_function(
                "for i in range(4):", "  with T.block('b'):", "    v = T.axis.remap('SR', [i])", "    A[v, 0] = 1.0"
            ),
            "do not match",
            None,
        ),  # noqa: E501
        (
            t_function("for i in range(4):", "  with T.block('b'):", "    v = T.axis.spatial(4)", "    A[v, 0] = 1.0"),
            "argument 'value' is missing",
            None,
        ),  # noqa: E501
        (t_function("with T.block('b'):", "    T.reads(A[0])", "    A[0, 0] = 1.0"), "got 1 indices", "A[0]"),
        (t_function("B = T.match_buffer(n, (4,))", "B[0] = 1.0"), "T.handle", "T.match_buffer(n, (4,))"),
        (t_function("B = T.match_buffer(p)", "B[0] = 1.0"), "argument 'shape' is missing", "T.match_buffer(p)"),
        (t_function("T.func_attr(3)", "A[0, 0] = 1.0"), "expected a dict", "3"),
        (t_function("T.func_attr({'a': open})", "A[0, 0] = 1.0"), "undefined name 'open'", "open"),
        (t_function("T.func_attr({})"), "has no body", None),
        ("@T.prim_func\ndef f(A): pass", "needs an annotation", "A"),
        ("@T.prim_func\ndef f(A: int): pass", "expected T.Buffer", "int"),
        ("@T.prim_func\ndef f(*A): pass", "plain parameters", None),
        ("def f(): pass", "needs the decorator", None),
        ("x = 1", "expected one class", "x = 1"),
        ("", "no class and no function", None),
        ("@T.prim_func\ndef f(:", "invalid syntax", None),
        (
            "@I.ir_module\nclass M:\n" + "    @T.prim_func\n    def f(): T.evaluate(0)\n" * 2,
            "defined twice",
            None,
        ),  # noqa: E501
        ("@I.ir_module\nclass M:\n    x = 3", "a module holds functions", "x = 3"),
        (r_function("y = R.frobnicate(x)", "return y"), "unknown operator R.frobnicate", "R.frobnicate"),
        (r_function("y = R.matmul(x, x)", "return y"), "matmul", "R.matmul(x, x)"),
        (r_function("y = R.add(x, z)", "return y"), "undefined name 'z'", "z"),
        (r_function("y = R.add(x, x, what=1)", "return y"), "what", "R.add(x, x, what=1)"),
        (r_function("y = R.add(x, x)"), "returns nothing", None),
        (r_function("return x", "y = x"), "nothing can follow a return", "y = x"),
        (r_function("y = cls.g(x)", "return y"), "undefined name 'cls'", "cls"),
        (r_function("with R.dataflow():", "    y = R.add(x, x)", "return y"), "ends with R.output", "y = R.add(x, x)"),
        (r_function("with R.dataflow():", "    y = R.add(x, x)", "    R.output(z)", "return y"), "R.output takes", "z"),
        (r_function("if x:", "    y = x", "else:", "    z = x", "return y"), "bind different names: y, z", None),
        (r_function('y = metadata["relax.expr.Constant"][0]', "return y"), "show_meta=True", None),
        (r_function("y = R.call_tir(x, (x,), out_sinfo=R.Tensor((4,), 'float32'))", "return y"), "GlobalVar", None),
        ("@R.function\ndef f(x: int): return x", "expected an annotation", "int"),
    ],
)
def test_the_error_shows_the_place(text: str, message: str, marked: str | None) -> None:
    with pytest.raises(ScriptError, match=re.escape(message)) as caught:
        from_source(text)
    lines = str(caught.value).splitlines()
    assert "--> <script>:" in lines[-4]
    start, end = lines[-1].index("^"), lines[-1].rindex("^") + 1
    if marked is not None:
        assert lines[-2][start:end] == marked


def test_a_graph_must_be_well_formed() -> None:
    text = r_function("with R.dataflow():", "    y = R.add(x, x)", "    z = R.add(y, y)", "    R.output(z)", "return y")
    with pytest.raises(AutoschedError, match="'y' is used where it is not defined"):
        from_source(text)
    assert from_source(text, check_well_formed=False) is not None


def test_line_numbers_of_an_indented_text() -> None:
    with pytest.raises(ScriptError, match="<script>:3:"):
        from_source(textwrap.indent(t_function("A[0, 0] = y"), "        "))


def test_text_that_nests_too_deeply() -> None:
    with pytest.raises(ScriptError):
        from_source(t_function(f"A[0, 0] = {'-(' * 5000}n{')' * 5000}"))
    with pytest.raises(ScriptError, match="nested too deeply|recursion"):
        from_source(t_function("A[0, 0] = " + " + ".join(["A[0, 0]"] * 4000)))


def test_nothing_is_executed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ScriptError):
        from_source("print('ran')\n" + t_function("A[0, 0] = 1.0"))
    with pytest.raises(ScriptError):
        from_source(t_function("A[0, 0] = __import__('os').system('echo ran')"))
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(3))
def test_broken_text_gives_our_error_or_a_function(seed: int) -> None:
    rng = random.Random(seed)
    texts = [script(make()) for make in samples.SAMPLES.values()]
    texts += [script(make(), show_meta=True) for make in (graphs.calling, graphs.branching, graphs.symbolic)]
    pieces = [re.findall(r'\w+|"[^"\n]*"|[^\w\s]|\n|[ ]+', text) for text in texts]
    words = [w for p in pieces for w in p if w.strip()]
    outcomes = {True: 0, False: 0}
    for _ in range(250):
        text = list(rng.choice(pieces))
        for _ in range(rng.randint(1, 2)):
            text[rng.randrange(len(text))] = rng.choice([*rng.sample(words, 3), ""])
        try:
            script(from_source("".join(text)))
            outcomes[True] += 1
        except AutoschedError as error:
            assert str(error)
            outcomes[False] += 1
    assert min(outcomes.values()) > 0


def test_a_loop_nest_must_be_well_formed() -> None:
    block = ["for i in range(4):", "  with T.block('b'):", "    v = T.axis.spatial(4, i)", "    A[v, i] = 1.0"]
    with pytest.raises(AutoschedError, match="block-isolation"):
        from_source(t_function(*block))
    assert from_source(t_function(*block), check_well_formed=False) is not None


def nested(expression: str) -> str:
    return f"""
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = {expression}
"""


def test_operands_are_read_once():
    """Reading each twice would take 2**60 steps."""
    func = from_source(nested("A[i]" + " + A[i]" * 60 + " * " + "-" * 61 + "A[i]"))
    assert str(func).count("A[i]") == 62


def test_what_is_nested_too_deeply_is_no_internal_error():
    with pytest.raises(ScriptError):
        from_source(nested("-" * 900 + "A[i]"))
