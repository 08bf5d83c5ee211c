import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from autosched.space import Config, ConfigSpace, choice
from autosched.task import Measurement, Status, Trial
from autosched.testing.tasks import bowl_space, bowl_time_s
from autosched.tuner.cost_model import FEATURES, Source, TrialsHint, WorkloadsHint


def trials_of(space: ConfigSpace, factor: float = 3.0) -> list[Trial]:
    return [Trial(c, Measurement(Status.OK, (factor * bowl_time_s(c),))) for c in space]


def test_known_configurations_keep_their_order() -> None:
    space = bowl_space((8, 8), "")
    hint = TrialsHint(trials_of(space))
    rows = space.all_rows()
    scores = hint.scores(space, rows)
    times = np.array([bowl_time_s(c) for c in space.to_configs(rows)])
    assert np.allclose(scores, np.minimum(np.log(times / times.min()), scores.max()))
    assert np.isclose(scores.max(), max(np.log(2), np.median(np.log(times / times.min()))))  # slow ones alike


def test_unknown_configurations_are_guessed() -> None:
    space = bowl_space((12, 12), "")
    hint = TrialsHint([trial for i, trial in enumerate(trials_of(space)) if i % 2])
    unknown = space.to_rows([c for i, c in enumerate(space) if i % 2 == 0])
    times = np.array([bowl_time_s(c) for c in space.to_configs(unknown)])
    assert np.corrcoef(hint.scores(space, unknown), np.minimum(np.log(times), -5))[0, 1] > 0.6


def test_other_candidates_and_failures() -> None:
    there = ConfigSpace("t", [choice("a", [1, 2, 4, 8, 16, 32])])
    here = ConfigSpace("t", [choice("a", [3, 8, 12, 64])])
    told = [Trial(c, Measurement(Status.OK, (abs(c["a"] - 8) + 1.0,))) for c in there if c["a"] < 32]
    told.append(Trial(Config("t", {"a": 64}), Measurement(Status.TIMEOUT)))
    scores = TrialsHint(told).scores(here, here.all_rows())
    assert scores[1] == 0 and scores[3] == scores.max() > scores[0] and np.isfinite(scores).all()


def test_hardly_any_trials_say_nothing() -> None:
    space = bowl_space((4, 4), "")
    assert (TrialsHint(trials_of(space)[:3]).scores(space, space.all_rows()) == 1).all()
    assert len(TrialsHint([]).scores(space, space.all_rows()[:0])) == 0


def test_other_workloads_are_compared_by_their_own_best() -> None:
    def times(space: ConfigSpace, size: int, factor: float) -> Source:
        trials = [Trial(c, Measurement(Status.OK, (factor * (1 + abs(c["a"] - size // 8)),))) for c in space]
        return Source(trials, {"M": size})

    space = ConfigSpace("t", [choice("a", range(1, 17)), choice("b", [1, 2, 4])])
    sources = [times(space, size, factor) for size, factor in ((16, 1.0), (32, 50.0), (96, 7.0), (128, 0.1))]
    scores = WorkloadsHint(sources, {"M": 112}).scores(space, space.all_rows())
    best = space.to_configs(space.all_rows())[int(np.argmin(scores))]
    assert abs(best["a"] - 14) <= 3 and scores.min() < 0.5 * scores.max()


def test_no_sources_say_nothing() -> None:
    space = bowl_space((4, 4), "")
    assert (WorkloadsHint([], {"M": 3}).scores(space, space.all_rows()) == 1).all()
    assert (WorkloadsHint([Source([])], {}).scores(space, space.all_rows()) == 1).all()


def test_what_is_known_elsewhere_is_the_fastest_and_others() -> None:
    space = bowl_space((8, 8), "")
    rows, log_s = TrialsHint(trials_of(bowl_space((9, 8), ""))).known(space, 20)
    assert 10 <= len(rows) <= 20 and len(np.unique(rows, axis=0)) == len(rows) and space.valid_rows(rows).all()
    times = np.sort(np.log([3.0 * bowl_time_s(c) for c in space]))
    assert np.allclose(np.sort(log_s)[:10], times[:10]) and log_s.max() > times[20]
    assert len(WorkloadsHint([], {}).known(space, 20)[0]) == 0


def shuffled(trials: list[Trial]) -> list[Trial]:
    order = np.random.default_rng(3).permutation(len(trials))
    return [Trial(trial.config, trials[i].measurement) for trial, i in zip(trials, order, strict=True)]


def test_mixed_up_trials_say_nothing() -> None:
    space = bowl_space((8, 8), "")
    good, bad = trials_of(space), shuffled(trials_of(space))
    assert TrialsHint(good).is_telling and WorkloadsHint([Source(good, {"M": 3})], {"M": 4}).is_telling
    assert not TrialsHint(bad).is_telling and not WorkloadsHint([Source(bad, {"M": 3})], {"M": 4}).is_telling
    assert (TrialsHint(bad).scores(space, space.all_rows()) == 1).all()


def test_one_mixed_up_source_among_good_ones_is_left_out() -> None:
    space = bowl_space((8, 8), "")
    good = Source(trials_of(space), {"M": 3})
    both = WorkloadsHint([good, Source(shuffled(trials_of(space)), {"M": 3})], {"M": 4})
    rows = space.all_rows()
    assert np.array_equal(both.scores(space, rows), WorkloadsHint([good], {"M": 4}).scores(space, rows))


def test_of_few_shapes_a_size_is_only_a_name() -> None:
    space = ConfigSpace("t", [choice("a", range(1, 17)), choice("b", [1, 2, 4])])

    def source(size: int) -> Source:
        return Source(
            [Trial(c, Measurement(Status.OK, (1.0 + abs(c["a"] - 4),))) for c in space], {"M": size, "N": size}
        )

    rows = space.all_rows()
    scores = [WorkloadsHint([source(16), source(32)], {"M": m, "N": m}).scores(space, rows) for m in (8, 4096)]
    assert np.array_equal(*scores)


def nested(space: ConfigSpace, best: int) -> tuple[list[Trial], np.ndarray]:
    """Trials whose time hangs on the bytes that miss a cache, which are fewest where `a` is `best`; their features."""
    configs = list(space)
    loops = np.zeros((len(configs), len(FEATURES)))
    loops[:, FEATURES.index("flops")] = 20.0
    loops[:, FEATURES.index("l2_miss_bytes")] = [18.0 + abs(c["a"] - best) for c in configs]
    times = 2.0 ** (loops[:, FEATURES.index("l2_miss_bytes")] / 4)
    trials = [
        Trial(c, Measurement(Status.OK, (t,), how={"loops": f.tolist()})) for c, t, f in zip(configs, times, loops)
    ]
    return trials, loops


def test_loop_nests_tell_what_knobs_cannot() -> None:
    space = ConfigSpace("t", [choice("a", range(1, 17)), choice("b", [1, 2, 4])])
    sources = [Source(nested(space, best)[0], {"M": best}) for best in (4, 12)]
    here = dict(zip((c.key for c in space), nested(space, 7)[1], strict=True))
    asked: list[str] = []

    def describe(configs: Sequence[Config]) -> np.ndarray:
        asked.extend(config.key for config in configs)
        return np.array([here[config.key] for config in configs])

    hint, rows = WorkloadsHint(sources, {"M": 7}, describe=describe), space.all_rows()
    configs = space.to_configs(rows)
    scores = hint.closer(space, rows)
    assert configs[int(np.argmin(scores))]["a"] in (6, 7, 8)
    far = WorkloadsHint(sources, {"M": 7}).closer(space, rows)
    assert abs(configs[int(np.argmin(far))]["a"] - 7) > 1  # by knobs alone: between the two, everything is alike
    hint.closer(space, rows[:9])
    assert len(asked) == len(set(asked)) == len(rows)  # each is described once


def test_what_has_no_loop_nest_comes_last() -> None:
    space = ConfigSpace("t", [choice("a", range(1, 17)), choice("b", [1, 2, 4])])
    trials, loops = nested(space, 4)
    loops[:3] = np.nan
    here = dict(zip((c.key for c in space), loops, strict=True))
    hint = WorkloadsHint([Source(trials)], {}, describe=lambda configs: np.array([here[c.key] for c in configs]))
    scores = hint.closer(space, space.to_rows(list(space)))
    assert np.isinf(scores[:3]).all() and np.isfinite(scores[3:]).all()


def test_without_features_in_the_records_nobody_is_asked_for_some() -> None:
    space = bowl_space((8, 8), "")
    rows = space.all_rows()

    def describe(configs: Sequence[Config]) -> np.ndarray:
        raise AssertionError("nothing to compare with")

    sources = [Source(trials_of(space), {"M": 3}), Source(shuffled(nested(space, 4)[0]), {"M": 4})]
    hint = WorkloadsHint(sources, {"M": 5}, describe=describe)
    assert np.array_equal(hint.closer(space, rows), hint.scores(space, rows))
    damaged = [
        dataclasses.replace(t, measurement=dataclasses.replace(t.measurement, how={"loops": [1.0]}))
        for t in trials_of(space)
    ]
    assert Source(damaged).loops() == {} and len(Source(nested(space, 4)[0]).loops()) == len(rows)


def test_looking_closer_ends_where_it_takes_long() -> None:
    space = ConfigSpace("t", [choice("a", range(1, 17)), choice("b", [1, 2, 4])])
    trials, loops = nested(space, 4)

    def describe(configs: Sequence[Config]) -> np.ndarray:
        end = time.process_time() + 0.25
        while time.process_time() < end:
            pass
        return loops[:1]

    hint = WorkloadsHint([Source(trials)], {}, describe=describe)
    rows = space.all_rows()
    assert 1 <= np.isfinite(hint.closer(space, rows)).sum() <= 4
    assert np.isinf(hint.closer(space, rows[20:])).all()  # the next ask spends no more
