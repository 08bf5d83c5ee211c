"""Large tiles are compiled apart from kernels, once for all that have them."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.cpu import tile_object
from autosched.runtime.cache import kernel_cache
from autosched.tir import BufferStore, SeqStmt, const
from tests.codegen.programs import aligned, buffer, function, loop, run

ROWS, PANELS = 28, 3


def sums(channels, factor=1.0, image=ROWS):
    """C[panel, row] = factor * the sum over channels of X[channel, row] * W[panel, channel], for 28 rows at once."""
    x, w, c = buffer("X", channels, image), buffer("W", PANELS, channels, 16), buffer("C", PANELS, ROWS, 16)

    def each(body):
        return loop("r", ROWS, lambda r: loop("v", 16, lambda v: body(r, v), "vectorized"), "unrolled")

    def tile(p):
        def add(r, v, k):
            return BufferStore(c, c[p, r, v] + x[k, r] * w[p, k, v], (p, r, v))

        start = each(lambda r, v: BufferStore(c, const(0.0, "float32"), (p, r, v)))
        update = loop("k", channels, lambda k: each(lambda r, v: add(r, v, k)))
        end = each(lambda r, v: BufferStore(c, c[p, r, v] * const(factor, "float32"), (p, r, v)))
        return SeqStmt((start, update, end))

    return function([x, w, c], loop("p", PANELS, tile, "parallel"))


def check(channels, factor=1.0, image=ROWS):
    compiled = compile_func(sums(channels, factor, image), "cpu", use_cache=False)
    rng = np.random.default_rng(channels)
    x, w = rng.standard_normal((channels, image)).astype("f"), rng.standard_normal((PANELS, channels, 16)).astype("f")
    c = aligned((PANELS, ROWS, 16))
    run(compiled, [x, w, c])
    reference = factor * np.einsum("kr,pkv->prv", x[:, :ROWS].astype("d"), w)
    np.testing.assert_allclose(c, reference, rtol=1e-5, atol=1e-5 * abs(reference).max())
    return compiled


@pytest.fixture
def compiled_tiles(monkeypatch, tmp_path):
    """The names of tiles, in the order in which they are compiled; nothing is in a cache."""
    made, module = [], tile_object.tile_module
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tile_object, "_kept", {})
    monkeypatch.setattr(tile_object, "tile_module", lambda tile, isa: made.append(tile.name) or module(tile, isa))
    return made


def test_kernels_that_differ_in_outer_sizes_share_a_tile(compiled_tiles):
    first = check(40)
    assert len(compiled_tiles) == 1
    second = check(200)
    assert len(compiled_tiles) == 1
    assert first.kernel.object_code != second.kernel.object_code
    assert "40)" in first.source
    assert "200)" in second.source


def test_another_process_takes_a_tile_from_the_cache(compiled_tiles, monkeypatch):
    kept = compile_func(sums(40), "cpu")
    monkeypatch.setattr(tile_object, "_kept", {})
    assert check(40).kernel.object_code == kept.kernel.object_code
    assert len(compiled_tiles) == 1


def test_what_is_compiled_for_no_cache_leaves_no_tile_there(compiled_tiles):
    check(40)
    assert kernel_cache().entries() == []
    assert len(compiled_tiles) == 1


def test_tiles_that_differ_inside_are_compiled_each(compiled_tiles):
    check(40)
    check(40, factor=3.0)
    check(40, image=60)  # the loop over channels goes other distances
    assert len(compiled_tiles) == 3


def test_the_code_that_is_shown_has_the_tile():
    compiled = check(40)
    assert compiled.report().fmas >= ROWS
    assert "define void @C_" in compiled.llvm
