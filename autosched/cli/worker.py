"""`autosched worker`: lends this machine to a cluster for tuning."""

from __future__ import annotations

from pathlib import Path

import click

from autosched.cli.cluster_options import make_access, with_access
from autosched.cli.common import Common, make_command
from autosched.cli.output import count, say
from autosched.cli.values import Count

EXAMPLE = """
autosched worker tcp://127.0.0.1:8786
dask scheduler --host 127.0.0.1            # before that, anywhere
autosched tune model.onnx --on tcp://127.0.0.1:8786
"""


@make_command("worker", example=EXAMPLE)
@click.argument("address")
@click.option("--builders", type=Count(min=1), metavar="N", help="Compile so many at a time (default: one a core).")
@click.option("--no-device", is_flag=True, help="Compile only, measure nothing here.")
@click.option("--name", help="Name of this worker in the scheduler.")
@with_access
def command(
    common: Common,
    address: str,
    builders: int | None,
    no_device: bool,
    name: str | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
) -> int:
    """Join the dask scheduler at ADDRESS and measure for every tuning with `--on ADDRESS`.

    One candidate at a time is run, on this machine's CPU; --target declares what it is where that is not what autosched
    sees. The worker executes what the scheduler sends, so join only one that you trust. Ctrl-C ends it.
    """
    access = make_access(address, tls_ca, tls_cert, tls_key, insecure)
    from autosched.target.threads import choose_threads
    from autosched.tuner.measure.cluster.device import this_device
    from autosched.tuner.measure.cluster.member import join

    device = None if no_device else this_device(common.target, common.threads)
    n_builders = builders or choose_threads(common.threads)

    def started(own: str) -> None:
        what = "nothing is measured here" if device is None else f"measures on {device.text}"
        say(f"{own} has joined {access.url}: {what}; {count(n_builders, 'builder')}", quiet=common.is_quiet)

    join(access, device, builders=n_builders, name=name, started=started)
    return 0
