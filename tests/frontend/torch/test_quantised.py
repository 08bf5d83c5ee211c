"""PT2E exports: operators of quantized_decomposed beside PyTorch, in the form that QDQ models have, and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.driver import build_report
from autosched.errors import ImportModelError
from autosched.frontend.torch import from_exported_program
from autosched.relax.evaluate import evaluate
from autosched.relax.transform import IntegerProducts
from tests.relax.transform.graphs import calls

torch = pytest.importorskip("torch")
from torch.ao.quantization.fx import _decomposed  # noqa: E402, F401  (registers the operators)

Q = torch.ops.quantized_decomposed
RNG = np.random.default_rng(3)
U8, S8 = (0, 255, torch.uint8), (-128, 127, torch.int8)


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], **buffers: Any):
        super().__init__()
        self.function, self.named = function, list(buffers)
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, *(getattr(self, name) for name in self.named))


def imported(function: Callable[..., Any], x: np.ndarray, **buffers: Any) -> tuple[Any, list[np.ndarray]]:
    """(the module, PyTorch's results) of a function of a tensor and of buffers."""
    model, given = Model(function, **buffers).eval(), torch.from_numpy(x)
    with torch.no_grad():
        program = torch.export.export(model, (given,))
        wanted = model(given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    return from_exported_program(program), [w.numpy() for w in wanted]


def results(module: Any, x: np.ndarray) -> list[np.ndarray]:
    name = module["main"].params[0].name
    got = evaluate(module, {name: x})
    return [np.asarray(g) for g in (got if isinstance(got, tuple | list) else (got,))]


def values(*shape: int) -> np.ndarray:
    """Numbers beyond the limits of bytes too, and halves of steps of 1/4."""
    x = (RNG.standard_normal(shape) * 12).astype("f4")
    x.reshape(-1)[:7] = [0.125, 0.375, -0.125, -0.375, 1e9, -1e9, 0.0]
    return x


@pytest.mark.parametrize(("zero", "kind"), [(0, S8), (-7, S8), (131, U8), (0, U8), (3, (-127, 127, torch.int8))])
def test_whole_tensors(zero: int, kind: tuple[int, int, Any]) -> None:
    """A scale that is a power of two: PyTorch's product and ONNX's quotient are one number."""
    x = values(5, 9)
    module, wanted = imported(lambda v: Q.quantize_per_tensor(v, 0.25, zero, *kind), x)
    np.testing.assert_array_equal(results(module, x)[0], wanted[0])

    def there_and_back(v: Any) -> Any:
        return Q.dequantize_per_tensor(Q.quantize_per_tensor(v, 0.25, zero, *kind), 0.25, zero, *kind)

    module, wanted = imported(there_and_back, x)
    np.testing.assert_array_equal(results(module, x)[0], wanted[0])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("points", [True, False])
def test_channels(axis: int, points: bool) -> None:
    x = values(4, 6, 4)
    count = x.shape[axis]
    scales = torch.tensor([2.0 ** -(i % 3) for i in range(count)])
    zeros = torch.arange(count) - 2 if points else torch.zeros(count, dtype=torch.int64)

    def both(v: Any, s: Any, z: Any) -> Any:
        q = Q.quantize_per_channel(v, s, z, axis, *S8)
        return q, Q.dequantize_per_channel(q, s, z if points else None, axis, *S8)

    module, wanted = imported(both, x, scales=scales, zeros=zeros)
    for got, w in zip(results(module, x), wanted, strict=True):
        np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("kind", [S8, U8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("x", [values(3, 7), np.abs(values(3, 7)), np.zeros((2, 2), "f4")])
def test_scales_that_are_chosen_at_run_time(kind: tuple[int, int, Any], symmetric: bool, x: np.ndarray) -> None:
    x = np.clip(x, -40, 40)
    choose = Q.choose_qparams_symmetric.tensor if symmetric else Q.choose_qparams.tensor
    module, wanted = imported(lambda v: choose(v, kind[0], kind[1], 2.0**-12, kind[2]), x)
    scale, zero = results(module, x)
    assert scale.dtype == "float64" and zero.dtype == "int64"
    np.testing.assert_array_equal(scale, wanted[0])
    np.testing.assert_array_equal(zero, wanted[1])


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8), (1, 8), (8,)])
def test_tokens(shape: tuple[int, ...]) -> None:
    """Odd zero points: halves are rounded with the zero point added, unlike those of whole tensors."""
    x, count = np.clip(2 * values(*shape), -40, 40), int(np.prod(shape[:-1]))
    scales = torch.tensor([2.0 ** -(1 + i % 3) for i in range(count)]).reshape(*shape[:-1], 1)
    zeros = (torch.arange(count) * 3 - 5).reshape(*shape[:-1], 1)

    def both(v: Any, s: Any, z: Any) -> Any:
        q = Q.quantize_per_token(v, s, z, *S8)
        return q, Q.dequantize_per_token(q, s, z, *S8, torch.float32)

    module, wanted = imported(both, x, scales=scales, zeros=zeros)
    for got, w in zip(results(module, x), wanted, strict=True):
        assert got.dtype == w.dtype
        np.testing.assert_array_equal(got, w)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("x", [values(6, 16), np.abs(values(3, 2, 8)), -np.abs(values(2, 9)), np.zeros((2, 4), "f4")])
def test_scales_of_tokens_that_are_chosen_at_run_time(symmetric: bool, x: np.ndarray) -> None:
    x = np.clip(x, -40, 40)
    choose = Q.choose_qparams_per_token if symmetric else Q.choose_qparams_per_token_asymmetric

    def function(v: Any) -> Any:
        scale, zero = choose(v, torch.int8)
        q = Q.quantize_per_token(v, scale, zero, *S8)
        return scale, zero, q, Q.dequantize_per_token(q, scale, zero, *S8, torch.float32)

    module, wanted = imported(function, x)
    scale, zero, q, real = results(module, x)
    np.testing.assert_array_equal(scale, wanted[0])
    np.testing.assert_array_equal(zero, wanted[1])
    assert q.dtype == np.int8 and np.abs(q.astype(int) - wanted[2].astype(int)).max() <= 1
    assert (q != wanted[2]).mean() <= 0.02  # a product with the reciprocal, rounded once more, at halves
    np.testing.assert_allclose(real, wanted[3], atol=float(scale.max()) * 1.01)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
@pytest.mark.parametrize("points", [True, False])
def test_groups_of_channels(size: int, points: bool) -> None:
    """One group longer than its row is the row, as PyTorch has it."""
    x = np.clip(2 * values(4, 8), -40, 40)
    count = 4 * max(1, 8 // size)
    scales = torch.tensor([2.0 ** -(1 + i % 3) for i in range(count)]).reshape(4, -1)
    zeros = (torch.arange(count).reshape(4, -1) - 3) if points else torch.zeros(4, count // 4, dtype=torch.int64)

    def both(v: Any, s: Any, z: Any) -> Any:
        q = Q.quantize_per_channel_group(v, s, z, -8, 7, torch.int8, size)
        return q, Q.dequantize_per_channel_group(q, s, z if points else None, -8, 7, torch.int8, size, torch.float32)

    module, wanted = imported(both, x, scales=scales, zeros=zeros)
    for got, w in zip(results(module, x), wanted, strict=True):
        assert got.dtype == w.dtype
        np.testing.assert_array_equal(got, w)


@pytest.mark.host(runs=True)
def test_tokens_times_groups_of_weights() -> None:
    """A linear layer of 8-bit tokens and 4-bit weights in groups, built, against PyTorch."""
    x = RNG.standard_normal((5, 32)).astype("f4")
    weight = torch.from_numpy(RNG.integers(-8, 8, (24, 32)).astype("i1"))
    scales = torch.from_numpy(RNG.uniform(0.01, 0.1, (24, 4)).astype("f4"))

    def function(v: Any, w: Any, s: Any) -> Any:
        scale, zero = Q.choose_qparams_per_token_asymmetric(v, torch.int8)
        q = Q.quantize_per_token(v, scale, zero, *S8)
        rows = Q.dequantize_per_token(q, scale, zero, *S8, torch.float32)
        real = Q.dequantize_per_channel_group(w, s, None, -8, 7, torch.int8, 8, torch.float32)
        return torch.nn.functional.linear(rows, real)

    module, wanted = imported(function, x, w=weight, s=scales)
    got = autosched.build(module, records=[])(x)
    got = (got[0] if isinstance(got, tuple | list) else got).numpy()
    step = float(np.abs(x).max() * 2 / 255) * 0.8  # what one byte more or less of a token changes
    np.testing.assert_allclose(got, wanted[0], atol=step)
    assert np.abs(got - wanted[0]).mean() < step / 20


@pytest.mark.parametrize(
    ("function", "shape", "message"),
    [
        (lambda v, s, z: Q.quantize_per_token(v, s, z, *S8), (5, 1), "shape .5, 1. for tokens of shape .2,."),
        (lambda v, s, z: Q.quantize_per_channel_group(v, s, z, *S8, 4), (2, 3), "for 2 rows of 2 groups"),
        (lambda v, s, z: Q.choose_qparams_per_token_asymmetric(v, torch.uint8), (5, 1), "quantised to uint8"),
        (lambda v, s, z: Q.choose_qparams_per_token(v, torch.int16), (5, 1), "quantised to int16"),
    ],
)
def test_scales_for_another_number_of_tokens_or_groups_are_refused(
    function: Callable[..., Any], shape: tuple[int, ...], message: str
) -> None:
    buffers = {"s": torch.ones(shape), "z": torch.zeros(shape, dtype=torch.int64)}
    program = torch.export.export(Model(function, **buffers), (torch.zeros(2, 8),))
    with pytest.raises(ImportModelError, match=message):
        from_exported_program(program)


@pytest.mark.host(runs=True)
def test_products_of_signed_bytes_are_exact() -> None:
    x = RNG.integers(-128, 128, (20, 256)).astype("i1")
    x[0] = -128
    weight = RNG.integers(-128, 128, (256, 24)).astype("i1")
    weight[:, 0] = -128
    module, _ = imported(lambda v, w: torch._int_mm(v, w), x, w=torch.from_numpy(weight))
    built = autosched.build(module, records=[])
    got = built(x)
    got = (got[0] if isinstance(got, tuple | list) else got).numpy()
    assert got.dtype == np.int32 and got[0, 0] == 256 * 128**2
    np.testing.assert_array_equal(got, x.astype("i4") @ weight.astype("i4"))
    assert any(str(row["types"]).split()[0].endswith("int8") for row in build_report(built).rows), "bytes were widened"


def network(v: Any, w: Any, s: Any, z: Any) -> Any:
    """A quantised convolution and a quantised linear layer, as PT2E writes them."""
    image = Q.dequantize_per_tensor(Q.quantize_per_tensor(v, 0.125, 128, *U8), 0.125, 128, *U8)
    kernel = Q.dequantize_per_channel(w, s, z, 0, *S8)
    y = torch.relu(torch.nn.functional.conv2d(image, kernel, padding=1)).mean((2, 3))
    rows = Q.dequantize_per_tensor(Q.quantize_per_tensor(y, 0.0625, 0, *U8), 0.0625, 0, *U8)
    return torch.nn.functional.linear(rows, kernel.reshape(8, -1)[:, :8])


@pytest.mark.host(runs=True)
def test_a_network_runs_on_bytes() -> None:
    x = (RNG.standard_normal((2, 4, 6, 6)) * 3).astype("f4")
    weight = torch.from_numpy(RNG.integers(-128, 128, (8, 4, 3, 3)).astype("i1"))
    scales = torch.tensor([2.0 ** -(6 + i % 2) for i in range(8)])
    module, wanted = imported(network, x, w=weight, s=scales, z=torch.zeros(8, dtype=torch.int64))
    products = IntegerProducts()(module)
    types = [b.value.args[0].struct_info.dtype for b in products["main"].bindings() if "conv2d" in calls_of(b.value)]
    assert types == ["uint8"], calls(products)
    got = autosched.build(module, records=[])(x)
    got = (got[0] if isinstance(got, tuple | list) else got).numpy()
    np.testing.assert_allclose(got, wanted[0], atol=0.0625 * 2 * 128 / 64)


def calls_of(value: Any) -> str:
    return str(getattr(value, "op_name", ""))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda v: Q.quantize_per_tensor(v, 0.0, 0, *U8), "a scale of 0"),
        (lambda v: Q.quantize_per_tensor(v, float("nan"), 0, *U8), "a scale of nan"),
        (lambda v: Q.quantize_per_tensor(v, -1.0, 0, *U8), "a scale of -1"),
        (lambda v: Q.quantize_per_tensor(v, 1e-60, 0, *U8), "a scale of 0: .*float32"),
        (lambda v: Q.quantize_per_tensor(v, 1.0, 256, *U8), "a zero point of 256 is no uint8"),
        (lambda v: Q.quantize_per_tensor(v, 1.0, -129, *S8), "a zero point of -129 is no int8"),
        (lambda v: Q.quantize_per_tensor(v, 1.0, 0, -1, 255, torch.uint8), "limits -1 and 255 of uint8"),
        (lambda v: Q.choose_qparams.tensor(v, 0, 255, 1e-6, torch.float32), "quantised float32 is not supported"),
        (lambda v: Q.choose_qparams.tensor(v, 0, 255, 1e-6, torch.bool), "quantised bool is not supported"),
        (lambda v: Q.choose_qparams.tensor(v, 0, 300, 1e-6, torch.uint8), "limits 0 and 300 of uint8"),
        (lambda v: Q.choose_qparams_symmetric.tensor(v, -127, 127, float("inf"), torch.int8), "a least scale of inf"),
    ],
)
def test_what_cannot_be_is_refused_by_name(function: Callable[..., Any], message: str) -> None:
    program = torch.export.export(Model(function), (torch.zeros(2, 3),))
    with pytest.raises(ImportModelError, match=message) as raised:
        from_exported_program(program)
    assert re.search("in node '(quantize_per_tensor|choose_qparams)", str(raised.value)), "the node's name"


def test_bad_scales_of_channels_are_refused() -> None:
    bad = torch.tensor([1.0, float("inf"), 1.0])

    def function(v: Any, s: Any, z: Any) -> Any:
        return Q.quantize_per_channel(v, s, z, 1, *S8)

    program = torch.export.export(Model(function, s=bad, z=torch.zeros(3, dtype=torch.int64)), (torch.zeros(2, 3),))
    with pytest.raises(ImportModelError, match="a scale of inf"):
        from_exported_program(program)


def test_an_export_of_torchao() -> None:
    pytest.importorskip("torchao", reason="PyTorch's PT2E quantiser is a package of its own")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(0)
    parts = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 4)
    model, x = torch.nn.Sequential(*parts).eval(), torch.randn(2, 3, 6, 6)
    for dynamic in (False, True):
        settings = x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic)
        quantiser = x86.X86InductorQuantizer().set_global(settings)
        prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantiser)
        prepared(x)
        quantised = convert_pt2e(prepared)
        with torch.no_grad():
            wanted = quantised(x).numpy()
            module = from_exported_program(torch.export.export(quantised, (x,)))
        assert "round" in " ".join(calls(module))
        (got,) = results(module, x.numpy())
        np.testing.assert_allclose(got, wanted, atol=0.02 * np.abs(wanted).max())
