"""Encoders and decoders of attention: order, masks, gradients, ensembles, and known answers.

Legend: N outputs, T elements of the memory, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, stack_module_state

from setwise.models import (
    ImplicitDecoder,
    PointingDecoder,
    QueryDecoder,
    RegionDecoder,
    SetTransformerEncoder,
    SlotAttention,
)
from setwise.models.attention import Attention
from setwise.models.slot_attention import GatedUpdate
from small_models import gradients, seeded

# Of sums in another order, through several layers.
CLOSE = {"rtol": 1e-8, "atol": 1e-10}

READERS: dict[str, Callable[[], nn.Module]] = {
    "queries": lambda: QueryDecoder(8, size=3, heads=2),
    "slots": lambda: SlotAttention(8, size=3),
    # Pulled so much that ranks, and with them elements, do not change by what 16 bits round off.
    "implicit": lambda: ImplicitDecoder(8, 3, 8, latent=16, seeds=2, steps=6, pull=4.0, heads=2),
    "pointing": lambda: PointingDecoder(8, size=3),
    "set transformer": lambda: SetTransformerEncoder(8, 8, 12, heads=2, inducing=4),
    "seeds": lambda: SetTransformerEncoder(8, 8, 12, heads=2, inducing=4, seeds=3),
}


def reader(kind: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return READERS[kind]().double()


def memory(*shape: int) -> Tensor:
    return torch.randn(*shape, 8, generator=seeded(1)).double()


@pytest.mark.parametrize("kind", READERS)
class TestReaders:
    def test_the_order_of_the_memory_is_nothing(self, kind: str) -> None:
        model, read = reader(kind).eval(), memory(4, 6)
        output = model(read)
        assert output.shape == ((4, 8) if kind == "set transformer" else (4, 3, 8))
        torch.testing.assert_close(model(read.flip(1)), output, **CLOSE)
        assert not model(read + memory(4, 6).flip(0)).allclose(output)

    def test_masks_leave_elements_out(self, kind: str) -> None:
        model, read = reader(kind).eval(), memory(4, 6)
        longer = torch.cat([read[:, :2], torch.full_like(read, torch.nan), read[:, 2:]], dim=1)
        valid = torch.ones(4, 12, dtype=torch.bool)
        valid[:, 2:8] = False
        output = model(longer, valid)
        torch.testing.assert_close(output, model(read), **CLOSE)
        for gradient in gradients(model, output):
            assert gradient.isfinite().all()

    def test_an_empty_memory_is_read_as_one(self, kind: str) -> None:
        model, nobody = reader(kind).eval(), torch.zeros(2, 4, dtype=torch.bool)
        hidden = model(memory(2, 4), nobody)
        assert hidden.isfinite().all()
        torch.testing.assert_close(hidden[0], hidden[1], **CLOSE)

    def test_evaluation_is_the_same_every_time(self, kind: str) -> None:
        model, read = reader(kind).eval(), memory(4, 6)
        assert model(read).equal(model(read))
        again = reader(kind, seed=7).eval()
        again.load_state_dict(model.state_dict())
        assert again(read).equal(model(read))

    def test_leading_dimensions_are_examples(self, kind: str) -> None:
        model, read = reader(kind).eval(), memory(2, 3, 6)
        output = model(read)
        torch.testing.assert_close(model(read.flatten(0, 1)), output.flatten(0, 1), **CLOSE)
        torch.testing.assert_close(model(read[1, 2]), output[1, 2], **CLOSE)
        assert model(read[:0]).shape == (0, *output.shape[1:])

    def test_every_weight_matters_in_training(self, kind: str) -> None:
        model = reader(kind)
        for name, gradient in zip(
            dict(model.named_parameters()), gradients(model, model(memory(4, 6))), strict=True
        ):
            assert gradient.isfinite().all()
            # A bias of the keys adds the same to all scores of a query.
            assert gradient.abs().max() > 0 or name == "key.bias"

    def test_an_ensemble_is_its_members(self, kind: str) -> None:
        members = [reader(kind, seed).eval() for seed in range(2)]
        parameters, buffers = stack_module_state(members)

        def one(parameters: Any, buffers: Any, read: Tensor) -> Tensor:
            return functional_call(members[0], (parameters, buffers), (read,))

        read = memory(2, 4, 6)
        together = torch.vmap(one)(parameters, buffers, read)
        weight = torch.randn(together.shape, generator=seeded(2)).double()
        own = dict(
            zip(
                parameters,
                torch.autograd.grad((together * weight).sum(), list(parameters.values())),
                strict=True,
            )
        )
        for k, member in enumerate(members):
            alone = member(read[k])
            torch.testing.assert_close(together[k], alone, **CLOSE)
            named = dict(member.named_parameters())
            found = torch.autograd.grad((alone * weight[k]).sum(), list(named.values()))
            for name, gradient in zip(named, found, strict=True):
                torch.testing.assert_close(own[name][k], gradient, **CLOSE)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_sixteen_bits_are_enough(self, kind: str, dtype: torch.dtype) -> None:
        """By autocast, and of all weights; also where a memory is empty."""
        model, read = reader(kind).eval(), memory(2, 6)
        valid = torch.tensor([[True] * 4 + [False] * 2, [False] * 6])
        expected = model(read, valid)
        by_autocast = model.float()
        with torch.autocast("cpu", dtype=dtype):
            mixed = by_autocast(read.float(), valid)
        for gradient in gradients(by_autocast, mixed.float()):
            assert gradient.isfinite().all()
        narrow = by_autocast.to(dtype)(read.to(dtype), valid)
        assert narrow.dtype == dtype
        for found in (mixed, narrow):
            torch.testing.assert_close(found.double(), expected, rtol=0.1, atol=0.1)

    def test_no_value_is_read(self, kind: str) -> None:
        """Fake tensors hold none: what would make a GPU wait, or break its graph, raises here."""
        with FakeTensorMode():
            valid = torch.ones(4, 6, dtype=torch.bool)
            assert READERS[kind]()(torch.rand(4, 6, 8), valid).shape[0] == 4


def test_regions_put_out_what_they_see_and_nothing_for_those_that_are_hidden() -> None:
    torch.manual_seed(0)
    decoder, read, order = RegionDecoder(8, heads=2).double(), memory(4, 6), torch.randperm(6)
    output = decoder(read)
    assert output.shape == (4, 6, 8)
    torch.testing.assert_close(decoder(read[:, order]), output[:, order], **CLOSE)
    valid = torch.arange(6).expand(4, 6) < 4
    hidden = read.masked_fill(~valid.unsqueeze(-1), torch.nan)
    torch.testing.assert_close(decoder(hidden, valid)[:, :4], decoder(read[:, :4]), **CLOSE)
    assert not decoder(read[:, :4]).allclose(output[:, :4])  # they read each other
    assert all(gradient.abs().max() > 0 for gradient in gradients(decoder, output))


def test_attention_is_pytorchs_multihead_attention() -> None:
    torch.manual_seed(0)
    own, theirs = Attention(8, 2).double(), nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([own.query.weight, own.key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([own.query.bias, own.key_value.bias]))
        theirs.out_proj.load_state_dict(own.output.state_dict())
    queries, read = memory(4, 3), memory(4, 6).flip(0)
    valid = torch.rand(4, 6, generator=seeded(3)) < 0.7
    normal = own.memory_norm(read)
    expected, _ = theirs(own.query_norm(queries), normal, normal, key_padding_mask=~valid)
    torch.testing.assert_close(own(queries, read, valid), queries + expected, **CLOSE)


def test_slots_are_updated_by_a_gated_recurrent_unit() -> None:
    torch.manual_seed(0)
    own, theirs = GatedUpdate(8).double(), nn.GRUCell(8, 8).double()
    theirs.load_state_dict(
        {
            "weight_ih": own.from_input.weight,
            "bias_ih": own.from_input.bias,
            "weight_hh": own.from_state.weight,
            "bias_hh": own.from_state.bias,
        }
    )
    input, state = memory(5), memory(5).flip(0)
    torch.testing.assert_close(own(input, state), theirs(input, state), **CLOSE)


def test_slots_follow_what_they_begin_with() -> None:
    """Nothing but the noise tells them apart."""
    slots, read, order = reader("slots").eval(), memory(4, 6), torch.tensor([2, 0, 1])
    before = slots(read)
    slots.start.noise.copy_(slots.start.noise[order])
    torch.testing.assert_close(slots(read), before[:, order], **CLOSE)
    assert not before[:, order].allclose(before)


def test_slots_begin_around_their_mean_in_training() -> None:
    start = SlotAttention(8, size=500).start
    with torch.no_grad():
        start.log_deviation.fill_(-1.0)
        drawn = start(torch.zeros(20, 6, 8))
        assert not start(torch.zeros(20, 6, 8)).equal(drawn)
    error = (drawn - start.mean).flatten(0, 1)  # 10,000 draws
    assert error.mean(0).abs().max() < 5 * 0.368 / 100
    torch.testing.assert_close(error.std(0), torch.full((8,), 0.3679), rtol=0.05, atol=0.0)


def test_the_pointing_decoder_is_an_lstm() -> None:
    """With the cell of PyTorch and attention written out."""
    decoder, read = reader("pointing"), memory(4, 6)
    cell = nn.LSTMCell(8, 8).double()
    with torch.no_grad():
        cell.weight_ih.copy_(decoder.gates.weight[:, :8])
        cell.weight_hh.copy_(decoder.gates.weight[:, 8:])
        cell.bias_ih.copy_(decoder.gates.bias)
        cell.bias_hh.zero_()
    elements = decoder.norm(read)
    found = elements.mean(dim=1)
    h, c = decoder.start(found).tanh().chunk(2, dim=-1)
    expected = []
    for _ in range(3):
        h, c = cell(found, (h, c))
        scores = (decoder.key(elements) @ decoder.query(h).unsqueeze(-1)).squeeze(-1) / 8**0.5
        found = (scores.softmax(-1).unsqueeze(-1) * elements).sum(1)
        expected.append(decoder.output(torch.cat([h, found], dim=-1)))
    torch.testing.assert_close(decoder(read), torch.stack(expected, dim=1), **CLOSE)


def test_queries_give_the_elements_of_every_layer_while_they_train() -> None:
    decoder, read = QueryDecoder(8, 3, layers=2, every_layer=True).double(), memory(4, 6)
    layers = decoder(read)
    assert layers.shape == (4, 2, 3, 8)
    plain = QueryDecoder(8, 3, layers=2).double()
    plain.load_state_dict(decoder.state_dict())
    torch.testing.assert_close(layers[:, 1], plain(read), **CLOSE)
    plain.layers = plain.layers[:1]
    torch.testing.assert_close(layers[:, 0], plain(read), **CLOSE)
    torch.testing.assert_close(decoder.eval()(read), layers[:, 1], **CLOSE)


def test_bad_calls_say_what_was_expected() -> None:
    decoder, read = QueryDecoder(8, 3), torch.rand(2, 6, 8)
    calls: dict[str, tuple[Callable[[], object], type[Exception]]] = {
        "heads: 3 of them .*width of 8": (lambda: QueryDecoder(8, 3, heads=3), ValueError),
        "size: must be at least 1, got 0": (lambda: SlotAttention(8, 0), ValueError),
        "rounds: must be": (lambda: SlotAttention(8, 3, rounds=0), ValueError),
        "latent: must be": (lambda: ImplicitDecoder(8, 3, latent=0), ValueError),
        "pull: must lie": (lambda: ImplicitDecoder(8, 3, pull=-1.0), ValueError),
        "seeds: must be": (lambda: SetTransformerEncoder(8, 3, seeds=0), ValueError),
        r"memory: .*8 in .*\(2, 6, 4\)": (lambda: decoder(read[..., :4]), ValueError),
        r"valid.bool\(\)": (lambda: decoder(read, torch.ones(2, 6)), TypeError),
        r"valid: .*\(2, 6\), got \(6,\)": (
            lambda: decoder(read, torch.ones(6, dtype=torch.bool)),
            ValueError,
        ),
    }
    for message, (call, error) in calls.items():
        with pytest.raises(error, match=message):
            call()
