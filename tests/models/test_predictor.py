"""From pictures, vectors and sets to sets that say which elements exist; and exported networks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import setwise as sw
from exported_networks import EXPORTED, FEATURES, PICTURE, predictor
from setwise.models import (
    DeepSetsEncoder,
    PictureEncoder,
    PointingDecoder,
    QueryDecoder,
    SetDecoder,
    SetPredictor,
    SetTransformerEncoder,
    SlotAttention,
)
from setwise.models.picture_encoder import ResidualBlock
from small_models import gradients, seeded


def vectors(decoder: nn.Module) -> SetPredictor:
    backbone = nn.Sequential(nn.Linear(5, 2 * 8), nn.Unflatten(-1, (2, 8)))
    return SetPredictor(backbone, decoder, FEATURES)


VECTOR, SET = (5,), (4, 5)
PREDICTORS: dict[str, tuple[Callable[[], SetPredictor], tuple[int, ...]]] = {
    "picture": (lambda: predictor(QueryDecoder(8, 3, heads=2)), PICTURE),
    "vector": (lambda: vectors(SlotAttention(8, 3)), VECTOR),
    "vector, fully connected": (
        lambda: SetPredictor(nn.Identity(), SetDecoder(5, 3, 8, 16), FEATURES),
        VECTOR,
    ),
    "set": (
        lambda: SetPredictor(
            SetTransformerEncoder(5, 8, 8, heads=2, seeds=2), PointingDecoder(8, 3), FEATURES
        ),
        SET,
    ),
    "set, fully connected": (
        lambda: SetPredictor(DeepSetsEncoder(5, 6, (8,), (8,)), SetDecoder(6, 3, 8, 16), FEATURES),
        SET,
    ),
}


@pytest.mark.parametrize("kind", PREDICTORS)
def test_anything_becomes_a_set(kind: str) -> None:
    build, shape = PREDICTORS[kind]
    torch.manual_seed(0)
    model, input = build(), torch.randn(4, *shape, generator=seeded(1))
    prediction = model(input)
    assert prediction.elements.shape == (4, 3, FEATURES.width)
    assert prediction.presence.shape == (4, 3)
    target = FEATURES.random_targets((4, 2), seeded(2))
    loss = sw.assignment_cross_entropy(*prediction[:1], target, FEATURES, presence=prediction[1])
    found = gradients(model, loss)
    assert all(gradient.isfinite().all() for gradient in found)
    assert sum(gradient.abs().max() > 0 for gradient in found) > 0.9 * len(found)


@pytest.mark.parametrize("kind", ["set", "set, fully connected"])
def test_predictors_of_sets_take_masks(kind: str) -> None:
    model = PREDICTORS[kind][0]().eval()
    sets, valid = torch.randn(4, 4, 5, generator=seeded(1)), torch.arange(4).expand(4, 4) < 3
    hidden, cut = model(sets, valid), model(sets[:, :3])
    torch.testing.assert_close(hidden.elements, cut.elements)
    torch.testing.assert_close(hidden.presence, cut.presence)
    assert not hidden.elements.allclose(model(sets).elements)


def test_regions_of_a_picture_know_their_place() -> None:
    torch.manual_seed(0)
    encoder = PictureEncoder(8, widths=(4, 4))
    memory = encoder(torch.full((2, 5, 3, 8, 12), 0.5))
    assert memory.shape == (2, 5, 2 * 3, 8)
    apart = torch.cdist(memory[0, 0], memory[0, 0]) + 9 * torch.eye(6)
    assert apart.min() > 1e-3
    # What is seen in a region is read from there: another picture in its lower right corner.
    corner = torch.full((3, 8, 12), 0.5)
    corner[:, 7, 11] = 1.0
    changed = (encoder(corner) - encoder(torch.full((3, 8, 12), 0.5))).abs().amax(-1) > 1e-6
    assert changed.tolist() == [False] * 5 + [True]


def test_residual_blocks_add_nothing_at_first_and_learn() -> None:
    pictures = torch.rand(2, 3, 8, 8, generator=seeded(1))
    plain, deep = (PictureEncoder(8, (4, 6), blocks=blocks) for blocks in (0, 2))
    blocks = [one for one in deep.eyes if isinstance(one, ResidualBlock)]
    assert [one.norm.normalized_shape for one in blocks] == [(4,), (4,), (6,), (6,)]
    kept = nn.Sequential(*(one for one in deep.eyes if not isinstance(one, ResidualBlock)))
    plain.load_state_dict(
        {k: v for k, v in deep.state_dict().items() if not k.startswith("eyes")}
        | {f"eyes.{k}": v for k, v in kept.state_dict().items()}
    )
    assert deep(pictures).equal(plain(pictures))
    deep(pictures).square().mean().backward()
    assert all(one.layers[-1].weight.grad.abs().max() > 0 for one in blocks)


def test_bad_calls_say_what_was_expected() -> None:
    with pytest.raises(TypeError, match=r"features: expected Features\(...\)"):
        SetPredictor(nn.Identity(), QueryDecoder(8, 3), 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="decoder: Linear must say by an attribute `features`"):
        SetPredictor(nn.Identity(), nn.Linear(8, 3), FEATURES)
    with pytest.raises(ValueError, match=r"pictures: .*multiples of 4, got \(2, 3, 8, 10\)"):
        PictureEncoder(8, widths=(4, 4))(torch.rand(2, 3, 8, 10))
    with pytest.raises(ValueError, match=r"pictures: .*3, H, W"):
        PictureEncoder(8)(torch.rand(2, 1, 8, 8))
    with pytest.raises(ValueError, match="blocks: must be at least 0, got -1"):
        PictureEncoder(8, blocks=-1)
    with pytest.raises(ValueError, match=r"pictures: .*3, H, W.*got \(2, 3, 0, 8\)"):
        PictureEncoder(8)(torch.rand(2, 3, 0, 8))
    with pytest.raises(ValueError, match=r"pictures: expected shape \[\*, C, H, W\], got \(\)"):
        PictureEncoder(8)(torch.tensor(1.0))
    with pytest.raises(TypeError, match=r"pictures: expected a torch.Tensor, got list"):
        PictureEncoder(8)([1.0])


# Some seconds each for those that are traced through many operations, of which `queries` is one.
SLOW = {"set transformer", "regions", "slots", "implicit", "pointing", "patches"}


@cache
def exported(kind: str) -> tuple[nn.Module, torch.export.ExportedProgram]:
    """A network, and the same for a batch of any size."""
    build, shape = EXPORTED[kind]
    torch.manual_seed(0)
    model = build().eval()
    return model, export(model, (torch.randn(4, *shape),), dynamic_shapes=({0: Dim("batch")},))


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in EXPORTED]
)
def test_exported_networks_take_a_batch_of_any_size(kind: str) -> None:
    model, program = exported(kind)
    for size in (2, 7):
        input = torch.randn(size, *EXPORTED[kind][1], generator=seeded(size))
        torch.testing.assert_close(program.module()(input), model(input))


@pytest.fixture(scope="module")
def quick_exporter() -> Iterator[None]:
    """PyTorch collects what it can translate once, and not for every network, if it still can."""
    with pytest.MonkeyPatch.context() as patch:
        registration = pytest.importorskip("torch.onnx._internal.exporter._registration")
        registry = getattr(registration, "ONNXRegistry", None)
        if hasattr(registry, "from_torchlib"):
            once = cache(registry.from_torchlib)
            patch.setattr(registry, "from_torchlib", staticmethod(once))
        yield


# Slow, because some are; what ONNX is made from is tested above.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize(
    "kind", sorted(EXPORTED.keys() - {"queries"})
)  # those are examples/export.py
def test_networks_answer_in_onnx_runtime_as_in_pytorch(kind: str, quick_exporter: None) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, exported_program = exported(kind)
    program = torch.onnx.export(exported_program, dynamo=True, optimize=False, verbose=False)
    assert program is not None
    file = io.BytesIO()
    program.save(file)
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    (read,) = session.get_inputs()
    for size in (1, 7):
        input = torch.randn(size, *EXPORTED[kind][1], generator=seeded(size))
        found = [torch.from_numpy(one) for one in session.run(None, {read.name: input.numpy()})]
        expected = model(input)
        expected = list(expected) if isinstance(expected, tuple) else [expected]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
