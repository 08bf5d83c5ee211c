"""Forms are compared with kernels compiled for their sizes, on the same arrays."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autosched.runtime.cpu.kernel import as_cpu
from benchmarks.forms import Chain, Compared, main, same_results, summary
from benchmarks.kernels import choose
from benchmarks.peers import save
from benchmarks.records import records_for

POOL = choose(["memory"], "average pool")[0]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    return Chain.of(save(POOL.model(2), tmp_path_factory.mktemp("forms"), "chain"), records_for())


def test_a_chain_has_its_forms_with_their_numbers_too(chain: Chain) -> None:
    assert chain.numbers
    assert all(as_cpu(kernel).sized is None for kernel in chain.numbers.values())
    same_results(chain)


def test_both_programs_read_and_write_the_same_memory(chain: Chain) -> None:
    rng = random.Random(0)
    pairs = [chain.programs(rng) for _ in range(2)]
    places = [[program.view(n).ctypes.data for program in pair for n in chain.built.graph.outputs] for pair in pairs]
    assert all(a == b for found in places for a, b in zip(found[: len(found) // 2], found[len(found) // 2 :]))
    assert places[0] != places[1]


def test_rows_without_forms_count_as_one() -> None:
    def row(form_s: float) -> Compared:
        return Compared(POOL, ("add",), (np.full(8, form_s),), (np.full(8, 1.0),))

    assert row(1.21).ratio == (1.21, 0.0)
    assert summary([row(1.21), Compared(POOL, (), (), ())]).startswith("geometric mean 1.1000 ± 0.0000, largest 1.210")
    assert "missed" in row(1.21).columns[3]
    assert "missed" not in row(1.03).columns[3]


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--only", "memory", "--rows", "add+ReLU 128x768", "--time", "0.02", "--placements", "2"])
    assert "| add+ReLU 128x768 |" in capsys.readouterr().out
