"""Jobs in processes of their own, which start with the packages that this one has imported."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import multiprocessing
import sys
import warnings
from collections.abc import Callable
from typing import Any

PACKAGES = ("torch", "torch.onnx", "transformers", "timm", "diffusers")
_KEPT: list[Any] = []  # declarations end with the object that made them


def import_packages() -> None:
    """What all processes need, once; packages that are not there are missed by their networks."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    _torchvision_without_library()
    for package in PACKAGES:
        try:
            importlib.import_module(package)
        except ImportError as error:
            print(f"{package} is missing: {error}")


def _torchvision_without_library() -> None:
    """torchvision's Python part loads where its native library does not, once these operators are declared."""
    import torch

    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for module in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


def in_process(job: Callable[..., Any], arguments: tuple[Any, ...], threads: int, limit_s: float) -> tuple[Any, str]:
    """(what the job gives, ""), or (None, why it gave nothing)."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, job, arguments, threads))
    process.start()
    sender.close()
    try:
        return (receiver.recv(), "") if receiver.poll(limit_s) else (None, f"not done after {limit_s:g} s")
    except EOFError:
        process.join()
        return None, f"the process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _send(sender: Any, job: Callable[..., Any], arguments: tuple[Any, ...], threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    sender.send(job(*arguments))
