"""Wrong calls fail at the door by name: valid calls, shown to work, each spoiled in one way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from inspect import signature
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import setwise as sw
from setwise import Bernoulli, Categorical, Features, Gaussian

Call = dict[str, Any]
Changes = Mapping[str, Callable[[Any], object]]

ENGINES = (sw.set_cross_entropy, sw.set_average, sw.hausdorff)
MATCHING = (sw.assignment_cross_entropy, sw.stable_matching_cross_entropy)
OTHERS = (sw.ordered_cross_entropy, *MATCHING, sw.set_likelihood, sw.transport_cross_entropy)
LOSSES: dict[str, Callable[..., Any]] = {loss.__name__: loss for loss in (*ENGINES, *OTHERS)}
REALS = Features(Gaussian(2, scale=0.5))
FAMILIES = (
    None,
    Features(Bernoulli(3)),
    Features(Categorical(4)),
    REALS,
    Features(Categorical(3, scored_as="bernoulli"), Bernoulli(1, weight=2.0), Gaussian(2)),
    Features(Bernoulli(2), Categorical(2)),
)
SEEDS = range(len(FAMILIES))
# Calls are drawn without a look at how many targets and outputs their sets have.
pytestmark = pytest.mark.filterwarnings("ignore:the loss is infinite")
NAN, INF = float("nan"), float("inf")


def draw_call(loss: str, seed: int, masked: bool = False) -> Call:
    """A random call that is right; the first element of every set is always a valid one."""
    generator = torch.Generator().manual_seed(seed)

    def upto(high: int) -> int:
        return int(torch.randint(1, high + 1, (), generator=generator))

    features = FAMILIES[seed % len(FAMILIES)]
    elements = features or Features(Bernoulli(3))
    lead = ((2,), (2, 3), ())[upto(3) - 1]
    M = upto(5)
    N = M if loss == "ordered_cross_entropy" else upto(5)
    call: Call = {
        "input": 3 * torch.randn(*lead, N, elements.width, generator=generator),
        "target": elements.random_targets((*lead, M), generator),
        "features": features,
        "reduction": ("mean", "sum", "none")[upto(3) - 1],
    }
    if LOSSES[loss] in ENGINES:
        call["impl"] = ("auto", "reference", "chunked")[upto(3) - 1]
    for name, size in (("input_valid", N), ("target_valid", M)):
        mask = (torch.rand(*lead, size, generator=generator) < 0.6) | (torch.arange(size) == 0)
        lengths = torch.randint(1, size + 1, lead, generator=generator)
        call[name] = (mask, lengths, None)[upto(2 if masked else 3) - 1]
    weight = torch.rand(*lead, M, generator=generator)
    call["weight"] = weight if masked or upto(2) == 1 else None
    if "presence" in signature(LOSSES[loss]).parameters:
        presence = torch.randn(*lead, N, generator=generator)
        call["presence"] = presence if upto(2) == 1 else None
    return call


@cache
def working_call(loss: str, seed: int) -> Call:
    """A drawn call that is shown to work, so that a spoiled one can only fail for what it is."""
    call = draw_call(loss, seed)
    assert not LOSSES[loss](**call).isnan().any()
    return call


def put(value: float, *index: Any) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor[(..., *index)] = value
        return tensor

    return change


def longer(tensor: Tensor, dim: int = -1) -> Tensor:
    return torch.cat([tensor, tensor.narrow(dim, 0, 1)], dim)


def instead(*values: object) -> Changes:
    return {repr(value): partial(lambda value, _: value, value) for value in values}


TENSORS: Changes = {
    "list": lambda t: t.tolist(),
    "array": lambda t: t.numpy(),
    "complex": lambda t: t.to(torch.complex64),
    "other device": lambda t: t.to("meta"),
    "leading dimension more": lambda t: t.unsqueeze(0),
    "other leading dimensions": lambda t: t.expand(7, *t.shape),
    **instead(1.0, "1.0"),
}
ELEMENTS: Changes = {
    "rank 0": lambda t: t.sum(),
    "rank 1": lambda t: t.flatten(),
    "no features": lambda t: t[..., :0],
    "feature more": longer,
    "feature less": lambda t: t[..., :-1],
    "integers": lambda t: t.long(),
    "booleans": lambda t: t > 0,
    **{f"{value} in feature {f}": put(value, 0, f) for value in (NAN, INF, -INF) for f in (0, -1)},
    **instead(None),
}
OUT_OF_RANGE: Changes = {f"value {value}": put(value, 0, 0) for value in (-0.1, 1.1, -1e-6, 255.0)}
WRONG_SHAPES: Changes = {
    "other size": longer,
    "elements and features": lambda t: t.unsqueeze(-1),
    "sets only": lambda t: t[..., 0],
}
MASKS: Changes = {
    "floats": lambda t: t.float(),
    "integers": lambda t: t.long(),
    "negative lengths": lambda t: -t.sum(-1),
    "long lengths": lambda t: t.sum(-1) + 1,
    "lengths in floats": lambda t: t.float().sum(-1),
    "lengths of other shape": lambda t: t.sum(-1, keepdim=True),
}
WEIGHTS: Changes = {
    "integers": lambda t: t.long(),
    "booleans": lambda t: t.bool(),
    **{f"value {value}": put(value, 0) for value in (-0.5, NAN, INF, -INF)},
}
PRESENCES: Changes = {
    "integers": lambda t: t.long(),
    "booleans": lambda t: t.bool(),
    **{f"value {value}": put(value, 0) for value in (NAN, INF, -INF)},
}
CHANGES: Mapping[str, Changes] = {
    "input": {**TENSORS, **ELEMENTS},
    "target": {**TENSORS, **ELEMENTS, **OUT_OF_RANGE},
    "input_valid": {**TENSORS, **WRONG_SHAPES, **MASKS},
    "target_valid": {**TENSORS, **WRONG_SHAPES, **MASKS},
    "weight": {**TENSORS, **WRONG_SHAPES, **WEIGHTS},
    "presence": {**TENSORS, **WRONG_SHAPES, **PRESENCES},
    "presence_weight": instead(-1.0, NAN, INF, "1.0", True, None),
    "missing_cost": instead(0, -1.0, NAN, INF, "1.0", True),
    "method": instead("fast", "Exact", None, True),
    "exclusivity": instead(-0.1, 1.1, NAN, "1.0", True, torch.ones(1), torch.tensor(2.0)),
    "features": instead(Bernoulli(3), [Bernoulli(3)], Features, "x", 3, Features(Bernoulli(40))),
    "reduction": instead("avg", "MEAN", "", None, 0, True),
    "impl": instead("fast", "Auto", None, True),
    "skip_negligible": instead(0, 1, None, "yes"),
    "temperature": instead(0, 0.0, -1.0, NAN, INF, "1.0", True, None, torch.ones(1)),
}
CORRUPTIONS = [
    (loss, argument, name)
    for argument, changes in CHANGES.items()
    for name in changes
    for loss in LOSSES
    if argument in signature(LOSSES[loss]).parameters
]


def bad_calls(loss: str, argument: str, name: str) -> Iterator[Call]:
    for seed in SEEDS:
        call = working_call(loss, seed)
        if name in OUT_OF_RANGE and argument == "target" and call["features"] == REALS:
            continue  # any number is in range there
        start = call.get(argument)
        if argument.endswith("_valid"):
            start = torch.ones(call[argument.removesuffix("_valid")].shape[:-1]).bool()
        elif argument == "weight":
            start = torch.ones(call["target"].shape[:-1])
        elif argument == "presence":
            start = torch.ones(call["input"].shape[:-1])
        yield call | {argument: CHANGES[argument][name](start)}


def check_refused(call: Callable[[], object], argument: str) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert re.search(rf"\b{argument}\b", str(caught.value))
    return str(caught.value)


@pytest.mark.parametrize(("loss", "argument", "name"), CORRUPTIONS)
def test_bad_call_is_refused_by_name(loss: str, argument: str, name: str) -> None:
    for call in bad_calls(loss, argument, name):
        opening = check_refused(partial(LOSSES[loss], **call), argument).split(":")[0]
        assert opening == argument or (opening, argument) == ("target", "input")  # a mismatch


def test_there_are_more_than_a_thousand_bad_calls() -> None:
    assert sum(1 for case in CORRUPTIONS for _ in bad_calls(*case)) > 1000


def test_ordered_loss_refuses_sets_of_unequal_size() -> None:
    for seed, argument in product(SEEDS, ("input", "target")):
        call = working_call("ordered_cross_entropy", seed)
        call = call | {"input_valid": None, "target_valid": None, "weight": None}
        sw.ordered_cross_entropy(**call)
        call[argument] = longer(call[argument], -2)
        check_refused(partial(sw.ordered_cross_entropy, **call), argument)


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), garbage=st.sampled_from([NAN, INF, -INF, -7.0, 1e30]))
def test_what_is_masked_out_does_not_matter(loss: str, seed: int, garbage: float) -> None:
    """Not even NaN: neither to the loss nor to any gradient."""
    call = draw_call(loss, seed, masked=True)
    hidden: dict[str, Tensor] = {}
    for name in ("input", "target"):
        valid = call[f"{name}_valid"]
        if valid.dtype != torch.bool:
            valid = torch.arange(call[name].shape[-2]) < valid.unsqueeze(-1)
        hidden[name] = ~valid.unsqueeze(-1).expand_as(call[name])
    hidden["weight"] = hidden["target"][..., 0]
    if call.get("presence") is not None:
        hidden["presence"] = hidden["input"][..., 0]

    def outcome(filling: float) -> tuple[Tensor, ...]:
        leaves = {name: call[name].masked_fill(where, filling) for name, where in hidden.items()}
        value = LOSSES[loss](**call | {k: leaf.requires_grad_() for k, leaf in leaves.items()})
        return value.detach(), *torch.autograd.grad(value.sum(), list(leaves.values()))

    clean, dirty = outcome(0.5), outcome(garbage)
    assert all(torch.equal(a, b) for a, b in zip(clean, dirty, strict=True))
    gradients = zip(dirty[1:], hidden.values(), strict=True)
    assert not any(gradient[where].any() for gradient, where in gradients)


KINDS = (Bernoulli, Categorical, Gaussian)
SETS, BATCH = [torch.ones(1, 3), torch.ones(2, 3)], torch.ones(2, 3, 4)
ODD_SETS = ([*SETS, torch.ones(1, 4)], [*SETS, BATCH], [*SETS, torch.ones(1, 3, device="meta")])
NO_SETS = (BATCH, None, iter(SETS), [[[1.0]]], [torch.ones(3)], [torch.ones(())])
BAD_SETS: tuple[object, ...] = (*NO_SETS, *ODD_SETS, [])
BAD_WIDTHS, BAD_NUMBERS = (0, -1, 2.0, True, "2", None), (0, -1, NAN, INF, "1", True, None)
BAD_MASKS = (BATCH > 0, torch.ones(2) > 0, [[True] * 3] * 2, torch.ones(2, 3).numpy())
BAD_HELPS: list[tuple[Callable[..., object], Call, str, tuple[object, ...]]] = [
    *((kind, {}, "width", BAD_WIDTHS) for kind in KINDS),
    *((kind, {"width": 2}, "weight", BAD_NUMBERS) for kind in KINDS),
    (Gaussian, {"width": 2}, "scale", BAD_NUMBERS),
    (Categorical, {"width": 2}, "scored_as", ("x", "Bernoulli", None, True)),
    (sw.pad_sets, {}, "sets", (*BAD_SETS, [torch.ones(2, 0)])),
    (sw.mask_sets, {}, "sets", BAD_SETS),
    (sw.pad_sets, {"sets": SETS}, "size", (1, 0, -1, 4.0, True, "4", 20)),
    (sw.mask_sets, {"sets": SETS}, "size", (1, 0, -1, 4.0, True, "4")),
    (sw.pad_sets, {"sets": SETS}, "features", (Features(Bernoulli(4)), Bernoulli(3), "x")),
    (sw.unpad_sets, {}, "padded", (SETS, None, BATCH[0], BATCH[..., :1])),
    (sw.shuffle_sets, {}, "elements", (SETS, None, torch.ones(3))),
    (sw.shuffle_sets, {"elements": BATCH}, "valid", BAD_MASKS),
    (sw.shuffle_sets, {"elements": BATCH}, "generator", (0, "seed")),
]
BAD_USES = [(f, name, call | {name: bad}) for f, call, name, each in BAD_HELPS for bad in each]


@pytest.mark.parametrize(("function", "argument", "call"), BAD_USES)
def test_helpers_refuse_too(function: Callable[..., object], argument: str, call: Call) -> None:
    check_refused(partial(function, **call), argument)


def test_features_are_made_of_blocks() -> None:
    for blocks in ((), (3,), (Bernoulli,), ([Bernoulli(2)],), (Features(Gaussian()),)):
        check_refused(partial(Features, *blocks), "block")


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_bad_output_is_found_even_where_the_loss_stays_finite(loss: Any, bad: float) -> None:
    """With soft targets an output of -inf is merely never chosen: no NaN would tell of it."""
    logits = torch.zeros(1, 2, 3)
    logits[0, 0, 0] = bad
    with pytest.raises(ValueError, match=r"^input"):
        loss(logits, torch.full((1, 2, 3), 0.5))


def test_large_outputs_are_not_mistaken_for_infinite_ones() -> None:
    """Their sum overflows, they do not."""
    assert sw.hausdorff(torch.full((1, 2, 3), 3e38), torch.ones(1, 2, 3)) == 0
