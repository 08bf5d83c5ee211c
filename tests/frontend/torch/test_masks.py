"""Attention under the masks that Transformers write, rows that are masked as a whole among them, against PyTorch."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import autosched
from autosched.frontend.torch import from_exported_program
from autosched.frontend.torch.graph import array_of
from tests.spread import spread

QUERIES, KEYS, SIZE = 7, 9, 8
TOLERANCES = {"float32": 1e-5, "float16": 4e-3}


class Masked(nn.Module):
    """The ways to mask: PyTorch's own attention by truths and by numbers, and scores replaced or added to by hand."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        lowest = torch.finfo(q.dtype).min
        zeros = torch.zeros((), dtype=q.dtype)
        scores = q @ k.transpose(-1, -2) * SIZE**-0.5
        by_hand = torch.where(keep, scores, torch.tensor(-torch.inf, dtype=q.dtype)).softmax(-1)
        return (
            F.scaled_dot_product_attention(q, k, v, attn_mask=keep),
            F.scaled_dot_product_attention(q, k, v, attn_mask=torch.where(keep, zeros, -torch.inf)),
            F.scaled_dot_product_attention(q, k, v, attn_mask=torch.where(keep, zeros, lowest)),
            torch.where(keep, scores, torch.tensor(max(lowest, -1e9), dtype=q.dtype)).softmax(-1) @ v,
            by_hand @ v,
            torch.where(by_hand.isnan(), 0.0, by_hand) @ v,
        )


@spread(2, "dtype", ["float32", "float16"])
def test_masks(dtype: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, SIZE).to(getattr(torch, dtype)) for n in (QUERIES, KEYS, KEYS))
    keep = torch.ones(2, 1, QUERIES, KEYS, dtype=torch.bool).tril(2)
    keep[0, :, :, 5:] = False
    keep[1, 0, 2] = False  # nothing is left of this row
    inputs = (q, k, v, keep)
    built = autosched.build(from_exported_program(torch.export.export(Masked(), inputs)), target="cpu", threads=1)
    found = built(*(np.array(array_of(x, "input")) for x in inputs))
    wanted = [x.float().numpy() for x in Masked()(*inputs)]
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        tolerance = TOLERANCES[dtype]
        # a mask of the lowest number leaves what rounds to it: whole rows of it are nothing that anyone reads
        rows = np.s_[:, :, [0, 1, 3, 4, 5, 6]] if number == 2 else np.s_[:]
        a = np.asarray(ours).astype(np.float32)
        np.testing.assert_allclose(a[rows], theirs[rows], tolerance, tolerance, err_msg=str(number))
    assert np.isnan(wanted[4][1, :, 2]).all() and (wanted[5][1, :, 2] == 0).all() and (wanted[0][1, :, 2] == 0).all()
