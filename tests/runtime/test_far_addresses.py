"""Kernels are loaded where the free addresses of a process lie more than 2 GiB apart.

Machine code reaches its constants by distances of 32 bits, so all sections of an object have to lie together. A process
whose low holes are full, and that has mapped gigabytes of weights below them, has no room for that by chance alone.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, mmap
from autosched.runtime import loader
from autosched.runtime.cpu.machine import target_machine
import llvmlite.binding as llvm

SOURCE = '''
@table = internal constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]
declare float @expf(float)
declare i8* @memset(i8*, i32, i64)
define float @at_NUMBER(i64 %i) {
  %space = alloca [64 x i8]
  %start = getelementptr [64 x i8], [64 x i8]* %space, i64 0, i64 0
  %filled = call i8* @memset(i8* %start, i32 0, i64 64)
  %zero = load volatile i8, i8* %start
  %position = getelementptr [4 x float], [4 x float]* @table, i64 0, i64 %i
  %value = load float, float* %position
  %scaled = fmul float %value, 3.5
  %x = uitofp i8 %zero to float
  %one = call float @expf(float %x)
  %result = fmul float %scaled, %one
  ret float %result
}
'''
machine = target_machine(llvm.get_process_triple(), "", "")
objects = [(str(n), machine.emit_object(llvm.parse_assembly(SOURCE.replace("NUMBER", str(n))))) for n in range(16)]
loader.load_object_code(objects[-1:])

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

def reserve(size):
    address = libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, anonymous, without reservation
    assert address != ctypes.c_void_p(-1).value
    return address

wall = reserve(8 << 30)
while reserve(PAGE) > wall:  # holes above it
    pass
for pages in range(1, 6):  # a hole into which some of an object's sections go
    libc.munmap(wall + (8 << 30) - 32 * pages * PAGE, pages * PAGE)
    some = objects[2 * pages : 2 * pages + 2]
    for (name, _), addresses in zip(some, loader.load_object_code(some), strict=True):
        function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(addresses["at_" + name])
        assert function(2) == 10.5
print("loaded")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are given as Linux gives them")
def test_sections_of_an_object_lie_together() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "loaded\n"), ran.stderr[-2000:]
