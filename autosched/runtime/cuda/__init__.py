"""Running kernels on NVIDIA's GPUs."""

from autosched.runtime.cuda.kernel import CudaKernel, Launch, LaunchResources, Resources

KERNEL = CudaKernel
