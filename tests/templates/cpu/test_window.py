"""Padding around windows: left out where all lanes agree, copied where they do not."""

from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config
from autosched.templates.cpu.window import WindowReduction
from autosched.tir.functor import blocks
from tests.templates.cases import pool

HOST = Target("llvm -mcpu=x86-64-v3")
WINDOW = WindowReduction()


def _parts(func):
    anchor = WINDOW.match(func, HOST)
    return anchor, WINDOW.default(anchor, HOST)


def _has_copy(func, config):
    return any(b.name_hint.startswith("pad") for b in blocks(apply_config(func, config, HOST).func.body))


def test_blocked_pools_leave_taps_in_the_padding_out():
    func = pool("max", 2, 16)
    _, config = _parts(func)
    assert config["padding"] == "inline" and not _has_copy(func, config)
    for padding in ("copy", "task"):
        assert _has_copy(func, Config("window", {**config.knobs, "padding": padding}))


def test_plain_pools_copy_because_lanes_differ():
    func = pool("max", 5)
    anchor, config = _parts(func)
    assert config["padding"] == "copy" and _has_copy(func, config)
    space = WINDOW.space(anchor, HOST)
    assert space.why_not(Config("window", {**config.knobs, "padding": "inline"}))
    assert not space.why_not(Config("window", {**config.knobs, "padding": "task"}))
