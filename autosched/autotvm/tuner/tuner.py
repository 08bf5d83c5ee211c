"""AutoTVM's tuners, over the search strategies of `autosched.tuner`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.autotvm.measure import MeasureInput, MeasureResult, create_measure_batch
from autosched.autotvm.task.entities import SplitSpace
from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.space import Config, ConfigSpace, Knob
from autosched.task import Measurement, Status, Trial
from autosched.tuner.search import make_search

if TYPE_CHECKING:
    from autosched.autotvm.task.space import ConfigEntity
    from autosched.autotvm.task.space import ConfigSpace as TemplateSpace
    from autosched.autotvm.task.task import Task
    from autosched.autotvm.tuner.callback import Callback
    from autosched.json_types import JsonObject
    from autosched.space.config import KnobValue

logger = logging.getLogger("autotvm")


def searched_space(space: TemplateSpace) -> ConfigSpace:
    """AutoTVM's space as one of ours: a knob per knob, in the same order; splits by their inner factors."""
    knobs = []
    for number, entities in enumerate(space.space_map.values()):
        values: tuple[KnobValue, ...] = tuple(range(len(entities)))
        if isinstance(entities, SplitSpace):
            factors = [tuple(e.size[1:]) if len(e.size) > 2 else e.size[-1] for e in entities.entities]
            if len(set(factors)) == len(factors):
                values = tuple(factors)
        knobs.append(Knob(f"knob_{number}", values))
    return ConfigSpace("autotvm", knobs or [Knob("knob_0", (0,))])


class Tuner:
    """Tries configurations of a task, batch by batch.

    best_config, best_flops, best_iter, best_measure_pair  the best so far;   ttl  trials left before it stops early
    """

    strategy = "random"

    def __init__(self, task: Any, range_idx: tuple[int, int] | None = None, seed: int = 0):
        if not hasattr(task, "config_space"):
            raise InvalidTypeError(f"{type(self).__name__}: task is a {type(task).__name__}, expected an autotvm Task")
        self.task, self.range_idx, self.seed = task, range_idx, seed
        self.space = searched_space(task.config_space)
        self.error_ct_threshold = 150
        self.n_trial = float("inf")
        self.early_stopping: float | None = None
        self.best_config: ConfigEntity | None = None
        self.best_flops = 0.0
        self.best_measure_pair: tuple[MeasureInput, MeasureResult] | None = None
        self.best_iter = 0
        self.ttl: float = float("inf")
        self.visited: set[int] = set()
        self.reset()

    def reset(self) -> None:
        """Forget everything that was tried."""
        self.search = make_search(self.strategy, self.space, seed=self.seed)
        self.best_config, self.best_flops, self.best_iter, self.best_measure_pair = None, 0.0, 0, None
        self.visited = set()

    def set_error_threshold(self, threshold: int) -> None:
        """How many errors in a row are worth a warning."""
        self.error_ct_threshold = threshold

    def _index(self, config: Config) -> int:
        (row,) = self.space.to_rows([config])
        return int(self.task.config_space.knob2point([int(i) for i in row][: len(self.task.config_space.dims)]))

    def _config(self, index: int) -> Config:
        row = np.array(self.task.config_space.point2knob(index) or [0], dtype=np.int32)
        return self.space.to_config(row)

    def has_next(self) -> bool:
        """Whether there is a configuration that was not tried."""
        first, last = self.range_idx or (0, len(self.task.config_space) - 1)
        return len([i for i in self.visited if first <= i <= last]) < last - first + 1

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """Configurations to try next, none of them twice."""
        first, last = self.range_idx or (0, len(self.task.config_space) - 1)
        found: list[int] = []
        while len(found) < batch_size:
            asked = self.search.ask(batch_size - len(found))
            if not asked:
                break
            new = [self._index(config) for config in asked]
            found += [i for i in new if first <= i <= last and i not in self.visited]
            self.visited.update(new)
        return [self.task.config_space.get(i) for i in found]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measurements."""
        self.search.tell(
            [Trial(self._config(inp.config.index), _measurement(res)) for inp, res in zip(inputs, results, strict=True)]
        )

    def tune(
        self,
        n_trial: int,
        measure_option: JsonObject,
        early_stopping: int | None = None,
        callbacks: Iterable[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Try up to `n_trial` configurations.

        early_stopping  stop after so many trials without a better one
        callbacks       called with (tuner, inputs, results) after every batch
        Raises          InvalidValueError for an unknown si_prefix
        """
        if isinstance(n_trial, bool) or not hasattr(n_trial, "__index__"):
            raise InvalidTypeError(f"tune: n_trial is a {type(n_trial).__name__}, expected an int")
        if si_prefix not in ("", "k", "M", "G", "T"):
            raise InvalidValueError(f"si_prefix '{si_prefix}'", hint='it is one of "", "k", "M", "G", "T"')
        measure_batch = create_measure_batch(self.task, measure_option)
        self.n_trial = min(n_trial, len(self.task.config_space))
        self.early_stopping = early_stopping or float("inf")
        try:
            self._search(measure_batch, list(callbacks))
        finally:  # a runner of the user's own may have nothing to close
            getattr(measure_option["runner"], "close", lambda: None)()

    def _search(
        self, measure_batch: Callable[[Sequence[MeasureInput]], list[MeasureResult]], waiting: Sequence[Callback]
    ) -> None:
        """Batch after batch until the trials are used up, or nothing better is found for long."""
        size = getattr(measure_batch, "n_parallel", 1)
        n_trial, stop = int(self.n_trial), self.early_stopping or float("inf")
        done, errors = 0, 0
        while done < n_trial and self.has_next():
            configs = self.next_batch(min(size, n_trial - done))
            if not configs:
                break
            inputs = [MeasureInput(self.task.target, self.task, config) for config in configs]
            results = measure_batch(inputs)
            for position, (inp, res) in enumerate(zip(inputs, results, strict=True)):
                flops = self.task.flop / float(np.mean(res.costs)) if res.error_no == 0 else 0.0
                errors = 0 if res.error_no == 0 else errors + 1
                if flops > self.best_flops:
                    self.best_flops, self.best_config = flops, inp.config
                    self.best_measure_pair, self.best_iter = (inp, res), done + position
            done += len(results)
            self.ttl = min(stop + self.best_iter, n_trial) - done
            self.update(inputs, results)
            for callback in waiting:
                callback(self, inputs, results)
            if done >= self.best_iter + stop:
                logger.debug("Early stopped. Best iter: %d.", self.best_iter)
                break
            if errors > self.error_ct_threshold:
                logger.warning("Too many errors happen in the tuning. Switching to debug mode.")

    def load_history(self, data_set: Iterable[tuple[MeasureInput, MeasureResult]], min_seed_records: int = 500) -> None:
        """Learn from measurements of earlier runs; of those without errors alone where they are `min_seed_records`."""
        pairs = [(inp, res) for inp, res in data_set if inp.config.index is not None]
        valid = [(inp, res) for inp, res in pairs if res.error_no == 0]
        pairs = valid if len(valid) >= min_seed_records else pairs
        known = [(i, r) for i, r in pairs if 0 <= i.config.index < len(self.task.config_space)]
        self.update([i for i, _ in known], [r for _, r in known])


def _measurement(result: MeasureResult) -> Measurement:
    if result.error_no == 0:
        return Measurement(Status.OK, tuple(float(c) for c in result.costs))
    return Measurement(Status.RUN_ERROR, error=str(result.costs[0]))


class RandomTuner(Tuner):
    """Configurations at random, none twice."""

    strategy = "random"


class GridSearchTuner(Tuner):
    """All configurations in order."""

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """The next configurations by number."""
        first, last = self.range_idx or (0, len(self.task.config_space) - 1)
        found = [i for i in range(first, last + 1) if i not in self.visited][:batch_size]
        self.visited.update(found)
        return [self.task.config_space.get(i) for i in found]


class GATuner(Tuner):
    """Genetic search. The population's size and rates are those of `autosched.tuner.search.genetic`."""

    strategy = "genetic"

    def __init__(self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1):
        if elite_num > pop_size:
            raise InvalidValueError(f"the number of elites ({elite_num}) is larger than the population ({pop_size})")
        self.pop_size, self.elite_num, self.mutation_prob = pop_size, elite_num, mutation_prob
        super().__init__(task)


class XGBTuner(Tuner):
    """Search guided by boosted trees; the model's settings are those of `autosched.tuner.search.xgboost_rank`."""

    strategy = "xgboost"

    def __init__(
        self, task: Task, plan_size: int = 64, feature_type: str = "itervar", loss_type: str = "rank",
        num_threads: int | None = None, optimizer: object = "sa", diversity_filter_ratio: float | None = None,
        log_interval: int = 50,
    ):  # fmt: skip
        if feature_type not in ("itervar", "knob", "curve"):
            raise InvalidValueError(f"Invalid feature type: {feature_type}")
        if loss_type not in ("rank", "reg", "rank-binary"):
            raise InvalidValueError(f"Invalid loss type: {loss_type}")
        if isinstance(optimizer, str) and optimizer not in ("sa", "reg"):
            raise InvalidValueError(f"Invalid model optimizer: {optimizer}")
        self.plan_size, self.num_threads, self.log_interval = plan_size, num_threads, log_interval
        self.diversity_filter_ratio = diversity_filter_ratio
        super().__init__(task)
