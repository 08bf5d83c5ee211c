"""TVM's builders, runners, cost models and strategies: their arguments are taken, `autosched.tune` has its own."""

from __future__ import annotations

from types import SimpleNamespace

from autosched.errors import InvalidValueError, refuse


class _Options:
    """Holds what it was given."""

    def __init__(self, *args: object, **kwargs: object):
        self.args = args
        self.__dict__.update(kwargs)


class EvaluatorConfig(_Options):
    """number, repeat, min_repeat_ms, enable_cpu_cache_flush of a runner."""


class LocalRunner(_Options):
    """Measures on this machine."""


class RPCConfig:
    """Where a tracker listens, and which devices it is asked for.

    session_priority, session_timeout_sec  taken; requests and sessions are the tuner's own
    Raises  ValueError where one of the first three is missing.
    """

    def __init__(
        self, tracker_host: str | None = None, tracker_port: int | str | None = None, tracker_key: str | None = None,
        session_priority: int = 1, session_timeout_sec: int = 10,
    ):  # fmt: skip
        if not (tracker_host and tracker_port and tracker_key):
            hint = "give tracker_host, tracker_port and tracker_key"
            raise InvalidValueError("RPCConfig names no tracker", hint=hint)
        self.tracker_host, self.tracker_port, self.tracker_key = tracker_host, int(tracker_port), tracker_key
        self.session_priority, self.session_timeout_sec = session_priority, session_timeout_sec


class RPCRunner(_Options):
    """Measures on the devices that a tracker hands out: `rpc_config`; its other arguments are the tuner's own."""

    def __init__(self, rpc_config: RPCConfig, *args: object, **kwargs: object):
        super().__init__(*args, **kwargs)
        self.rpc_config = rpc_config


class LocalBuilder(_Options):
    """Builds on this machine."""


class XGBModel(_Options):
    """A cost model of gradient-boosted trees."""


class RandomModel(_Options):
    """No cost model: candidates are drawn at random."""


class EvolutionarySearch(_Options):
    """Candidates near the best ones."""


class ReplayTrace(_Options):
    """Candidates drawn at random."""


class ReplayFunc(_Options):
    """Candidates drawn at random."""


builder = SimpleNamespace(LocalBuilder=LocalBuilder)
runner = SimpleNamespace(
    EvaluatorConfig=EvaluatorConfig, LocalRunner=LocalRunner, RPCConfig=RPCConfig, RPCRunner=RPCRunner
)
cost_model = SimpleNamespace(RandomModel=RandomModel, XGBModel=XGBModel)
search_strategy = SimpleNamespace(EvolutionarySearch=EvolutionarySearch, ReplayFunc=ReplayFunc, ReplayTrace=ReplayTrace)

COST_MODELS = ("xgb", "mlp", "random", "none")
STRATEGIES = {"random": "random", "replay-trace": "random", "replay-func": "random"}


def strategy_for(strategy: object, cost_model: object) -> str:
    """The strategy of `autosched.tune` that comes nearest. Raises ValueError for names that TVM does not have."""
    if isinstance(strategy, str) and strategy not in (*STRATEGIES, "evolutionary", "auto"):
        raise InvalidValueError(f"unknown strategy '{strategy}'", hint=f"one of evolutionary, {', '.join(STRATEGIES)}")
    if isinstance(cost_model, str) and cost_model not in COST_MODELS:
        raise InvalidValueError(f"unknown cost_model '{cost_model}'", hint=f"one of {', '.join(COST_MODELS)}")
    if isinstance(strategy, ReplayTrace | ReplayFunc) or isinstance(cost_model, RandomModel) or cost_model == "random":
        return "random"
    return STRATEGIES.get(strategy, "auto") if isinstance(strategy, str) else "auto"


DEFAULTS = (None, "default", "from-target")


def refuse_measuring(call: str, measure_callbacks: object, task_scheduler: object) -> None:
    """Refuse callbacks, and schedulers that share trials in another way. Raises InvalidValueError."""
    refuse(call, measure_callbacks=measure_callbacks not in DEFAULTS)
    known = isinstance(task_scheduler, str) and task_scheduler in ("gradient", "round-robin")
    refuse(call, hint="trials are shared equally", task_scheduler=not known)


def refuse_rules(call: str, sch_rules: object, postprocs: object, mutator_probs: object) -> None:
    """Refuse rules of TVM's own spaces. Raises InvalidValueError."""
    refuse(
        call, hint="a function of a schedule describes a space", sch_rules=sch_rules not in DEFAULTS,
        postprocs=postprocs not in DEFAULTS, mutator_probs=mutator_probs not in DEFAULTS,
    )  # fmt: skip
