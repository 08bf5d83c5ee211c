import subprocess
import sys

import pytest

from autosched.runtime import Device, cpu, cuda, device, ext_dev, rocm
from autosched.target import Target


@pytest.mark.parametrize(
    ("text", "code"),
    [("cpu", 1), ("llvm", 1), ("llvm -mcpu=x86-64-v3", 1), ("c", 1), ("cuda", 2), ("nvptx", 2), ("cl", 4), ("vpi", 9)],
)
def test_device_takes_the_first_word(text, code):
    assert device(text, 3) == Device(code, 3)


def test_device_of_a_target():
    assert device(Target("cuda")) == cuda(0)


def test_unknown_device():
    with pytest.raises(ValueError, match="unknown device 'abacus'"):
        device("abacus")


def test_equality_hash_and_text():
    assert cpu(0) == cpu() == device("cpu")
    assert len({cpu(0), cpu(0), cuda(0)}) == 2
    assert (str(cpu(0)), str(cuda(1)), str(rocm())) == ("cpu:0", "cuda:1", "rocm:0")
    assert (ext_dev().device_type, cuda(1).type, cuda(1).index) == (12, "cuda", 1)


def test_what_a_device_says():
    assert cpu(0).exist
    assert cpu(0).compute_version is None
    absent = cuda(1000)
    assert not absent.exist
    for name in ("device_name", "compute_version", "max_thread_dimensions", "warp_size", "total_global_memory"):
        assert getattr(absent, name) is None
    absent.sync()


@pytest.mark.gpu
@pytest.mark.skipif(not cuda(0).exist, reason="needs a CUDA device")
def test_a_cuda_device_describes_itself():
    assert cuda(0).exist
    assert cuda(0).warp_size == 32
    assert float(cuda(0).compute_version) >= 5
    assert cuda(0).max_thread_dimensions[0] >= 1024
    assert cuda(0).device_name


def test_devices_are_functions_though_back_ends_have_their_names():
    """A sub-package that is loaded late takes its name in the package above."""
    code = (
        "from autosched.runtime.cuda.kernel import CudaKernel\n"
        "import importlib\nimportlib.import_module('autosched.runtime.cpu')\n"
        "import autosched.runtime as r\nprint(r.cpu(0), r.cuda(1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cpu:0", "cuda:1"]
