"""Bayesian optimisation on clipped logarithmic times: expected improvement over all candidates.

The expected time is the mean of two Gaussian processes with different ideas of likeness: by distance alone
(`JointKernel`), and by knobs that act on their own, in pairs and together (`SpaceKernel`). On three recorded spaces
(10 seeds) the first alone was ahead at 50 evaluations (.962 to .947) but got stuck more often (.980 to .996 at 100).

Expected improvement counts .7 of the deviations. Exploring less was ahead on recorded spaces, exploring more was behind
(`benchmarks/results/search-gpu.md`).

A small space is judged whole at every step. In a large one, candidates are drawn anew and the most promising ones are
improved from neighbour to neighbour. Batches are picked by kriging believer: what was picked, now or before and
without an outcome yet, counts as measured with its predicted time, which lowers the uncertainty around it.

Source: Jones, Schonlau, Welch 1998, Efficient global optimization; Ginsbourger, Le Riche, Carraro 2010.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.space import ConfigSpace
from autosched.tuner.cost_model import (
    Expectation,
    Feasibility,
    GaussianProcess,
    Hint,
    JointKernel,
    Observed,
    Points,
    Posterior,
    SpaceKernel,
    clip_log_times,
    expected_improvement,
    likely,
    most_telling,
    one_thread,
)
from autosched.tuner.search.base import BaseSearch, History
from autosched.tuner.search.pool import Pool

START = 10  # configurations far from each other, before the model is asked
LEAST_TRIALS = 4  # with a time, for a model
CANDIDATES = 3000  # configurations of a large space that are judged at each step
CLIMBERS = 8  # of them: the most promising, from which neighbours are judged as well
CLIMBS = 6  # how often
REFIT = 0.03  # share of new trials after which the parameters are fitted again
ITERATIONS = 8  # steps of such a fit, which starts from the one before
FIRST_ITERATIONS = 60
MAX_TRIALS = 400  # of more, the best half and the latest half are used: the cost grows with the cube
KNOWN_ELSEWHERE = 120  # trials of another device from which length scales are learned: half the best, half any
CAPACITY = 64  # trials that a posterior can take before it is made anew
PICKED_FROM = 2000  # candidates of the highest gains, among which a batch nearly always is
DOUBT = 0.7  # share of a model's deviation that expected improvement counts


class GaussianProcessSearch(BaseSearch):
    """Proposes what is expected to improve most on the best known."""

    name = "gp"

    def __init__(self, space: ConfigSpace, *, seed: int = 0, start: int = START, hints: Sequence[Hint] = ()):
        super().__init__(space, seed=seed, start=start, hints=hints)
        self.seed = seed
        self.feasibility = Feasibility(seed)
        self._variation = Variation(self.pool, self.history)
        self._form: SpaceForm | None = None
        self._models: list[GaussianProcess] = []
        self._fitted_on = 0  # trials at the last fit of the parameters
        self._observed_of: tuple[tuple[int, int], list[Observed]] = (
            (0, 0),
            [],
        )  # for how many trials, and fitted on how many
        self._posteriors: list[Posterior] = []  # over the whole of a listed space, for the trials `_used`
        self._used = np.zeros(0, dtype=np.int64)  # positions in the history, in the posterior's order

    def spread_beside(self, start: int) -> int:
        """None: what hints say is an expectation, which the first trials confirm or correct."""
        return 0

    def propose(self, n: int) -> np.ndarray:
        """The best by expected improvement times probability of success, each lowering the uncertainty near it."""
        if int(self.history.ok.sum()) < LEAST_TRIALS:
            return self.pool.random(n)
        with one_thread():
            self._fit()
            self.feasibility.learn(self.history.numbers, self.history.ok)
            if self.pool.is_listed:
                return self._from_list(n)
            varied = self._variation.rows(n)
            if len(varied) == n:
                return varied
            rows, known = self._from_samples(n), {row.tobytes() for row in varied}
            others = np.compress([row.tobytes() not in known for row in rows], rows, axis=0)
            return np.concatenate([others[: n - len(varied)], varied])

    # ---- the model

    def _fit(self) -> None:
        history = self.history
        if self._form is None:
            self._form = SpaceForm(self.space, self.pool.reference(CANDIDATES), len(self.hints))
            self._models = [GaussianProcess(kernel) for kernel in self._form.kernels]
            self._learn_lengths()
        first = self._fitted_on == 0
        if not first and len(history) <= self._fitted_on * (1 + REFIT):
            return
        rows, numbers, log_s = history.rows[history.ok], history.numbers[history.ok], history.log_s[history.ok]
        target = self._expect(log_s, numbers).targets(log_s, self._form.hinted(numbers))
        for model in self._models:
            model.fit(self._form.points(rows, numbers), target, FIRST_ITERATIONS if first else ITERATIONS)
        self._fitted_on, self._posteriors = len(history), []

    def _expect(self, log_s: np.ndarray, numbers: np.ndarray) -> Expectation:
        """What the hints and these trials lead to expect."""
        assert self._form is not None, "called after _fit has made it"
        return Expectation.of(log_s, self._form.hinted(numbers), self._form.spread, self._form.reach)

    def _learn_lengths(self) -> None:
        """Fit length scales to the first hint that knows enough times of this space, as a prior for ours."""
        assert self._form is not None, "called when the form is made"
        for hint in self.hints:
            rows, log_s = hint.known(self.space, KNOWN_ELSEWHERE)
            if len(rows) < KNOWN_ELSEWHERE // 4:
                continue
            for model in self._models:
                elsewhere = GaussianProcess(type(model.kernel)(model.kernel.tables))
                elsewhere.fit(self._form.codes(rows), clip_log_times(log_s), FIRST_ITERATIONS)
                model.expect_lengths(elsewhere.parameters.lengths)
            return

    def _condition(
        self, rows: np.ndarray, numbers: np.ndarray, hot: np.ndarray | None, capacity: int
    ) -> list[Posterior]:
        """Posteriors over candidates for the trials that tell most, which `_used` then names."""
        assert self._form is not None, "called after _fit"
        ok = np.flatnonzero(self.history.ok)
        self._used = ok[most_telling(self.history.log_s[ok], MAX_TRIALS)]
        points = self._form.points(self.history.rows[self._used], self.history.numbers[self._used])
        candidates = self._form.points(rows, numbers)
        hot = self._form.kernels[0].one_hot(candidates) if hot is None else hot
        if self._observed_of[0] != (len(self.history), self._fitted_on):
            self._observed_of = (len(self.history), self._fitted_on), [model.observed(points) for model in self._models]
        pairs = zip(self._models, self._observed_of[1], strict=True)
        return [model.condition(observed, candidates, hot, capacity) for model, observed in pairs]

    # ---- a listed space

    def _from_list(self, n: int) -> np.ndarray:
        rows, numbers, is_open = self.pool.listing()
        posteriors = self._up_to_date(rows, numbers)
        success = self.feasibility.predict_listed(numbers)
        candidates = np.flatnonzero(is_open)
        candidates = candidates[likely(success[candidates], n)]
        coming = [self.pool.index_of(row) for row in self.in_flight]
        return np.take(rows, self._pick(posteriors, numbers, candidates, success, n, coming), axis=0)

    def _up_to_date(self, rows: np.ndarray, numbers: np.ndarray) -> list[Posterior]:
        """The posteriors over the whole list for all trials; new ones are added to those of before."""
        posteriors, ok = self._posteriors, np.flatnonzero(self.history.ok)
        new = ok[len(self._used) :]
        if not posteriors or len(ok) > MAX_TRIALS or len(ok) > posteriors[0].capacity:
            assert self._form is not None, "called after _fit"
            self._posteriors = self._condition(rows, numbers, self._form.listed_hot(rows, numbers), CAPACITY)
            return self._posteriors
        for i in new:
            at = self.pool.index_of(self.history.rows[i])
            for posterior in posteriors:
                posterior.add(at)
        self._used = ok
        return posteriors

    # ---- a large space

    def _from_samples(self, n: int) -> np.ndarray:
        best = self.history.best_rows(24)
        rows, numbers = self.pool.candidates(best, CANDIDATES)
        if not len(rows):
            return rows
        seen = {row.tobytes() for row in rows}
        top = self._score(rows, numbers)
        for _ in range(CLIMBS):
            peaks = rows[np.argsort(-top, kind="stable")[:CLIMBERS]]
            near = self.pool.untaken(np.concatenate([self.space.neighbour_rows(row) for row in peaks]))
            fresh = {key: row for row in near if (key := row.tobytes()) not in seen}
            if not fresh:
                break
            seen.update(fresh)
            new = np.array(list(fresh.values()))
            new_numbers = self.pool.encode(new)
            new_top = self._score(new, new_numbers)
            is_better = new_top.max() > top.max()
            rows, numbers = np.concatenate([rows, new]), np.concatenate([numbers, new_numbers])
            top = np.concatenate([top, new_top])
            if not is_better:
                break
        chosen = np.argsort(-top, kind="stable")[: max(200, 40 * n)]
        candidates = likely(self.feasibility.predict(numbers[chosen]), n)
        rows = np.concatenate([rows[chosen], self.in_flight])
        numbers = np.concatenate([numbers[chosen], self.pool.encode(self.in_flight)])
        coming = range(len(chosen), len(rows))
        posteriors = self._condition(rows, numbers, None, len(coming) + n)
        success = self.feasibility.predict(numbers)
        return np.take(rows, self._pick(posteriors, numbers, candidates, success, n, coming), axis=0)

    def _score(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        beliefs = self._beliefs(self._condition(rows, numbers, None, 0), numbers)
        every = np.arange(len(rows))
        return np.asarray(sum(belief.gain(every) for belief in beliefs) * self.feasibility.predict(numbers))

    # ---- both

    def _beliefs(self, posteriors: list[Posterior], numbers: np.ndarray) -> list[Belief]:
        """What each process believes of its candidates: the mean of all, and its own uncertainty."""
        assert self._form is not None, "called after _fit"
        log_s, known = self.history.log_s[self._used], self.history.numbers[self._used]
        expectation = self._expect(log_s, known)
        target = expectation.targets(log_s, self._form.hinted(known))
        mean = np.mean([posterior.mean(target) for posterior in posteriors], axis=0)
        mean = mean + expectation.expected(self._form.hinted(numbers))
        best = float(expectation.clipping(log_s).min())
        return [Belief(posterior, mean, best) for posterior in posteriors]

    def _pick(
        self,
        posteriors: list[Posterior],
        numbers: np.ndarray,
        candidates: np.ndarray,
        success: np.ndarray,
        n: int,
        coming: Sequence[int],
    ) -> list[int]:
        """Positions of the `n` best of the candidates, one after the other.

        coming  positions of what was picked before and is not measured yet
        """
        beliefs = self._beliefs(posteriors, numbers)
        gain = _gain(beliefs, candidates, success)
        order = np.argsort(-gain, kind="stable")
        for size in (PICKED_FROM, len(order)):
            likeliest = candidates[np.sort(order[:size])]
            some = np.concatenate([np.asarray(coming, np.int64), likeliest])
            parts = [belief.among(some) for belief in beliefs]
            picked, gains = pick(parts, success[some], n, len(coming))
            others = order[size:]
            if not len(others) or not picked:
                break
            # What is picked only lowers gains: those of others cannot be higher than before, nor than after the first.
            after = _gain([belief.aimed_at(some[picked[0]]) for belief in beliefs], candidates[others], success)
            if gains[0] >= gain[others].max() and min(gains[1:], default=np.inf) >= after.max():
                break
        return [int(some[i]) for i in picked]


class Belief:
    """One process while a batch is picked: what was picked counts as measured with the predicted time."""

    def __init__(self, posterior: Posterior, mean: np.ndarray, best: float):
        self._posterior, self._mean, self._best = posterior, mean, best

    def gain(self, candidates: np.ndarray) -> np.ndarray:
        """Expected improvement of some candidates."""
        deviation = DOUBT * np.sqrt(self._posterior.variance[candidates])
        return expected_improvement(self._mean[candidates], deviation, self._best)

    def aimed_at(self, position: int) -> Belief:
        """The same where the candidate at `position` is to be improved on."""
        return Belief(self._posterior, self._mean, min(self._best, float(self._mean[position])))

    def believe(self, position: int) -> None:
        """The candidate at `position` was picked."""
        self._best = min(self._best, float(self._mean[position]))
        if self._posterior.has_capacity:
            self._posterior.add(position)

    def among(self, positions: np.ndarray) -> Belief:
        """The same of some candidates, with a posterior of its own."""
        return Belief(self._posterior.among(positions), self._mean[positions], self._best)


def _gain(beliefs: Sequence[Belief], candidates: np.ndarray, success: np.ndarray) -> np.ndarray:
    return np.asarray(np.sum([belief.gain(candidates) for belief in beliefs], axis=0) * success[candidates])


def pick(beliefs: Sequence[Belief], success: np.ndarray, n: int, n_coming: int) -> tuple[list[int], list[float]]:
    """Positions of the `n` best but for the first `n_coming`, which count as picked, and their gains.

    What is picked changes the beliefs: it counts as measured.
    """
    candidates = np.arange(n_coming, len(success))
    for position in range(n_coming):
        for belief in beliefs:
            belief.believe(position)
    picked: list[int] = []
    gains: list[float] = []
    for _ in range(min(n, len(candidates))):
        gain = _gain(beliefs, candidates, success)
        gain[np.array(picked, np.int64) - n_coming] = -1.0
        picked.append(int(candidates[np.argmax(gain)]))
        gains.append(float(gain.max()))
        if len(picked) < n:
            for belief in beliefs:
                belief.believe(picked[-1])
    return picked, gains


class SpaceForm:
    """How rows become points of the kernel: columns scaled by their spread, knobs without columns left out."""

    def __init__(self, space: ConfigSpace, reference: np.ndarray, hints: int):
        self._knobs = [i for i, table in enumerate(space.tables) if table.shape[1]]
        widths = [space.tables[i].shape[1] for i in self._knobs]
        deviation = reference.std(axis=0)
        self.spread = deviation[len(deviation) - hints :]  # of what each hint says
        self.reach = float(np.ptp(reference[:, len(deviation) - hints :], axis=0).max(initial=0.0))
        deviation = np.where(deviation > 0, deviation, 1.0)
        self._first_hint, self._hint_scale = sum(widths), deviation[sum(widths) :]
        scales = np.split(deviation[: sum(widths)], np.cumsum(widths)[:-1]) if widths else []
        tables = [space.tables[i] / scale for i, scale in zip(self._knobs, scales, strict=True)]
        self.kernels = (JointKernel(tables, hints), SpaceKernel(tables, hints))
        self._hot: np.ndarray | None = None

    def points(self, rows: np.ndarray, numbers: np.ndarray) -> Points:
        """Rows of positions and their numbers as points."""
        return Points(rows[:, self._knobs], numbers[:, self._first_hint :] / self._hint_scale)

    def hinted(self, numbers: np.ndarray) -> np.ndarray:
        """What the hints say [n, hints], of rows' numbers."""
        return numbers[:, self._first_hint :]

    def codes(self, rows: np.ndarray) -> Points:
        """The same without what hints say."""
        return Points(rows[:, self._knobs], np.zeros((len(rows), 0)))

    def listed_hot(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The one-hot matrix of the whole list, made once."""
        if self._hot is None:
            self._hot = self.kernels[0].one_hot(self.points(rows, numbers))
        return self._hot


STALLED = 24  # trials since the best one
SHARE = 0.25  # of the proposals of a search that has stalled


class Variation:
    """Decides how many proposals are such, and makes them."""

    def __init__(self, pool: Pool, history: History):
        self._pool, self._history = pool, history
        self._owed = 0.0

    def rows(self, n: int) -> np.ndarray:
        """Open rows for a part of `n` proposals; none while the search gets on."""
        history = self._history
        if not np.isfinite(history.best_log_s) or len(history) - 1 - int(np.nanargmin(history.log_s)) < STALLED:
            self._owed = 0.0
            return history.rows[:0]
        self._owed += SHARE * n
        count = int(self._owed)
        self._owed -= count
        (best,) = history.best_rows(1)
        near = self._pool.untaken(self._pool.space.neighbour_rows(best))
        changed = (near != best).argmax(axis=1)
        tried = np.array([(history.rows[:, k] == row[k]).sum() for row, k in zip(near, changed, strict=True)])
        order = np.lexsort((self._pool.rng.random(len(near)), tried))
        return near[order[:count]]
