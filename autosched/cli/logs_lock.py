"""`autosched logs lock`: the configurations of a model, written down."""

from __future__ import annotations

from pathlib import Path

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import knobs_text, workload_text
from autosched.cli.model import Shapes, artifact_of, check_source, load_module
from autosched.cli.output import Column, Table, count, say, show
from autosched.cli.paths import check_output
from autosched.cli.values import SHAPES

COLUMNS = (
    Column("workload", "workload", workload_text),
    Column("template", "template"),
    Column("knobs", "knobs", knobs_text),
    Column("origin", "from"),
)


@make_command(
    "lock", example="autosched logs lock model.onnx -o model.lock\nautosched build model.onnx --locked model.lock"
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write (default: MODEL with .lock).")
@click.option("--shapes", type=SHAPES, help='Shapes of dynamic inputs: "x:1x3x224x224".')
def lock(common: Common, model: Path, output: Path | None, shapes: Shapes | None) -> None:
    """Write down which configuration each kernel of MODEL uses now, defaults too.

    `autosched build --locked` then uses exactly these, or fails.
    """
    from autosched.driver.build.choose import choose
    from autosched.driver.build.graph_options import GRAPH, VERSION, choose_graph
    from autosched.driver.build.tuned_layouts import TunedLayouts
    from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
    from autosched.driver.tasks import extract_tasks
    from autosched.records.lock import write_lock
    from autosched.templates import template_versions

    path = output or artifact_of(model).with_suffix(".lock")
    check_source(model)
    check_output(path, inputs=[model, *map(Path, common.db)])
    reader = resolve_records(list(common.db) or None)
    target = resolve_target(common.target)
    threads = resolve_threads(common.threads, target)
    module = load_module(model, shapes, quiet=common.is_quiet)
    layouts = TunedLayouts(reader, target, threads)
    tasks = extract_tasks(module, target, threads=threads, layouts=layouts)
    choices = [choose(task, reader, task.name) for task in tasks]
    chosen = {c.task.key: (c.config, c.found.origin or "template default") for c in choices}
    used = {config.template for config, _ in chosen.values()}
    versions = {name: v for name, v in template_versions(target.backend).items() if name in used}
    if (graph := choose_graph(module, target, reader, threads)) is not None:
        versions[GRAPH] = VERSION
        chosen[graph.task.key] = (graph.options.config, graph.found.origin or "default")
    facts = {"target": target.to_json(), "threads": threads, "templates": versions}
    write_lock(path, chosen, facts, layouts.answers)
    rows = [
        {"workload": key, "template": config.template, "knobs": dict(config.knobs), "origin": origin}
        for key, (config, origin) in chosen.items()
    ]
    if common.format != "table" or common.verbosity > 0:
        show(Table(COLUMNS, rows), common.format)
    say(f"{count(len(rows), 'configuration')} written to {path}", quiet=common.is_quiet)
