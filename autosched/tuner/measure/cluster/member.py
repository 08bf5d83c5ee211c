"""A worker of a cluster: joins a scheduler and serves builds and runs until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable

from autosched.errors import AutoschedError
from autosched.records.scratch import Scratch
from autosched.tuner.measure.cluster.device import BUILD, INFO, Device
from autosched.tuner.measure.cluster.security import CONNECT_S, Access, check_access, is_loopback


def join(
    access: Access,
    device: Device | None,
    *,
    builders: int,
    name: str | None = None,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve a scheduler until it ends or this process gets SIGINT or SIGTERM.

    device    what candidates are run on, one at a time; None: this worker compiles only
    builders  candidates that are compiled at the same time
    started   called with the worker's address once it has joined
    Raises    UsageError, AutoschedError if the scheduler cannot or must not be joined, or if it has gone.
    """
    url = check_access(access)
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with Scratch("worker") as folder:
        is_told = asyncio.run(_serve(access, url, device, builders, name, started, str(folder)))
    if not is_told:
        raise AutoschedError(f"the scheduler at {url} is gone")


async def _serve(
    access: Access,
    url: str,
    device: Device | None,
    builders: int,
    name: str | None,
    started: Callable[[str], None] | None,
    folder: str,
) -> bool:
    """Run the worker; tells whether it was ended by a signal."""
    import dask
    from distributed import Worker

    from autosched.tuner.measure.cluster import work

    dask.config.set({"distributed.worker.profile.enabled": False, "distributed.worker.use-file-locking": False})
    resources = {BUILD: float(builders), **({device.tag: 1.0} if device else {})}
    info = device.to_json() if device else ""
    worker = Worker(
        url,
        name=name or f"autosched-{os.getpid()}",
        nthreads=builders + 1,
        resources=resources,
        startup_information={INFO: lambda _: info},
        security=access.security(),
        host="127.0.0.1" if is_loopback(url) else None,
        dashboard_address="127.0.0.1:0",
        local_directory=folder,
        memory_limit=0,
        death_timeout=CONNECT_S,
    )
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        await worker
        if started is not None:
            started(worker.address)
        ending = {asyncio.create_task(stopped.wait()), asyncio.create_task(worker.finished())}
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        return False
    finally:
        work.close_all()
        await worker.close(timeout=2, executor_wait=False)
    return stopped.is_set()
