"""How patient Python's collector of cycles is while something compiles."""

import gc

import pytest

from autosched.codegen.collector import PATIENT, patient_collector


@pytest.fixture(autouse=True)
def usual():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_waits_longer_inside_and_as_before_afterwards():
    before = gc.get_threshold()
    with patient_collector():
        assert gc.get_threshold() == PATIENT
        with patient_collector():
            assert gc.get_threshold() == PATIENT
        assert gc.get_threshold() == PATIENT
    assert gc.get_threshold() == before


def test_it_is_put_back_after_an_error():
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), patient_collector():
        1 / 0  # noqa: B018
    assert gc.get_threshold() == before


@pytest.mark.parametrize("chosen", [(0, 10, 10), (10**9, 10, 10)])
def test_a_collector_that_is_off_or_more_patient_stays_so(chosen):
    gc.set_threshold(*chosen)
    with patient_collector():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_compiling_lets_it_wait(monkeypatch):
    from autosched.codegen import compile_func
    from autosched.codegen.cpu import build
    from tests.codegen.test_compile import scale

    found = []
    compile_uncached = build.compile_uncached
    monkeypatch.setattr(
        build, "compile_uncached", lambda *args: (found.append(gc.get_threshold()), compile_uncached(*args))[1]
    )
    compile_func(scale(9.0), "cpu", name="scale", use_cache=False)
    assert found == [PATIENT]
