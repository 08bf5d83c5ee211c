"""How long tests run whole models: for moments, as no test asks which is faster.

`python -m tests.moments` is `autosched` for moments: of its commands, `tune` and `logs report` measure models so.
"""

from __future__ import annotations

import importlib
import sys

MOMENTS_S = {
    "tune.model_check.SWAP_S": 0.05, "tune.graph_search.TRIAL_S": 0.05, "bench.rounds.WARM_UP_S": 0.05,
    "tune.model_check.FINAL_S": 0.1, "tune.graph_search.FINAL_S": 0.1, "report_facts.RUN_S": 0.1,
}  # fmt: skip


def shorten() -> None:
    """Let this process measure for moments."""
    for name, time_s in MOMENTS_S.items():
        module, _, constant = f"autosched.driver.{name}".rpartition(".")
        found = importlib.import_module(module)
        assert hasattr(found, constant), name
        setattr(found, constant, time_s)


if __name__ == "__main__":
    from autosched.cli import main

    if sys.argv[1:2] in (["tune"], ["logs"]):
        shorten()
    sys.exit(main())
