"""Packed Winograd weights: the transform, its tails, and the function that packs at run time."""

import numpy as np
import pytest

from autosched.templates.winograd_pack import BothPacks, TapPack, WinogradPack
from autosched.templates.winograd_transform import filter_of, make_filter
from autosched.tir.evaluate import evaluate


@pytest.mark.parametrize(
    ("taps", "m", "width", "panels"), [(3, 2, 8, 1), (3, 4, 8, 2), (3, 4, 5, 1), (2, 3, 8, 1), (2, 5, 8, 2)]
)
def test_elements_lie_where_index_says(taps, m, width, panels):
    weight = np.random.default_rng(0).standard_normal((21, 6, taps, taps)).astype(np.float32)
    pack = WinogradPack(weight.shape, m, width, panels)
    packed, g = pack.pack(weight), filter_of(m, 1, taps).weight_matrix()
    assert packed.shape == pack.packed_shape
    assert packed.dtype == np.float32
    expected = np.einsum("xk,oikl,yl->oixy", g, weight.astype(np.float64), g)
    for o, i in ((0, 0), (7, 3), (20, 5)):
        chunk, panel, lane = o // (width * panels), o // width % panels, o % width
        np.testing.assert_allclose(packed[chunk, :, :, panel, i, lane], expected[o, i], rtol=1e-6)
    total = np.moveaxis(packed, 4, -2).reshape(-1)
    assert np.count_nonzero(total) == expected.size  # the rest is the zeros of the tail


@pytest.mark.parametrize("taps", [2, 3])
@pytest.mark.parametrize("outputs", [16, 21])
def test_function_packs_alike(outputs, taps):
    weight = np.random.default_rng(1).standard_normal((outputs, 4, taps, taps)).astype(np.float32)
    pack = WinogradPack(weight.shape, 7 - taps, 8, 1)
    (packed,) = evaluate(pack.func("float32"), [weight])
    np.testing.assert_allclose(packed, pack.pack(weight), rtol=0, atol=1e-6)


@pytest.mark.parametrize("outputs", [16, 21])
def test_bytes_become_words_of_whole_numbers(outputs):
    """Four times what floats become, two input channels side by side; the function packs alike."""
    weight = np.random.default_rng(1).integers(-128, 128, (outputs, 6, 3, 3)).astype(np.int8)
    pack = WinogradPack(weight.shape, 2, 8, 1, 2)
    packed = pack.pack(weight)
    assert packed.dtype == np.int16 and packed.shape == pack.packed_shape == (-(-outputs // 8), 4, 4, 1, 3, 8, 2)
    floats = WinogradPack(weight.shape, 2, 8, 1).pack(weight.astype(np.float32))
    words = floats.reshape(*floats.shape[:4], 3, 2, 8).swapaxes(-1, -2)
    np.testing.assert_array_equal(packed, 4 * words)
    np.testing.assert_array_equal(evaluate(pack.func("int8"), [weight])[0], packed)


@pytest.mark.parametrize("outputs", [16, 21])
def test_scaled_taps(outputs):
    weight = np.random.default_rng(1).standard_normal((outputs, 4, 3, 3)).astype(np.float32)
    pack, scale = TapPack(weight.shape, 4, 8), make_filter(4).tap_scale()
    packed = pack.pack(weight)
    assert packed.dtype == np.float32 and packed.shape == pack.packed_shape == (-(-outputs // 8), 4, 3, 3, 8)
    np.testing.assert_allclose(packed[1, 2, 0, 2, 3], weight[11, 2, 0, 2] * scale[2], rtol=1e-6)
    np.testing.assert_allclose(packed[1, 2, 2, 1, 3], weight[11, 2, 2, 1] * scale[2] * scale[1], rtol=1e-6)
    assert np.count_nonzero(packed) == weight.size
    np.testing.assert_allclose(evaluate(pack.func("float32"), [weight])[0], packed, rtol=0, atol=1e-6)


@pytest.mark.parametrize("outputs", [16, 21])
def test_transformed_weights_and_taps_in_one(outputs):
    weight = np.random.default_rng(1).standard_normal((outputs, 4, 3, 3)).astype(np.float32)
    first, second = WinogradPack(weight.shape, 4, 16, 1), TapPack(weight.shape, 4, 8)
    both = BothPacks(first, second)
    packed = both.pack(weight)
    np.testing.assert_array_equal(packed, np.concatenate([p.pack(weight).reshape(-1) for p in (first, second)]))
    np.testing.assert_array_equal(both.pack(weight, np.empty_like(packed)), packed)
    np.testing.assert_allclose(evaluate(both.func("float32"), [weight])[0], packed, rtol=0, atol=1e-6)
