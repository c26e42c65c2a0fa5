"""Contexts, held against conditions that were planted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from setwise.planning.actions.contexts import in_contexts

# Slow: the first tier has plans of bit models, which are made of these.
pytestmark = pytest.mark.slow


def columns(count: int) -> tuple[Tensor, Tensor]:
    """The columns [T, 2] of a tile and the blank, and bits [T, 11] of these and of other things."""
    generator = torch.Generator().manual_seed(0)
    where = torch.randint(3, (count, 2), generator=generator)
    other = torch.randint(2, (count, 5), generator=generator).bool()
    return where, torch.cat([torch.eye(3).bool()[where].flatten(1), other], dim=-1)


def allowed_by(seen: Tensor, states: Tensor) -> Tensor:
    """Which of some states have what all seen have, and lack what none of these has."""
    return ((states | ~seen.all(0)) & (~states | seen.any(0))).all(-1)


def test_what_is_no_conjunction_is_several() -> None:
    where, before = columns(1200)
    steps = (where[:, 0] == where[:, 1]).nonzero()[::3, 0]  # where it can be done, it often is
    parts = in_contexts(steps, before)
    assert sorted(torch.cat(parts).tolist()) == sorted(steps.tolist())
    found = [where[part].unique(dim=0).tolist() for part in parts]
    assert sorted(found) == [[[0, 0]], [[1, 1]], [[2, 2]]]
    # Safe: states that a part allows are those that the whole does, and fewer.
    every = torch.cartesian_prod(*[torch.tensor([False, True])] * before.shape[1])
    by_whole, *by_parts = (allowed_by(before[some], every) for some in (steps, *parts))
    together = torch.stack(by_parts).any(0)
    assert not bool((together & ~by_whole).any())
    assert 0 < int(together.sum()) < int(by_whole.sum())


@pytest.mark.parametrize("bit", [None, 0, 7])
def test_what_is_a_conjunction_is_one(bit: int | None) -> None:
    _, before = columns(1200)
    able = torch.ones(len(before)).bool() if bit is None else before[:, bit]
    steps = able.nonzero()[::3, 0]
    [part] = in_contexts(steps, before)
    assert part.equal(steps)


def test_few_steps_are_no_evidence() -> None:
    where, before = columns(1200)
    steps = (where[:, 0] == where[:, 1]).nonzero()[:9, 0]
    assert len(in_contexts(steps, before)) == 1
