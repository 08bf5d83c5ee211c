"""Complex numbers as pairs of real tensors, and Fourier transforms as products with constant matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autosched.errors import InvalidValueError
from autosched.frontend.fourier import MOST_ELEMENTS, dft_matrix
from autosched.frontend.torch.complex_values import PARTS, Complex, as_complex, complex_converter, part_dtype
from autosched.frontend.torch.converters.index import select
from autosched.frontend.torch.converters.linear import product
from autosched.frontend.torch.converters.shape import stack
from autosched.frontend.torch.emitter import Emitter, constant, info_of, positive
from autosched.frontend.torch.registry import CONVERTERS, converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr

SCALES = {0: 0.0, 1: 0.5, 2: 1.0}  # PyTorch's numbers for what a transform is divided by: this power of the length


@converter("view_as_complex", "view_as_complex_copy")
def view_as_complex(t: Emitter, input: Expr) -> Complex:
    return Complex(t(select(t, input, -1, 0)), t(select(t, input, -1, 1)))


@converter("complex")
def make_complex(t: Emitter, real: Expr, imag: Expr) -> Complex:
    return Complex(*t.alike(real, imag))


@converter("polar")
def polar(t: Emitter, abs: Expr, angle: Expr) -> Complex:
    return Complex(t(op.multiply(abs, t(op.cos(angle)))), t(op.multiply(abs, t(op.sin(angle)))))


@complex_converter("view_as_real", "view_as_real_copy")
def view_as_real(t: Emitter, input: Complex) -> Expr:
    return stack(t, [input.real, input.imaginary(t)], -1)


@complex_converter("real")
def real(t: Emitter, input: Complex) -> Expr:
    return input.real


@complex_converter("imag")
def imag(t: Emitter, input: Complex) -> Expr:
    return input.imaginary(t)


@converter("resolve_conj", "resolve_neg")
def resolved(t: Emitter, input: Expr) -> Expr:
    return input


@complex_converter("conj", "_conj", "_conj_copy", "_conj_physical", "conj_physical")
def conj(t: Emitter, input: Complex) -> Complex:
    return Complex(input.real, None if input.imag is None else t(op.negative(input.imag)))


@complex_converter("resolve_conj", "resolve_neg")
def resolved_complex(t: Emitter, input: Complex) -> Complex:
    return input


@complex_converter("to", "_to_copy", "convert_element_type", "to_dtype")
def to(t: Emitter, input: Complex | Expr, *args: object, dtype: object = None, **_: object) -> Complex | Expr:
    """To other parts; to real numbers, where imaginary parts are dropped; from real numbers."""
    wanted = next((v for v in (dtype, *args) if v is not None and (v in t.dtypes or str(v) in PARTS)), None)
    if str(wanted) in PARTS:
        return as_complex(t, input, PARTS[str(wanted)])
    if not isinstance(input, Complex) or wanted is None:
        return input
    return t.cast(input.real, t.dtype(wanted))


@complex_converter("abs", "absolute")
def absolute(t: Emitter, input: Complex) -> Expr:
    """Of parts whose squares are beyond the dtype's range too: scaled by the larger one, as C's hypot."""
    if input.imag is None:
        return op.abs(input.real)
    a, b = t(op.abs(input.real)), t(op.abs(input.imag))
    large, small = t(op.maximum(a, b)), t(op.minimum(a, b))
    zero, one = (constant(v, info_of(a).dtype) for v in (0, 1))
    ratio = t(op.where(t(op.greater(large, zero)), t(op.divide(small, large)), zero))
    root = t(op.sqrt(t(op.add(one, t(op.multiply(ratio, ratio))))))
    return op.where(t(op.isinf(large)), large, t(op.multiply(large, root)))


@converter("angle")
def real_angle(t: Emitter, input: Expr) -> Expr:
    """Of real numbers: pi where they are negative."""
    x = t.as_float(input)
    zero, half = (constant(v, info_of(x).dtype) for v in (0.0, np.pi))
    return op.where(t(op.isnan(x)), x, t(op.where(t(op.less(x, zero)), half, zero)))


@complex_converter("angle")
def angle(t: Emitter, input: Complex) -> Expr:
    return op.atan2(input.imaginary(t), input.real)


@complex_converter("exp")
def exp(t: Emitter, input: Complex) -> Complex:
    return polar(t, t(op.exp(input.real)), input.imaginary(t))


def _register_products() -> None:
    for name in ("mul", "multiply", "matmul", "mm", "bmm", "mv", "dot"):

        def times(
            t: Emitter, input: object, other: object, *, _of_parts: Callable[..., Expr] = CONVERTERS[name]
        ) -> Complex:
            return _product(t, lambda a, b: t(_of_parts(t, a, b)), input, other)

        complex_converter(name)(times)


_register_products()


@complex_converter("einsum")
def einsum(t: Emitter, equation: str, *operands: object, **_: object) -> Complex:
    given = operands[0] if isinstance(operands[0], list | tuple) else operands
    if len(given) != 2:
        raise t.fail(f"einsum of {len(given)} operands of complex numbers is not supported")
    return _product(t, lambda a, b: t(CONVERTERS["einsum"](t, equation, a, b)), *given)


def _product(t: Emitter, of_parts: Callable[..., Expr], a: object, b: object) -> Complex:
    """What is linear in both of two operands, from what it is of their parts; a part that is None is left out."""
    dtype = part_dtype(a, b)
    x, y = as_complex(t, a, dtype), as_complex(t, b, dtype)
    both = of_parts(x.real, y.real)
    if x.imag is not None and y.imag is not None:
        both = t(op.subtract(both, of_parts(x.imag, y.imag)))
    terms = [of_parts(x.real, y.imag)] if y.imag is not None else []
    terms += [of_parts(x.imag, y.real)] if x.imag is not None else []
    return Complex(both, t(op.add(*terms)) if len(terms) == 2 else terms[0] if terms else None)


@complex_converter("div", "true_divide", "truediv", "divide")
def div(t: Emitter, input: object, other: object) -> Complex:
    """By a complex number: times its conjugate, both scaled by its larger part, so that no square overflows."""
    dtype = part_dtype(input, other)
    x, y = as_complex(t, input, dtype), as_complex(t, other, dtype)
    if y.imag is None:
        parts = [None if p is None else t(op.divide(p, y.real)) for p in (x.real, x.imag)]
        return Complex(parts[0] or x.real, parts[1])
    scale = t(op.maximum(t(op.abs(y.real)), t(op.abs(y.imag))))
    real, imag = t(op.divide(y.real, scale)), t(op.divide(y.imag, scale))
    size = t(op.multiply(scale, t(op.add(t(op.multiply(real, real)), t(op.multiply(imag, imag))))))
    turned = _product(t, lambda a, b: t(op.multiply(a, b)), x, Complex(real, t(op.negative(imag))))
    return Complex(t(op.divide(turned.real, size)), t(op.divide(turned.imaginary(t), size)))


@complex_converter("reciprocal")
def reciprocal(t: Emitter, input: Complex) -> Complex:
    return div(t, 1.0, input)


@complex_converter("pow")
def power(t: Emitter, input: Complex, exponent: object) -> Complex:
    """Of whole exponents up to 3; others are refused."""
    if not isinstance(exponent, int | float) or exponent not in (1, 2, 3):
        raise t.fail("a power of complex numbers other than the first three is not supported")
    result = input
    for _ in range(int(exponent) - 1):
        result = _product(t, lambda a, b: t(op.multiply(a, b)), result, input)
    return result


@converter("_fft_r2c")
def real_to_complex(t: Emitter, input: Expr, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """Along the last of the dimensions that of real numbers, half of it if one-sided, then along the others."""
    shape = t.shape(input)
    *others, last = [positive(d, len(shape)) for d in dim]
    wanted = shape[last] // 2 + 1 if onesided else shape[last]
    first = _along(t, Complex(t.as_float(input)), last, shape[last], wanted, False, normalization)
    return complex_to_complex(t, first, others, normalization, True)


@complex_converter("_fft_c2c")
def complex_to_complex(t: Emitter, input: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    shape, result = t.shape(input.real), input
    for d in reversed(dim):
        axis = positive(d, len(shape))
        result = _along(t, result, axis, shape[axis], shape[axis], not forward, normalization)
    return result


@complex_converter("_fft_c2r")
def complex_to_real(t: Emitter, input: Complex, dim: Sequence[int], normalization: int, last_dim_size: int) -> Expr:
    """The inverse of the one-sided transform; what the other side adds is that of the side that is given."""
    *others, d = dim
    result = complex_to_complex(t, input, others, normalization, False)
    shape, n = t.shape(result.real), last_dim_size
    axis, half = positive(d, len(shape)), n // 2 + 1
    twice = np.full(half, 2.0)
    twice[0] = 1.0
    if n % 2 == 0:
        twice[-1] = 1.0
    weights = twice[:, None, None, None] * _weights(t, half, n, n, True, normalization)
    parts = [
        None if p is None else t(op.strided_slice(p, axes=[axis], begin=[0], end=[half]))
        for p in (result.real, result.imag)
    ]
    return _contracted(t, parts, axis, weights[..., 0])


def _along(
    t: Emitter, x: Complex, axis: int, length: int, wanted: int, inverse: bool, normalization: int
) -> Complex:  # fmt: skip
    """The first `wanted` values of the transform along one dimension."""
    weights = _weights(t, length, length, wanted, inverse, normalization)
    parts = [x.real, x.imag]
    return Complex(*(_contracted(t, parts, axis, weights[..., which]) for which in (0, 1)))


def _weights(t: Emitter, size: int, length: int, wanted: int, inverse: bool, normalization: int) -> np.ndarray:
    """[size, 2, wanted, 2], see `dft_matrix`; with what is divided by."""
    if length <= 0 or 4 * size * wanted > MOST_ELEMENTS:
        raise t.fail(f"a Fourier transform of {length} values is not supported: its matrix would be too large")
    if normalization not in SCALES:
        raise InvalidValueError(f"a Fourier transform with normalization {normalization}")
    matrix: np.ndarray = dft_matrix(size, length, wanted, inverse) / length ** SCALES[normalization]
    return matrix


def _contracted(t: Emitter, parts: Sequence[Expr | None], axis: int, weights: np.ndarray) -> Expr:
    """The sums of both parts along a dimension, weighted by [size, part, result]."""
    given = [(p, weights[:, i]) for i, p in enumerate(parts) if p is not None]
    shape = t.shape(given[0][0])
    last = len(shape) - 1
    order = [*(d for d in range(last + 1) if d != axis), axis]
    turned = [p if axis == last else t(op.permute_dims(p, axes=order)) for p, _ in given]
    joined = turned[0] if len(turned) == 1 else t(op.concat(turned, axis=last))
    matrix = Constant(np.concatenate([w for _, w in given]).astype(info_of(joined).dtype))
    made = product(t, joined, matrix)
    return made if axis == last else t(op.permute_dims(made, axes=[order.index(d) for d in range(last + 1)]))
