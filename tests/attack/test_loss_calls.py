"""Hostile calls of every loss: right in value and gradient, or refused; never anything else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest
import torch

from hostile_calls import LOSSES, Call, draw_call, judge_call

CALLS, GROUPS = 2400, 24
IN_KERNELS = 40  # each takes Triton's interpreter some tenths of a second


@pytest.mark.slow  # some thousand calls; tests/kernels/test_far_points.py has the kinds that failed
@pytest.mark.parametrize("group", range(GROUPS))
def test_no_call_is_wrong(group: int) -> None:
    wrong, differentiated, seen = {}, 0, set()
    for seed in range(group, CALLS, GROUPS):
        call = draw_call(seed)
        seen.add(call.name)
        verdict = judge_call(call)
        differentiated += verdict.differentiated
        if verdict.wrong:
            wrong[seed] = f"{call.name}, {call.features}: {verdict.wrong}"
    assert not wrong, "\n".join(f"call {seed}: {what}" for seed, what in wrong.items())
    assert seen == set(LOSSES)
    assert differentiated >= CALLS // GROUPS // 4  # or the attack would be a parade


def in_kernels() -> Iterator[tuple[int, Call]]:
    """Those of the calls that kernels can serve."""
    for seed in count(CALLS):
        call = draw_call(seed)
        double = torch.float64 in (call.input.dtype, call.target.dtype)
        if "impl" in call.options and not double:
            call.options["impl"] = "triton"
            yield seed, call


@pytest.mark.slow  # see above
@pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled")
@pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")
def test_no_call_of_the_kernels_is_wrong() -> None:
    pytest.importorskip("triton")
    verdicts = {seed: judge_call(call) for seed, call in islice(in_kernels(), IN_KERNELS)}
    wrong = {seed: verdict.wrong for seed, verdict in verdicts.items() if verdict.wrong}
    assert not wrong, "\n".join(f"call {seed}: {what}" for seed, what in wrong.items())
    assert sum(verdict.differentiated for verdict in verdicts.values()) >= IN_KERNELS // 4
