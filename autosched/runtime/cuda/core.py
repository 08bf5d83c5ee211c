"""`CoreDriver`: NVIDIA's driver through the packages cuda-core and cuda-bindings; the only module that knows them.

The current stream is the legacy default stream where the caller names none: what other libraries (PyTorch, CuPy) put
there by default is in order with our work.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import DeviceError, InvalidTypeError
from autosched.runtime.cuda.driver import Memory, Region
from autosched.runtime.cuda.kernel import CudaKernel, Launch, TensorMap, image_for
from autosched.target.cuda_host import cuda_attribute, cuda_device_count, has_cuda_driver

if TYPE_CHECKING:
    from cuda.core import Buffer, Event, Kernel, LaunchConfig, ObjectCode, Stream

STATIC_SHARED = 49152  # more dynamic shared memory than this has to be allowed for each entry
PORTABLE_CLUSTER = 8  # so has a cluster of more blocks
_KEPT_MAPS = 4096  # tensor maps of 128 bytes
LEGACY_HANDLE = 1  # of the default stream, as the array interface and DLPack name it


class _Block:
    """Memory of the driver's pool."""

    def __init__(self, buffer: Buffer, size_bytes: int):
        self._buffer, self.size_bytes = buffer, size_bytes
        self.address = int(buffer.handle)


class CoreDriver:
    """A device of NVIDIA's driver. Raises DeviceError where there is no driver, package or device of that number."""

    def __init__(self, index: int):
        self.index = index
        core, self._cuda = _packages()
        if not has_cuda_driver():
            raise DeviceError(
                f"cuda:{index} does not exist: no NVIDIA driver is installed, or it does not work",
                hint="autosched doctor says what was found",
            )
        if index >= cuda_device_count():
            raise DeviceError(f"cuda:{index} does not exist", hint=f"there are {cuda_device_count()} CUDA devices here")
        self._core = core
        with _clear():
            self._device = core.Device(index)
            self._device.set_current()
            self.name = str(self._device.name)
            capability = self._device.compute_capability
            self.compute_capability = (int(capability.major), int(capability.minor))
            self._pool = core.DeviceMemoryResource(self._device)
            self._keep_pool()
        self._streams = threading.local()
        self._loaded: dict[bytes, ObjectCode] = {}
        self._maps: dict[tuple[TensorMap, int], object] = {}

    def _keep_pool(self) -> None:
        """Let the pool keep what is freed, for the next allocations."""
        attribute = self._cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        self._call(self._cuda.cuMemPoolSetAttribute(self._pool.handle, attribute, self._cuda.cuuint64_t(2**64 - 1)))

    def _call(self, result: tuple[Any, ...]) -> Any:
        """Check the status of a function of cuda-bindings and give what it returned."""
        status, *values = result
        if int(status) != 0:
            _, name = self._cuda.cuGetErrorString(status)
            text = name.decode() if isinstance(name, bytes) else str(name or status)
            raise DeviceError(f"{self.name} reports: {text}", hint=_hint(text))
        return values[0] if len(values) == 1 else tuple(values)

    @property
    def _stream(self) -> Stream:
        """The current stream of this thread."""
        found = getattr(self._streams, "stack", None)
        return found[-1] if found else self._core.LEGACY_DEFAULT_STREAM

    def _use(self) -> None:
        """Make the device current in this thread, which may be another one than before."""
        self._device.set_current()

    def attribute(self, name: str) -> int | None:
        return cuda_attribute(self.index, name)

    # Memory

    def allocate(self, size_bytes: int) -> Memory:
        self._use()
        try:
            with _clear():
                return _Block(self._pool.allocate(max(size_bytes, 1), stream=self._launch_stream()), size_bytes)
        except DeviceError as error:
            free, total = self.free_bytes()
            if "memory" not in error.message.lower():
                raise
            raise DeviceError(
                f"{self.name} has no room for {_mib(size_bytes)} more: {_mib(free)} of {_mib(total)} are free",
                hint="use a smaller batch, or end other processes on the device",
            ) from error

    def free_bytes(self) -> tuple[int, int]:
        self._use()
        free, total = self._call(self._cuda.cuMemGetInfo())
        return int(free), int(total)

    def copy_in(self, to: int, data: np.ndarray) -> None:
        self._use()
        if data.nbytes:
            self._call(self._cuda.cuMemcpyHtoDAsync(to, data.ctypes.data, data.nbytes, self._handle))
            self.synchronize()

    def copy_out(self, data: np.ndarray, source: int) -> None:
        self._use()
        if data.nbytes:
            self._call(self._cuda.cuMemcpyDtoHAsync(data.ctypes.data, source, data.nbytes, self._handle))
            self.synchronize()

    def copy_on(self, to: int, source: int, size_bytes: int) -> None:
        self._use()
        if size_bytes:
            self._call(self._cuda.cuMemcpyDtoDAsync(to, source, size_bytes, self._handle))

    def fill(self, to: int, byte: int, size_bytes: int) -> None:
        self._use()
        if size_bytes:
            self._call(self._cuda.cuMemsetD8Async(to, byte, size_bytes, self._handle))

    # Kernels

    def load(self, kernel: CudaKernel) -> tuple[Kernel, ...]:
        self._use()
        arch, image = image_for(kernel, self.name, self.compute_capability)
        if not kernel.launches:
            return ()
        with _clear():
            if image not in self._loaded:
                make = (
                    self._core.ObjectCode.from_ptx if arch.startswith("compute") else self._core.ObjectCode.from_cubin
                )
                self._loaded[image] = make(image, name=kernel.name)
            code = self._loaded[image]
            entries = tuple(code.get_kernel(launch.symbol) for launch in kernel.launches)
        for entry, launch in zip(entries, kernel.launches, strict=True):
            self._allow(entry, launch)
        return entries

    def _allow(self, entry: Kernel, launch: Launch) -> None:
        """Ask for what an entry has to be allowed before it is launched."""
        names = self._cuda.CUfunction_attribute
        wanted = []
        if launch.shared_bytes > STATIC_SHARED:
            wanted.append((names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes))
        if launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > PORTABLE_CLUSTER:
            wanted.append((names.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
        for attribute, value in wanted:
            self._call(self._cuda.cuKernelSetAttribute(attribute, value, entry.handle, self.index))

    def launch(self, entry: object, launch: Launch, arguments: Sequence[int | np.generic | Region]) -> None:
        given = [argument.address if type(argument) is Region else argument for argument in arguments]
        if launch.tensor_maps:
            self._launch_with_maps(entry, launch, given)
            return
        with _clear():
            self._core.launch(self._launch_stream(), self._config(launch), entry, *given)

    def _config(self, launch: Launch) -> LaunchConfig:
        """A launch as cuda-core has it: with clusters, its grid counts these."""
        if launch.cluster == (1, 1, 1):
            return self._core.LaunchConfig(grid=launch.grid, block=launch.block, shmem_size=launch.shared_bytes)
        clusters = tuple(blocks // each for blocks, each in zip(launch.grid, launch.cluster, strict=True))
        return self._core.LaunchConfig(
            grid=clusters, cluster=launch.cluster, block=launch.block, shmem_size=launch.shared_bytes
        )

    def _launch_with_maps(self, entry: Kernel, launch: Launch, addresses: Sequence[Any]) -> None:
        """Tensor maps are parameters by value, which the bindings know better than cuda-core does."""
        cuda = self._cuda
        stream = self._launch_stream()
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.shared_bytes
        config.hStream = cuda.CUstream(int(getattr(stream, "stream", stream).handle))
        if launch.cluster != (1, 1, 1):
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = launch.cluster
            config.attrs, config.numAttrs = [attribute], 1
        maps = [self._tensor_map(m, addresses[m.argument] + m.offset_bytes) for m in launch.tensor_maps]
        types = [ctypes.c_void_p] * len(addresses) + [None] * len(maps)
        parameters = ((*addresses, *maps), tuple(types))
        self._call(cuda.cuLaunchKernelEx(config, cuda.CUfunction(int(entry.handle)), parameters, 0))

    def _tensor_map(self, wanted: TensorMap, address: int) -> object:
        """A tensor map for an array at an address; the last ones are kept."""
        key = (wanted, address)
        if key not in self._maps:
            cuda = self._cuda
            if len(self._maps) >= _KEPT_MAPS:
                self._maps.clear()
            self._maps[key] = self._call(
                cuda.cuTensorMapEncodeTiled(
                    getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_UINT{8 * wanted.item_bytes}"),
                    len(wanted.shape),
                    address,
                    [cuda.cuuint64_t(n) for n in reversed(wanted.shape)],
                    [cuda.cuuint64_t(n) for n in reversed(wanted.strides_bytes)],
                    [cuda.cuuint32_t(n) for n in reversed(wanted.box)],
                    [cuda.cuuint32_t(1)] * len(wanted.shape),
                    cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
                    cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
                    cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                    cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
                )
            )
        return self._maps[key]

    def synchronize(self) -> None:
        self._use()
        self._call(self._cuda.cuStreamSynchronize(self._handle))

    # Time

    def record(self) -> Event:
        self._use()
        with _clear():
            return self._stream.record(options=self._core.EventOptions(timing_enabled=True))

    def seconds_between(self, first: Event, last: Event) -> float:
        with _clear():
            last.sync()
            return float(last - first) * 1e-3

    # Streams and graphs

    @property
    def _handle(self) -> object:
        return self._cuda.CUstream(int(self._stream.handle))

    def _launch_stream(self) -> Stream:
        return getattr(self._streams, "builder", None) or self._stream

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        self._use()
        with _clear():
            builder = self._device.create_graph_builder()
            builder.begin_building("thread_local")
            self._streams.builder = builder
            try:
                work()
            finally:
                self._streams.builder = None
                builder.end_building()
            graph = builder.complete()

        def replay() -> None:
            with _clear():
                graph.launch(self._stream)

        return replay

    def capture_parts(self, works: Sequence[Callable[[], None]]) -> Callable[[], list[float]]:
        self._use()
        flags = self._cuda.CUevent_flags.CU_EVENT_DEFAULT
        marks = [self._call(self._cuda.cuEventCreate(flags)) for _ in range(len(works) + 1)]

        def mark(event: object) -> None:
            """A node of the graph: without the flag it would say what comes before what, and keep no time."""
            stream = self._cuda.CUstream(int(self._streams.builder.stream.handle))
            external = self._cuda.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL
            self._call(self._cuda.cuEventRecordWithFlags(event, stream, int(external)))

        def work() -> None:
            mark(marks[0])
            for part, event in zip(works, marks[1:], strict=True):
                part()
                mark(event)

        replay = self.capture(work)
        assert replay is not None, "a device has graphs"

        def run() -> list[float]:
            replay()
            self.synchronize()
            return [1e-3 * self._call(self._cuda.cuEventElapsedTime(*pair)) for pair in itertools.pairwise(marks)]

        weakref.finalize(run, self._destroy, marks)
        return run

    def _destroy(self, events: Sequence[object]) -> None:
        for event in events:
            self._cuda.cuEventDestroy(event)

    def stream_handle(self) -> int:
        return int(self._stream.handle) or LEGACY_HANDLE

    @contextlib.contextmanager
    def on_stream(self, stream: object) -> Iterator[None]:
        self._use()
        found = self._adopt(stream)
        stack = self._streams.__dict__.setdefault("stack", [])
        self._order(self._stream, found)
        stack.append(found)
        try:
            yield
        finally:
            stack.pop()
            self._order(found, self._stream)

    def _order(self, first: Stream, then: Stream) -> None:
        """Let what comes on a stream wait for what is on another one."""
        if first is not then:
            with _clear():
                then.wait(first.record())

    def _adopt(self, stream: object) -> Stream:
        if stream is None or (isinstance(stream, int) and not isinstance(stream, bool) and stream == 0):
            return self._core.LEGACY_DEFAULT_STREAM
        if hasattr(stream, "__cuda_stream__"):
            return self._device.create_stream(stream)
        handle = getattr(stream, "cuda_stream", stream)  # PyTorch's
        if isinstance(handle, bool) or not hasattr(handle, "__index__"):
            raise InvalidTypeError(f"a {type(stream).__name__} is no stream", hint="give a handle or a CUDA stream")
        return self._core.Stream.from_handle(int(handle))


def _packages() -> tuple[ModuleType, ModuleType]:
    """cuda-core and the bindings of the driver's functions. Raises DeviceError where they are not installed."""
    try:
        from cuda import core
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(
            f"the package {error.name or 'cuda-core'} is missing, by which GPUs are driven",
            hint="pip install 'autosched[cuda]'",
        ) from None
    return core, driver


@contextlib.contextmanager
def _clear() -> Iterator[None]:
    """Turn what cuda-core raises into our error. Its class of errors has no public name, so it is known by its text."""
    try:
        yield
    except DeviceError:
        raise
    except Exception as error:
        if type(error).__name__ not in ("CUDAError", "NVRTCError", "DynamicLibNotFoundError", "RuntimeError"):
            raise
        text = str(error)
        raise DeviceError(
            f"the CUDA driver reports: {text.splitlines()[0] if text else error!r}", hint=_hint(text)
        ) from error


def _hint(text: str) -> str:
    if "illegal" in text.lower() or "unspecified launch failure" in text.lower():
        return "a kernel has accessed memory that is not its own; the process cannot use the device any more"
    return "autosched doctor says what was found of the device"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.1f} MiB"
