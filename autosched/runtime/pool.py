"""The thread pool and the native loop, loaded from object code that `codegen.native` generated.

There is one pool in a process (one for each version of the native code, to be exact). Its threads are created by the
C library and run generated code alone: they have no Python state. They start when more than one thread is first asked
for, sleep when idle, and start anew after a fork.

Each worker is pinned to a CPU of its own, one that neither the caller was on nor a worker of another process has, as
long as there are enough (`affinity`); callers keep the affinity that they have. A caller that was pinned after this
module was imported does not take its workers with it: they would all share its one CPU.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field

import numpy as np

from autosched.env import AUTOSCHED_AFFINITY
from autosched.errors import ArtifactError, TVMError
from autosched.runtime import native_abi as abi
from autosched.runtime.affinity import ALLOWED, MASK_BYTES, Claims
from autosched.runtime.loader import load_object_code

_SPINS = 2000  # about 50 µs on current x86 cores
_YIELDS = 500  # some hundred µs where nobody else wants the core
_NAP_NS = 1_000_000
_MAX_THREADS = 1024
# The number of the futex system call; elsewhere than on Linux idle workers nap.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
_FUTEX_WAKE_PRIVATE, _EVERYBODY = 129, 0x7FFFFFFF

_pools: dict[bytes, ThreadPool] = {}
_pools_lock = threading.Lock()


@dataclass(slots=True)
class ThreadPool:
    """The shared words of a pool, its threads, and the function that runs a table of phases.

    run(table, n_rows, pool, threads, number, times)  see `codegen.native.loop.run_graph`
    """

    run: Callable[[int, int, int, int, int, int], int]
    worker_address: int
    words: np.ndarray  # int64, laid out as native_abi says
    address: int
    _threads: list[ctypes.c_void_p] = field(default_factory=list)  # handles of the workers
    _blocks: list[np.ndarray] = field(default_factory=list)  # what each worker was given
    _cpus: list[int | None] = field(default_factory=list)  # that they are pinned to; None: a worker floats
    _claims: Claims = field(default_factory=Claims)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ensure(self, threads: int) -> None:
        """Start workers until `threads` threads can compute, the caller included.

        Raises TVMError if the system refuses to create a thread, InvalidValueError for a wrong AUTOSCHED_AFFINITY.
        """
        if len(self._threads) + 1 >= threads:
            return
        with self._lock:
            for index in range(len(self._threads) + 1, min(threads, _MAX_THREADS)):
                self._start(index)

    def _start(self, index: int) -> None:
        block = np.zeros(abi.WORKER_WORDS, np.int64)
        block[abi.WORKER_POOL], block[abi.WORKER_INDEX] = self.address, index
        handle = ctypes.c_void_p()
        libc = ctypes.CDLL(None)
        cpu = None
        if sys.platform == "linux":
            cpu = self._claims.choose(index, os.sched_getaffinity(0), libc.sched_getcpu())
        # Signals are for the thread that runs Python: a new thread inherits this mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            entry, argument = ctypes.c_void_p(self.worker_address), ctypes.c_void_p(block.ctypes.data)
            code = libc.pthread_create(ctypes.byref(handle), None, entry, argument)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if code != 0:
            raise TVMError(f"cannot start thread {index + 1}: {os.strerror(code)}", hint="use fewer threads")
        if sys.platform == "linux":
            libc.pthread_setname_np(handle, f"autosched-{index}".encode())
        self._blocks.append(block)
        self._threads.append(handle)
        self._cpus.append(cpu if cpu is not None and self._pin(index - 1, {cpu}) else None)

    @contextlib.contextmanager
    def threads_apart(self) -> Iterator[None]:
        """Meanwhile the caller and the workers have CPUs of their own, as far as there are enough for that.

        Where other processes have just stopped, the system may leave both threads of a call on one CPU for 20 ms, and
        two that float for longer.
        """
        if sys.platform != "linux" or AUTOSCHED_AFFINITY.get() == "off":
            yield
            return
        usual = os.sched_getaffinity(0)
        free = sorted(usual - set(self._cpus))
        moved: list[int] = []  # workers that float otherwise
        for i in (i for i, cpu in enumerate(self._cpus) if cpu is None):
            if len(free) > 1 and self._pin(i, {free[-1]}):
                free.pop()
                moved.append(i)
        if free:
            os.sched_setaffinity(0, free)
        try:
            yield
        finally:
            os.sched_setaffinity(0, usual)
            for i in moved:
                self._pin(i, ALLOWED)

    def _pin(self, worker: int, cpus: Set[int]) -> bool:
        """Let a worker, numbered from 0, run on these CPUs alone; whether the system does so."""
        if any(cpu >= 8 * MASK_BYTES for cpu in cpus):
            return False
        mask = sum(1 << cpu for cpu in cpus).to_bytes(MASK_BYTES, "little")
        code: int = ctypes.CDLL(None).pthread_setaffinity_np(self._threads[worker], ctypes.c_size_t(MASK_BYTES), mask)
        return code == 0

    def reset(self) -> None:
        """Forget threads that a fork did not copy, and whatever they were doing."""
        self.words[: abi.POOL_STOP] = 0
        self.words[abi.POOL_RANGES :] = 0
        self._threads, self._blocks, self._cpus, self._lock = [], [], [], threading.Lock()
        self._claims.release()

    def stop(self) -> None:
        """End the workers, unless somebody is computing: then the end of the process ends them."""
        with self._lock:
            if not self._threads or self.words[abi.POOL_LOCK]:
                return
            self.words[abi.POOL_STOP] = 1
            following = (int(self.words[abi.POOL_TICKET]) >> 32) + 1
            self.words[abi.POOL_TICKET] = following % (1 << 31) << 32  # sleepers wait for another epoch; no threads
            libc = ctypes.CDLL(None)
            if _FUTEX is not None:
                epoch = ctypes.c_void_p(self.address + 8 * abi.POOL_TICKET + 4)
                libc.syscall(_FUTEX, epoch, _FUTEX_WAKE_PRIVATE, _EVERYBODY, None, None, 0)
            for handle in self._threads:
                libc.pthread_join(handle, None)
            self._threads, self._blocks, self._cpus = [], [], []
            self.words[abi.POOL_RANGES :] = 0
            self.words[abi.POOL_STOP] = 0
            self._claims.release()


def open_pool(native: bytes) -> ThreadPool:
    """Give the process's pool for the object code of a native loop; loads it on first use.

    Raises ArtifactError if the object code lacks the two functions.
    """
    with _pools_lock:
        if native not in _pools:
            _pools[native] = _make_pool(native)
        return _pools[native]


def _make_pool(native: bytes) -> ThreadPool:
    (table,) = load_object_code([("native loop", native)])
    if not {abi.RUN_SYMBOL, abi.WORKER_SYMBOL} <= table.keys():
        raise ArtifactError("the native loop's object code lacks its functions")
    block = np.zeros(abi.POOL_WORDS + 16, np.int64)
    skip = -block.ctypes.data % 128 // 8
    words = block[skip : skip + abi.POOL_WORDS]
    words[abi.POOL_SPINS], words[abi.POOL_YIELDS] = _SPINS, _YIELDS
    words[abi.POOL_NAP + 1] = _NAP_NS
    words[abi.POOL_SCHED_YIELD] = _c_function("sched_yield")
    words[abi.POOL_NANOSLEEP] = _c_function("nanosleep")
    words[abi.POOL_CLOCK] = _c_function("clock_gettime")
    if _FUTEX is not None:
        words[abi.POOL_SYSCALL], words[abi.POOL_FUTEX] = _c_function("syscall"), _FUTEX
    # Words as pointers: ctypes converts them in half the time of int64.
    run = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 6)(table[abi.RUN_SYMBOL])
    return ThreadPool(run, table[abi.WORKER_SYMBOL], words, int(words.ctypes.data))


def _c_function(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert address is not None, f"{name} has an address"
    return address


def _after_fork() -> None:
    global _pools_lock
    _pools_lock = threading.Lock()
    for pool in _pools.values():
        pool.reset()


def _at_exit() -> None:
    for pool in _pools.values():
        pool.stop()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
