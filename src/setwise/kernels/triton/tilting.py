"""The tilt of `setwise.kernels.counting`, in one launch: a program halves where it may lie."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.rounds import NEVER, valid
from setwise.kernels.triton.tiles import power_of_2
from setwise.kernels.triton.weights import LOG2_E

MAX_BLOCK = 1024


@triton.jit
def halve(LOGITS, VALID, COUNT, TILT, N, halves, certain, BLOCK: tl.constexpr):
    """What to add to the logits of a set so that about COUNT of its things are expected."""
    b = tl.program_id(0).to(tl.int64)
    LOGITS, VALID = LOGITS + b * N, VALID + b * N
    top = tl.full([BLOCK], NEVER, tl.float32)
    bottom = -top
    for j0 in range(0, N, BLOCK):
        j = j0 + tl.arange(0, BLOCK)
        ok = valid(VALID, j, N, True)
        z = tl.load(LOGITS + j, mask=j < N, other=0.0)
        top = tl.maximum(top, tl.where(ok, z, NEVER))
        bottom = tl.minimum(bottom, tl.where(ok, z, -NEVER))
    low, high = -tl.max(top, 0) - certain, -tl.min(bottom, 0) + certain
    count = tl.load(COUNT + b).to(tl.float32)
    for _ in range(0, halves):
        middle = (low + high) * 0.5
        chances = tl.zeros([BLOCK], tl.float32)
        for j0 in range(0, N, BLOCK):
            j = j0 + tl.arange(0, BLOCK)
            ok = valid(VALID, j, N, True)
            z = tl.load(LOGITS + j, mask=j < N, other=0.0) + middle
            chance = 1.0 / (1.0 + tl.exp2(tl.minimum(-z * LOG2_E, 126.0)))
            chances += tl.where(ok, chance, 0.0)
        more = tl.sum(chances, 0) < count
        low, high = tl.where(more, middle, low), tl.where(more, high, middle)
    # Of nothing that is valid any tilt will do.
    tl.store(TILT + b, tl.where(low < -0.5 * NEVER, (low + high) * 0.5, 0.0))


def tilt(logits: Tensor, valid: Tensor, count: Tensor, certain: float, halves: int) -> Tensor:
    """What to add to float32 logits [B, N], N > 0, for ``count`` [B] of the valid ones: [B, 1]."""
    B, N = logits.shape
    found = logits.new_empty(B, 1)
    block = min(MAX_BLOCK, max(2, power_of_2(N)))
    launch = launcher(halve, {"BLOCK": block}, max(1, block // 256), 1)
    mask = valid.contiguous().view(torch.uint8)
    launch((B, 1, 1), (logits.contiguous(), mask, count.contiguous(), found), (N, halves, certain))
    return found
