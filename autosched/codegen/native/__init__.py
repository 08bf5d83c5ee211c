"""The loop that runs a graph's kernels and the thread pool's workers, generated once for a machine."""

from autosched.codegen.native.build import native_for, native_object, start_helper_of_first_build

__all__ = ["native_for", "native_object", "start_helper_of_first_build"]
