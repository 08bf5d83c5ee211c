"""Running kernels on the CPU."""

from autosched.runtime.cpu.kernel import CpuKernel, Phase

KERNEL = CpuKernel
