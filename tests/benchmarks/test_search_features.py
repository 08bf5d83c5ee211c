import pytest

from benchmarks.search_features import main


@pytest.mark.slow
def test_loop_features_alone_rank_the_configurations_of_another_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--configs", "30"]) == 0
    alike = [float(line.split()[2]) for line in capsys.readouterr().out.splitlines()[1:] if line.split()[1] == "loops"]
    assert len(alike) == 4 and min(alike) > 0.6
