"""Sets whose elements are spread over processes: losses and gradients of the whole sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import setwise as sw
from ranks import launch
from setwise.kernels import ring

pytestmark = pytest.mark.slow
SIZES = (1, 2, 3, 4)
# Of a mistake: the name, what most ranks have, and what the second rank has.
OPTIONS = (
    ("presence_weight", "0.5", "1.0"),
    ("temperature", "2.5", "2.0"),
    ("directed", "False", "True"),
    ("reduction", "'mean'", "'sum'"),
    (
        "features",
        repr(sw.Features(sw.Bernoulli(4))),
        repr(sw.Features(sw.Categorical(4))),
    ),
    ("loss", "'set_average'", "'hausdorff'"),
)


@pytest.fixture(scope="module")
def told() -> list[dict[str, Any]]:
    """What each of four processes found, in groups of one to four."""
    script = Path(__file__).parent.parent / "support" / "sharded_losses.py"
    return launch(script, 4, "cpu", "float64")


@pytest.mark.parametrize("size", SIZES)
def test_value_and_gradients_are_those_of_whole_sets(told: list[dict[str, Any]], size: int) -> None:
    for rank in range(size):
        errors = told[rank][str(size)]["errors"]
        assert len(errors) == (112 if size in (2, 4) else 42)
        assert {name: error for name, error in errors.items() if not error <= 1e-12} == {}


def test_tensors_that_are_spread_already(told: list[dict[str, Any]]) -> None:
    assert [rank["dtensors"] <= 1e-12 for rank in told] == [True] * 4


def test_what_is_not_spread_as_a_whole_is_refused(told: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(told):
        said = [mistake.split(", got")[0] for mistake in found["refused dtensors"]]
        wrong = "expected a tensor of this process"
        assert said[0] == f"target: {wrong}"
        assert said[1].startswith("target: input is a DTensor, so that target must be one")
        assert said[2:5] == [f"input: {wrong}", f"target: {wrong}", f"input: {wrong}"]
        if rank == 1:
            assert said[5].startswith("impl: expected one of 'auto'")
            assert said[6].startswith("target: expected a DTensor with its elements spread")
        else:
            assert said[5:] == ["group: the call of rank 1 was refused there"] * 2


@pytest.mark.parametrize("size", SIZES)
def test_one_rank_alone_wants_gradients(told: list[dict[str, Any]], size: int) -> None:
    assert all(told[rank][str(size)]["one"] <= 1e-12 for rank in range(size))


@pytest.mark.parametrize("size", SIZES)
def test_a_temperature_learns_from_all_ranks(told: list[dict[str, Any]], size: int) -> None:
    assert all(told[rank][str(size)]["temperature"] <= 1e-12 for rank in range(size))


@pytest.mark.parametrize("size", SIZES)
def test_weights_of_a_target_add_up_to_one_over_ranks(
    told: list[dict[str, Any]], size: int
) -> None:
    assert all(told[rank][str(size)]["ties"] <= 1e-5 for rank in range(size))


def test_no_tensor_is_larger_than_a_shard(told: list[dict[str, Any]]) -> None:
    """Of 101 numbers for each of the 4096 elements of all ranks, keys and bias."""
    largest = {size: [told[r][str(size)]["numbers"] for r in range(size)] for size in SIZES}
    assert largest == {size: [4096 // size * 101] * size for size in SIZES}


@pytest.mark.parametrize("size", SIZES[1:])
def test_all_ranks_learn_of_a_mistake(told: list[dict[str, Any]], size: int) -> None:
    for rank in range(size):
        target, sets, kinds, presence, mode, *options = told[rank][str(size)]["refusals"]
        if rank == 1:
            assert target.startswith("target: ")
        else:
            assert target == "group: the call of rank 1 was refused there"
        assert sets.startswith("group: all ranks need the same sets")
        assert "torch.float64" in kinds
        assert kinds.startswith("group: all ranks need the same type")
        absent = list(range(1, size))
        assert presence == f"presence: all ranks need to give it, or none, but {absent} did not"
        assert mode.startswith("group: all ranks need the same mode of gradients")
        for (name, first, second), said in zip(OPTIONS, options, strict=True):
            # Ranks are compared with the first; the second alone has another.
            same = f"{name}: all ranks need the same, but ranks [1] have another than rank 0; here "
            assert said == f"{same}it is {second if rank == 1 else first}"


@pytest.mark.parametrize("size", SIZES[1:])
def test_all_ranks_learn_of_a_wrong_option(told: list[dict[str, Any]], size: int) -> None:
    names = ["temperature", "skip_negligible", "impl", "directed", "impl", "impl"]
    for rank in range(size):
        said = told[rank][str(size)]["options"]
        if rank == 1:
            assert [one.split(":")[0] for one in said] == names
        else:
            assert said == ["group: the call of rank 1 was refused there"] * len(names)


@pytest.mark.parametrize("loss", [sw.set_cross_entropy, sw.set_average, sw.hausdorff])
def test_what_is_no_group(loss: Any) -> None:
    with pytest.raises(TypeError, match=r"group: .* got str; torch\.distributed\.group\.WORLD"):
        loss(torch.ones(2, 3), torch.ones(2, 3), group="nccl")


def test_the_others_are_told_what_a_group_cannot_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(dist, "get_backend", lambda group: "nccl")
    monkeypatch.setattr(ring, "meet", lambda group, numbers, device: told.append(numbers))
    with pytest.raises(ValueError, match="input: on cpu, but the group is one of NCCL"):
        sw.set_cross_entropy(torch.ones(2, 3), torch.ones(2, 3), group=dist.ProcessGroup(0, 2))
    assert told == [[0] * 16]
