"""What instructions tell across operators, on recorded spaces whose kernels were counted."""

import pytest

from benchmarks.search_built import main
from benchmarks.spaces.counts import COUNTED, read_counts


def test_every_counted_space_has_vectors_in_its_hot_loops() -> None:
    for path in COUNTED.glob("*.csv.gz"):
        counts = read_counts(path.name.removesuffix(".csv.gz"))
        assert len(counts) >= 100 and all(one[0] > 0 for one in counts.values())
    assert read_counts("no-such-space") == {}


@pytest.mark.slow
def test_instructions_rank_the_kernels_of_another_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "dense-a,conv-a", "--seeds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line in lines[1:5]:
        loops, instructions, both = map(float, line.split()[-3:])
        assert instructions > loops + 0.1 and both > loops + 0.1
    assert all(" 0 of " in line for line in lines[-3:])  # nothing good is called hopeless
