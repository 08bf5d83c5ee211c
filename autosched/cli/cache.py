"""`autosched cache`: the kernels that were compiled on this machine, and how they get to another one."""

from __future__ import annotations

from pathlib import Path

import click

from autosched.cli.common import Common, make_command
from autosched.cli.groups import SuggestingGroup
from autosched.cli.output import print_json, say
from autosched.cli.paths import check_file, check_output
from autosched.errors import UsageError
from autosched.printable import printable


@click.group(
    "cache",
    cls=SuggestingGroup,
    epilog="\b\nExample:\n  autosched cache pack kernels.zip\n  autosched cache unpack kernels.zip --trust",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Look at the kernels that are kept compiled, write them to one file, and read such a file."""


@make_command("show", example="autosched cache show")
def show_command(common: Common) -> int:
    """Show where compiled kernels are kept, how many there are, and how much space they take."""
    from autosched.runtime.cache import kernel_cache

    cache = kernel_cache()
    count, size = len(cache.entries()), cache.size_bytes()
    if common.format == "json":
        place = None if cache.folder is None else str(cache.folder)
        print_json({"folder": place, "entries": count, "size_bytes": size, "limit_bytes": cache.limit_bytes})
    else:
        place = "nowhere on disk" if cache.folder is None else printable(str(cache.folder))
        click.echo(f"{place}: {count} entries, {size / 1e6:.1f} of {cache.limit_bytes / 1e6:.0f} MB")
    return 0


@make_command("pack", example="autosched cache pack kernels.zip")
@click.argument("file", type=click.Path(path_type=Path))
def pack_command(common: Common, file: Path) -> int:
    """Write all compiled kernels that are kept to FILE, for `autosched cache unpack` on a machine with such a CPU.

    The hash that is printed says that a copy is this file: `unpack --sha256` compares it. The secret by which this
    user's kernels are known is not in the file.
    """
    from autosched.runtime.cache import kernel_cache
    from autosched.runtime.cache_pack import pack

    check_output(file, inputs=[])
    packed = pack(kernel_cache(), file)
    if common.format == "json":
        print_json({"file": str(file), "entries": packed.n_entries, "sha256": packed.sha256})
    else:
        say(f"{packed.n_entries} entries written to {file}", quiet=common.is_quiet)
        click.echo(f"sha256 {packed.sha256}")
    return 0


@make_command(
    "unpack", example="autosched cache unpack kernels.zip --sha256 4b1f…\nautosched cache unpack kernels.zip --trust"
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--sha256", metavar="HASH", help="Take the file that has this one, and no other: `pack` prints it.")
@click.option("--trust", is_flag=True, help="Take the file whatever it holds: you trust whoever packed it.")
def unpack_command(common: Common, file: Path, sha256: str | None, trust: bool) -> int:
    """Put the compiled kernels in FILE into this user's cache.

    FILE holds machine code, which later builds run without asking. This command signs it with your own secret, as if it
    had been compiled here: say with `--sha256` or `--trust` that you want that. A file that other users can change is
    refused. Kernels of other versions or CPUs do no harm; they are not found, and go when space is short.
    """
    from autosched.runtime.cache import kernel_cache
    from autosched.runtime.cache_pack import unpack

    check_file(file)
    if sha256 is None and not trust:
        raise UsageError(
            f"'{file}' holds machine code, which builds would run",
            hint="give `--sha256 HASH`, which `autosched cache pack` printed, or `--trust`",
        )
    packed = unpack(kernel_cache(), file, sha256)
    if common.format == "json":
        print_json({"entries": packed.n_entries, "new": packed.n_new, "sha256": packed.sha256})
    else:
        say(f"{packed.n_entries} entries in {file}, {packed.n_new} of them new", quiet=common.is_quiet)
    return 0


for _one, _text in (
    (show_command, "Show where kernels are kept, and how many."),
    (pack_command, "Write all kernels to one file."),
    (unpack_command, "Take the kernels of a file that you trust."),
):
    _one.short_help = _text
    command.add_command(_one)
