import base64
import json
import zlib

import pytest

from autosched.errors import ArtifactError
from autosched.runtime import CpuKernel, Kernel
from autosched.runtime.kernel import pack_text, unpack_text
from tests.runtime.kernels import normalize_kernel


def test_manifest_round_trip():
    kernel = normalize_kernel()
    entry = json.loads(json.dumps(kernel.to_manifest()))
    assert Kernel.from_manifest(entry, kernel.object_code) == kernel


def test_sizes_and_signature():
    kernel = normalize_kernel()
    assert kernel.signature == "normalize(x0: Tensor([4, 64], float32), out: Tensor([4, 64], float32))"
    assert kernel.scratch_size(3) == 256 + 3 * 64
    assert kernel.args[0].size_bytes == 4 * 64 * 4
    assert ([a.name for a in kernel.inputs], [a.name for a in kernel.outputs]) == (["x0"], ["out"])


def test_scratch_is_a_multiple_of_a_cache_line():
    with pytest.raises(AssertionError, match="multiples of 64"):
        CpuKernel(name="k", phases=(), args=(), scratch_bytes=1, object_code=b"")


def test_a_manifest_without_a_back_end_is_a_cpus():
    kernel = normalize_kernel()
    entry = json.loads(json.dumps(kernel.to_manifest()))
    assert "backend" not in entry
    assert isinstance(Kernel.from_manifest(entry, kernel.object_code), CpuKernel)


def test_an_unknown_back_end_is_refused():
    entry = {**normalize_kernel().to_manifest(), "backend": "abacus"}
    with pytest.raises(ArtifactError, match="unknown back end 'abacus'"):
        Kernel.from_manifest(entry, b"")


@pytest.mark.parametrize("text", ["", "x", "define void @main()\n" * 99])
def test_texts_are_packed_and_those_of_older_files_are_read(text: str) -> None:
    older = base64.b85encode(zlib.compress(text.encode(), 6)).decode() if text else ""
    assert unpack_text(pack_text(text)) == unpack_text(older) == text
