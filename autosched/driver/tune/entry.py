"""`tune`: search for the best configurations of a model's kernels, and remember them as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.driver.build.graph import has_graph, prepare
from autosched.driver.build.graph_options import graph_space, options_for
from autosched.driver.build.precision import with_precision
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.model_files import open_model
from autosched.driver.options import TuneOptions as TuneOptions
from autosched.driver.options import with_budget
from autosched.driver.settings import check_runs_here, resolve_records, resolve_target, resolve_threads
from autosched.driver.tasks import extract_tasks, prepared_tasks
from autosched.driver.tune.finals import looked_up
from autosched.driver.tune.graph_search import GraphSearch, share_of
from autosched.driver.tune.model_check import ModelCheck
from autosched.driver.tune.report import TaskReport as TaskReport
from autosched.driver.tune.report import TuneReport as TuneReport
from autosched.driver.tune.shapes import Ranges, has_ranges, tune_range
from autosched.driver.tune.tuning import Tuning
from autosched.driver.tune.turns import Interruption, OpenMeasurer, TuningRun
from autosched.env import AUTOSCHED_TUNE
from autosched.errors import UsageError
from autosched.ir import IRModule
from autosched.records import database_to_write, open_store
from autosched.records.places import Place
from autosched.relax.transform.bind_symbolic import symbolic_dims
from autosched.space import use_spaces
from autosched.target import Target
from autosched.task import Task
from autosched.tuner.measure.local import LocalMeasurer

if TYPE_CHECKING:
    from autosched.target.target import TargetLike
    from autosched.te import Tensor


def tune(
    what: object,
    target: TargetLike | None = None,
    *,
    args: Sequence[Tensor] | None = None,
    params: Mapping[str, object] | None = None,
    records: str | Path | Place | None = None,
    options: TuneOptions | None = None,
    progress: Callable[[TuneReport], None] | None = None,
    measurer: OpenMeasurer | None = None,
    shapes: Ranges | None = None,
    budget: str | float | None = None,
) -> TuneReport:
    """Tune every kernel of a model (a path, or what `build` takes), a PrimFunc, tensors or one task.

    budget    time limit: "90s", "10m", "1h30m", or seconds; replaces `options.budget`
    shapes    sizes of the symbolic inputs of a model: {"x": (4, 784)}, or ranges of them,
              {"x": (range(1, 513), 784)}. Representative shapes of a range are tuned, each with its share of the
              budget. Every winner is measured at each of them, and few are kept. A build at any shape of the range
              uses the best one at the nearest shape
    records   path or URL of the database to write to; None: the project's or the user's
    progress  called with the report after every change; None: one line is kept up to date on stderr, where that is a
              terminal or a notebook
    measurer  opens what builds, checks and times candidates; None: workers on this machine

    The default configuration is the first trial of every task. At the end it is measured in turn with the best ones;
    only a configuration that beats it is recorded as the winner. A model's winners are then judged inside the built
    model, and losers are reverted. Configurations in the database are not measured again. After a tuning was killed,
    the same call spends the rest of its budget.
    Ctrl-C once finishes the batch and names winners. Ctrl-C twice ends at once; reported trials are kept.
    Raises as `build`, and RecordError for the database.
    """
    options = with_budget(options or TuneOptions(), budget).for_run_as()
    if AUTOSCHED_TUNE.get() == "off":
        raise UsageError("tuning is switched off by AUTOSCHED_TUNE=off", hint="unset it, or set it to lookup")
    if shapes is not None and has_ranges(shapes):
        return tune_range(
            tune, what, shapes, target,
            params=params, records=records, options=options, progress=progress, measurer=measurer,
        )  # fmt: skip
    if shapes is not None:
        what = open_model(what, shapes={name: tuple(map(int, shape)) for name, shape in shapes.items()})  # type: ignore[arg-type]
    chosen = resolve_target(target)
    if measurer is None:
        check_runs_here(chosen)
    if measurer is None or options.threads is None:
        threads = resolve_threads(options.threads, chosen)
    else:  # another machine's
        threads = options.threads
    where = records if records is not None else database_to_write()
    with use_spaces(options.spaces):
        with open_store(where) as store:
            reader = resolve_records([store], run_as=options.run_as)
            layouts, interruption, notes = TunedLayouts(reader, chosen, threads), Interruption(), []
            if options.graph:
                if measurer is not None or options.run_as != "latency":
                    raise UsageError(
                        "graph options are searched on this machine, one instance alone", hint="leave it out"
                    )
                what = _graph_model(what, args, layouts.target, options)
                search = GraphSearch(what, layouts, params or {}, store, options)
                with interruption:
                    search.run(share_of(options), lambda: interruption.is_asked, progress or (lambda report: None))
                notes, options = search.report.notes, search.rest_of(options)
            check, tasks = _tasks(what, args, params, layouts, threads, options)
            tuning = Tuning(tasks, chosen, threads, store, options, looked_up(tasks, reader))
            tuning.report.notes += notes
            return TuningRun(tuning, check, progress, measurer or LocalMeasurer, interruption).run()


def _graph_model(what: object, args: Sequence[Tensor] | None, target: Target, options: TuneOptions) -> IRModule:
    """The module whose graph is searched. Raises UsageError where there are no options to search."""
    module = None if isinstance(what, Task) else open_model(what, args)
    if module is None or not has_graph(module) or symbolic_dims(module["main"]):
        raise UsageError("graph options are those of a model of known sizes", hint="leave it out, or give the sizes")
    if graph_space(target) is None:
        raise UsageError(f"graphs for {target.kind.name} have no options", hint="leave it out")
    return with_precision(module, options.precision, target)


def _tasks(
    what: object,
    args: Sequence[Tensor] | None,
    params: Mapping[str, object] | None,
    layouts: TunedLayouts,
    threads: int,
    options: TuneOptions,
) -> tuple[ModelCheck | None, tuple[Task, ...]]:
    """The tasks that were asked for, and what builds the model, where there is one. Raises UsageError."""
    check, target = None, layouts.target
    if isinstance(what, Task):
        if options.precision is not None:
            raise UsageError("precision is for models", hint="a task's arrays have the types that it says")
        tasks: tuple[Task, ...] = (what,)
    else:
        module = with_precision(open_model(what, args), options.precision, target)
        if has_graph(module):
            chosen = options_for(module, target, layouts.reader, threads)
            prepared = prepare(module, target, params or {}, layouts, chosen)
            check = ModelCheck(module, prepared, target, threads)
            tasks = prepared_tasks(prepared, target, threads=threads, cache="cold")
        else:
            tasks = extract_tasks(module, target, threads=threads, params=params)
    if options.tasks is not None:
        if unknown := [i for i in options.tasks if not 0 <= i < len(tasks)]:
            raise UsageError(f"no task {unknown[0]}", hint=f"there are 0 to {len(tasks) - 1}")
        tasks = tuple(tasks[i] for i in options.tasks)
    return check, tasks
