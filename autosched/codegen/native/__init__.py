"""The loop that runs a graph's kernels and the thread pool's workers, generated once for a machine."""

from autosched.codegen.native.build import native_for, native_object, order_native_object

__all__ = ["native_for", "native_object", "order_native_object"]
