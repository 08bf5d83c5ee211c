"""What the report shows of an own function: the text and the machine code of its winner and its default."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from autosched.driver.report_facts import MOST_TEXT, ModelFacts, shortened
from autosched.own.compiler import COMPILER
from autosched.space import Config

if TYPE_CHECKING:
    from autosched.own.function import AutotunedFunction


def own_facts(
    function: AutotunedFunction, values: tuple[object, ...], winner: Config | None, threads: int | None
) -> ModelFacts:
    """Arithmetic and texts of a call with these arguments; `winner` None: nothing is known but the default."""
    task = function.task_for(values, threads)
    default = function.space.default_for(function.space_for(values, threads))
    is_new = winner is not None and winner != default
    chosen = {"Winner": winner, "Default": default} if is_new else {"The default, which is used": default}
    sent, texts = function.sent_function(values), {}
    for title, config in chosen.items():
        assert config is not None, "a winner that is no default"
        texts[f"{title}: {config}"] = sent.specialised(config)[1]
    for title, config in chosen.items() if function.compiler == COMPILER and function.form is None else ():
        assert config is not None, "a winner that is no default"
        dispatcher = sent.dispatcher(config)
        dispatcher.compile(pickle.loads(sent.types))
        texts[f"{title}: assembly"] = shortened("\n".join(dispatcher.inspect_asm().values()), MOST_TEXT)
    flops, _ = function.work.of(function.py_func, {**default.knobs, **function.signature.named(values)}, task.name)
    return ModelFacts({task.key: 1}, {} if flops is None else {task.key: flops}, {task.key: texts})
