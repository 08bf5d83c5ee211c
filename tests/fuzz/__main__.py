"""`python -m tests.fuzz`: see the package."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.kinds import KINDS
from tests.fuzz.run import fuzz


def main() -> int:
    """Fuzz the kinds that are named; 1 where a mutant was neither read nor refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Reads mutated files.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (default: all)")
    parser.add_argument("--count", type=int, default=200, help="mutants of each kind (200)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print what happened to the bad ones")
    options = parser.parse_args()
    bad = 0
    for name in options.kinds or KINDS:
        if name not in KINDS:
            parser.error(f"no kind '{name}': {', '.join(KINDS)}")
        found = fuzz(name, options.count, options.seed, options.first)
        print(found, flush=True)
        bad += len(found.bad)
        for number, text in found.bad if options.show else ():
            print(f"  --first {number} --count 1:\n    " + text.strip().replace("\n", "\n    "), flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
