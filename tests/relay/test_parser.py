"""Relay's text."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import relay
from autosched.errors import ScriptError, TVMError

DENSE = """
#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) -> Tensor[(2, 4), float32] {
  %0 = nn.dense(%x, %w, units=4);  // a comment
  %1 = (%0 + 1f) * 2f;
  let %t = split(%1, indices_or_sections=2, axis=1);
  %2 = (%t.0, %t.1);
  nn.relu(concatenate(%2, axis=1))
}
"""


def test_read_and_run() -> None:
    mod = relay.parse(DENSE)
    x, w = np.ones((2, 3), "float32"), np.ones((4, 3), "float32")
    out = relay.create_executor("graph", mod).evaluate()(x, w)
    np.testing.assert_allclose(out.numpy(), (x @ w.T + 1) * 2)


def test_functions_call_each_other_and_branch() -> None:
    text = """
    def @twice(%x: Tensor[(2), float32]) -> Tensor[(2), float32] { add(%x, %x) }
    def @main(%c: bool, %x: Tensor[(2,), float32]) -> Tensor[(2), float32] {
      if (%c) { @twice(%x) } else { %x }
    }"""
    run = relay.create_executor("vm", relay.parse(text)).evaluate()
    x = np.ones(2, "float32")
    assert run(np.array(True), x).numpy().tolist() == [2, 2] and run(np.array(False), x).numpy().tolist() == [1, 1]


def test_an_expression_of_free_variables() -> None:
    function = relay.parser.parse_expr("free_var %x: Tensor[(2), int32];\nadd(%x, 1)")
    assert [p.name for p in function.params] == ["x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main() { %x }", "undefined variable %x"), ("def @main() { nn.nobody(1f) }", "unknown operator"),
        ("def @main(%x: Tensor[(2), float32]) { nn.dense(%x) }", "nn.dense"), ("def @main( {", "expected"),
        ("def @main() { $ }", "unexpected character"), ("def @main() { @f() }", "undefined function @f"),
        ("def @main(%x: Tensor[(2), float32]) -> int32 { %x }", "its body gives"),
    ],
)  # fmt: skip
def test_errors_show_the_place(text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message) as caught:
        relay.parse(text)
    assert isinstance(caught.value, TVMError) and "^" in str(caught.value) and "<relay>:1:" in str(caught.value)
