"""The sections of `make gpu-check`: what each measures, against whom, and the bar that it is held against."""

from __future__ import annotations

from benchmarks.gpu.bench import Section
from benchmarks.gpu.correctness import correctness
from benchmarks.gpu.kernels import attention, convolutions, simt, small_m, tensor_cores
from benchmarks.gpu.memory import memory_bound
from benchmarks.gpu.models import models, overhead
from benchmarks.gpu.tuning import recording, tuning

SECTIONS: dict[str, Section] = {
    "correctness": Section("All templates at full sizes, and compute-sanitizer", "all clean", 80, correctness),
    "simt": Section("float32 without tensor cores / cuBLAS", "≥ 0.95", 30, simt),
    "tensor": Section("f16, bf16, tf32 / cuBLAS", "≥ 0.90", 50, tensor_cores),
    "small-m": Section("Few rows / cuBLAS", "≥ 1.1", 25, small_m),
    "conv": Section("Convolutions of ResNet-50 / cuDNN's best algorithm", "≥ 1.0 geometric mean", 90, convolutions),
    "attention": Section("Attention / the best of PyTorch's", "≥ 0.90", 40, attention),
    "memory": Section("Bound by memory / PyTorch, and the copy bandwidth", "≥ 0.92 of the copy", 30, memory_bound),
    "overhead": Section("A graph of 100 kernels", "≤ 1 µs a kernel", 12, overhead),
    "models": Section("Models / torch.compile max-autotune", "≥ 1.2 at batch 1, ≥ 1.0 at 32", 150, models),
    "tuning": Section("Tuning", "≥ 10 trials a second; default / best ≤ 1.25", 55, tuning),
    "recording": Section("Whole spaces, recorded", "the bars of replay", 45, recording),
}
