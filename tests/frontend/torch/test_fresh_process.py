"""The first import in a process is as good as the second."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import torch
from torch import nn

import autosched
from autosched.frontend.torch import from_exported_program
from autosched.records import FallbackContext

SCRIPT = """
import sys
from autosched.frontend.torch import load_program_file
print("softmax" in load_program_file(sys.argv[1]).script())
"""


class Attention(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


class Two(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor | tuple[torch.Tensor, ...]]:
        return {"twice": x * 2, "pair": (x, x.sum(dim=1))}


def test_the_first_import_keeps_attention_whole(tmp_path):
    x, mask = torch.zeros(1, 2, 4, 8), torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    torch.export.save(torch.export.export(Attention(), (x, mask)), tmp_path / "attention.pt2")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "attention.pt2")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def test_several_outputs_build_with_default_flags():
    x = torch.arange(6.0).reshape(2, 3)
    module = from_exported_program(torch.export.export(Two(), (x,)))
    twice, same, total = autosched.build(module, target="cpu", records=FallbackContext())(x.numpy())
    np.testing.assert_array_equal(np.asarray(twice), x.numpy() * 2)
    np.testing.assert_array_equal(np.asarray(same), x.numpy())
    np.testing.assert_array_equal(np.asarray(total), x.numpy().sum(axis=1))
