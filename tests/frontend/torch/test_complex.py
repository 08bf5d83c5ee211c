"""Complex numbers inside of PyTorch's programs, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.fft import fft, fft2, fftn, fftshift, hfft, ifft, irfft, irfft2, irfftn, rfft, rfft2, rfftn

import autosched
from autosched.errors import ImportModelError
from autosched.frontend.fourier import dft_matrix
from autosched.frontend.torch import from_exported_program
from autosched.relax import evaluate

SEED = torch.Generator().manual_seed(0)
X, Y = (torch.randn(3, 4, 8, generator=SEED) for _ in "xy")
ROTATION = torch.polar(torch.ones(4, 4), torch.randn(4, 4, generator=SEED))
as_real = torch.view_as_real


class Function(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function
        self.register_buffer("rotation", ROTATION)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y, self.rotation)


def pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.reshape(3, 4, 4, 2))


def written_parts(x: torch.Tensor) -> torch.Tensor:
    """Few frequencies of an image, as Fourier neural operators keep them."""
    found, kept = rfft2(x), torch.zeros(3, 4, 5, dtype=torch.cfloat)
    kept[:, :2, :3] = found[:, :2, :3] * (1 + 1j)
    return irfft2(kept, s=(4, 8))


CASES: dict[str, Any] = {
    "rotary embeddings": lambda x, y, r: as_real(pairs(x) * r[None]).flatten(2).type_as(x),
    "sums": lambda x, y, r: [as_real(z) for z in (pairs(x) + pairs(y), pairs(x) - 1.5, 2 - pairs(x), -pairs(x))],
    "products": lambda x, y, r: [as_real(z) for z in (pairs(x) * 2j, x * (1 + 2j), pairs(x) * y[..., :4], r**2)],
    "quotients": lambda x, y, r: [as_real(z) for z in (pairs(x) / pairs(y), 1 / pairs(x), pairs(x) / y[..., :4])],
    "large values": lambda x, y, r: (
        (pairs(x) * 1e30).abs(),
        (pairs(x) * 0).abs(),
        as_real((pairs(x) * 1e25) / (pairs(y) * 1e25)),
    ),
    "parts": lambda x, y, r: (
        *(pairs(x).real, pairs(x).imag, pairs(x).abs(), pairs(x).angle()),
        as_real(pairs(x).conj().resolve_conj()),
        as_real(torch.exp(pairs(x))),
        as_real(torch.complex(x, y)),
    ),
    "what moves": lambda x, y, r: [
        as_real(z)
        for z in (
            torch.cat([pairs(x), y[..., :4].to(torch.complex64)], 1)[:, 1:5:2].permute(1, 0, 2),
            torch.stack([pairs(x), pairs(y)], 1).sum(1),
            pairs(x).mean(0, keepdim=True).expand(2, 4, 4),
            torch.where(x[..., :4] > 0, pairs(x), pairs(y)),
            pairs(x).roll(1, 1).flip(0),
            torch.full((2, 3), 1 - 2j) + torch.ones(2, 3, dtype=torch.cfloat),
        )
    ],
    "matrices": lambda x, y, r: [
        as_real(z) for z in (pairs(x) @ pairs(y), torch.einsum("bij,kj->bik", pairs(x), r), r @ r)
    ],
    "transforms": lambda x, y, r: [
        as_real(z) for z in (fft(x), rfft(x, dim=1), ifft(pairs(x), norm="ortho"), fftshift(fft2(x)), rfft(x, n=11))
    ],
    "transforms back": lambda x, y, r: (
        irfft(rfft(x) * 2),
        irfft(rfft(x), n=7),
        irfftn(rfftn(x, dim=(0, 1, 2)), s=(3, 4, 8), dim=(0, 1, 2)),
        hfft(pairs(x)),
    ),
    "layers of Fourier transforms": lambda x, y, r: (fftn(x.to(torch.complex64), dim=(1, 2)).real, written_parts(x)),
    "spectrograms": lambda x, y, r: _spectrograms(x.reshape(2, -1)),
}


def _spectrograms(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    window = torch.hann_window(16)
    found = torch.stft(x, 16, 4, 16, window, return_complex=True)
    return found.abs(), torch.istft(found, 16, 4, 16, window)


@pytest.mark.parametrize("name", CASES)
def test_against_pytorch(name):
    model = Function(CASES[name]).eval()
    expected = model(X, Y)
    module = from_exported_program(torch.export.export(model, (X, Y)))
    results = evaluate(module, [X.numpy(), Y.numpy()])
    for ours, theirs in zip(results, [expected] if isinstance(expected, torch.Tensor) else expected, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        np.testing.assert_allclose(ours / scale, theirs.numpy() / scale, rtol=1e-5, atol=1e-6)


def test_a_built_model():
    model = Function(lambda x, y, r: (as_real(pairs(x) * r).flatten(2), irfft(rfft(x) * rfft(y)))).eval()
    program = torch.export.export(model, (X, Y))
    results = autosched.build(program, target="cpu", threads=1)(X.numpy(), Y.numpy())
    for ours, theirs in zip(results, model(X, Y), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda x, y, r: pairs(x) * r, "gives complex numbers"),
        (lambda x, y, r: as_real(pairs(x).sqrt()), "sqrt of complex numbers is not supported"),
        (lambda x, y, r: as_real(pairs(x) ** 2.5), "a power of complex numbers"),
    ],
)
def test_what_is_refused(function, message):
    with pytest.raises(ImportModelError, match=message):
        from_exported_program(torch.export.export(Function(function), (X, Y)))


def test_complex_inputs_are_refused_by_name():
    class Real(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return z.real

    with pytest.raises(ImportModelError, match="input 'z' is of complex numbers"):
        from_exported_program(torch.export.export(Real(), (ROTATION,)))


@pytest.mark.parametrize("size", [1, 2, 6, 8])
def test_quarters_of_a_turn_are_exact(size):
    matrix = dft_matrix(size, size, size, inverse=False)
    first = matrix[:, 0, 0]  # of real values, the frequency 0: their sum
    np.testing.assert_array_equal(first, np.stack([np.ones(size), np.zeros(size)], 1))
    if size % 2 == 0:
        np.testing.assert_array_equal(matrix[:, 0, size // 2, 1], np.zeros(size))
    assert not np.signbit(matrix[matrix == 0]).any()
