"""Average precision against its two definitions, written out one output at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise import metrics
from setwise.metrics.precision import Definition

OBJECT = sw.Features(sw.Categorical(3), sw.Gaussian(2), sw.Bernoulli(1))
LIMITS = (math.inf, 1.0, 0.5, 0.1)


def _looks(element: list[float]) -> tuple[float, ...]:
    return (*element[:3], element[5])


def _apart(x: list[float], y: list[float]) -> float:
    return math.dist(x[3:5], y[3:5])


def _from_hits(hits: list[bool], targets: int) -> float:
    """At each of the recalls 1/n, 2/n, ..., the best precision with that recall or more."""
    found = [sum(hits[: k + 1]) for k in range(len(hits))]
    total = 0.0
    for wanted in range(1, targets + 1):
        enough = [n / (k + 1) for k, n in enumerate(found) if n >= wanted]
        total += max(enough, default=0.0) / targets
    return total


def _over_the_data_set(scenes: list[Any], limit: float) -> float:
    ranked = [
        (c, b, y) for b, (ys, cs, _) in enumerate(scenes) for c, y in zip(cs, ys, strict=True)
    ]
    found, hits = set(), []
    for _, b, y in sorted(ranked, key=lambda entry: -entry[0]):
        same = [(_apart(x, y), i) for i, x in enumerate(scenes[b][2]) if _looks(x) == _looks(y)]
        nearest, which = min(same, default=(math.inf, -1))
        hits.append(nearest < limit and (b, which) not in found)
        if hits[-1]:
            found.add((b, which))
    return _from_hits(hits, sum(len(xs) for _, _, xs in scenes))


def _by_picture(scenes: list[Any], limit: float) -> float:
    values = []
    for ys, cs, xs in scenes:
        left, hits = list(xs), []
        for _, y in sorted(zip(cs, ys, strict=True), key=lambda entry: -entry[0]):
            same = [(_apart(x, y), i) for i, x in enumerate(left) if _looks(x) == _looks(y)]
            nearest, which = min(same, default=(math.inf, -1))
            hits.append(nearest < limit)
            if which >= 0:
                left.pop(which)
        if xs:
            values.append(_from_hits(hits, len(xs)))
    return sum(values) / len(values)


ORACLES = {"dataset": _over_the_data_set, "picture": _by_picture}


def _call(B: int = 40) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Outputs near targets, some of another look, many of them twice; two or no targets too."""
    generator = torch.Generator().manual_seed(0)
    target = OBJECT.random_targets((B, 4), generator).double()
    which = torch.randint(0, 4, (B, 7, 1), generator=generator)
    outputs = target.gather(1, which.expand(B, 7, 6))
    logits = OBJECT.from_probs(outputs)
    noise = torch.randn(B, 7, 6, generator=generator).double()
    logits = logits + noise * torch.tensor([12.0, 12, 12, 0.3, 0.3, 9.0])
    options = {
        "presence": torch.randn(B, 7, generator=generator).double(),
        "input_valid": torch.rand(B, 7, generator=generator) < 0.9,
        "target_valid": torch.rand(B, 4, generator=generator) < 0.7,
    }
    options["target_valid"][0] = False
    return logits, target, options


def _scenes(logits: Tensor, target: Tensor, options: dict[str, Tensor]) -> list[Any]:
    outputs = OBJECT.discretise(logits)
    rows = zip(outputs, options["presence"], options["input_valid"], strict=True)
    real = zip(target, options["target_valid"], strict=True)
    return [
        (y[v].tolist(), c[v].tolist(), x[t].tolist())
        for (y, c, v), (x, t) in zip(rows, real, strict=True)
    ]


@pytest.mark.parametrize("definition", ORACLES)
def test_it_is_what_the_definition_says(definition: Definition) -> None:
    logits, target, options = _call()
    scenes = _scenes(logits, target, options)
    expected = [ORACLES[definition](scenes, limit) for limit in LIMITS]
    assert expected == sorted(expected, reverse=True)
    assert expected[0] - expected[-1] > 0.1  # the limits matter
    for shape in ((40,), (5, 8)):
        found = metrics.average_precision(
            logits.reshape(*shape, 7, 6),
            target.reshape(*shape, 4, 6),
            OBJECT,
            within=LIMITS,
            definition=definition,
            **{name: mask.reshape(*shape, -1) for name, mask in options.items()},
        )
        torch.testing.assert_close(found.double(), torch.tensor(expected).double())


def test_the_definitions_differ() -> None:
    """In whether all pictures count alike, and in what a target is when an output misses it."""
    point = sw.Features(sw.Gaussian(1))
    # Two targets, found at once; one target, for which two outputs are needed.
    output = torch.tensor([[[0.0], [9.0]], [[5.0], [0.0]]])
    target = torch.tensor([[[0.0], [9.0]], [[0.0], [0.0]]])
    options: dict[str, Any] = {
        "features": point,
        "presence": torch.tensor([[4.0, 3.0], [2.0, 1.0]]),
        "target_valid": torch.tensor([2, 1]),
        "within": 1.0,
    }
    # Right, right, wrong, right: 2/3 of the targets at a precision of 1, one at 3/4.
    pooled = metrics.average_precision(output, target, **options)
    assert pooled == pytest.approx((2 + 3 / 4) / 3)
    # The first output of the second picture takes its only target, though it is too far away.
    each = metrics.average_precision(output, target, definition="picture", **options)
    assert each == pytest.approx((1 + 0) / 2)


def test_only_the_first_of_two_that_find_the_same_is_right() -> None:
    target, output = torch.tensor([[1.0], [1.0]]), torch.tensor([[9.0], [9.0]])
    presence = torch.tensor([1.0, 0.0])
    # Of two equal targets the nearest is always the first, by the data set's definition.
    assert metrics.average_precision(output, target, presence=presence) == 0.5
    both = metrics.average_precision(output, target, presence=presence, definition="picture")
    assert both == 1.0


def test_angles_count_by_the_shorter_way_round() -> None:
    features = sw.Features(sw.Angle(1), sw.Poisson(1))
    output = torch.tensor([[3.1, math.log(2.0)], [0.0, math.log(3.0)]])
    target = torch.tensor([[-3.1, 2.0], [0.0, 2.0]])
    call: dict[str, Any] = {"features": features, "presence": torch.tensor([1.0, 0.0])}
    near, far = metrics.average_precision(output, target, within=(0.1, 0.05), **call)
    assert near == 0.5  # the other one is a miscount
    assert far == 0.0


def test_no_targets_have_no_precision() -> None:
    nothing, something = torch.zeros(2, 0, 3), torch.ones(2, 4, 3)
    for definition in ("dataset", "picture"):
        options: dict[str, Any] = {"definition": definition}
        none = metrics.average_precision(something, nothing, presence=torch.ones(2, 4), **options)
        assert none.isnan()
        missed = metrics.average_precision(nothing, something, presence=torch.ones(2, 0), **options)
        assert missed == 0.0
        no_sets = something[:0], something[:0]
        assert metrics.average_precision(*no_sets, presence=torch.ones(0, 4), **options).isnan()


@pytest.mark.parametrize("definition", ORACLES)
@pytest.mark.parametrize("within", [0.5, LIMITS])
def test_the_class_is_the_function_of_all_batches(definition: Definition, within: Any) -> None:
    logits, target, options = _call()
    metric = metrics.AveragePrecision(OBJECT, within=within, definition=definition)
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert metric.compute().isnan().all()
    for rows in (slice(0, 3), slice(3, 30), slice(30, 40)):
        some = {name: mask[rows] for name, mask in options.items()}
        metric.update(logits[rows], target[rows], **some)
    options_: dict[str, Any] = {**options, "within": within, "definition": definition}
    expected = metrics.average_precision(logits, target, OBJECT, **options_)
    torch.testing.assert_close(metric.compute(), expected)


def test_bad_calls_say_what_was_expected() -> None:
    z, x, c = torch.zeros(2, 3, 1), torch.ones(2, 4, 1), torch.zeros(2, 3)
    wrong: dict[str, tuple[dict[str, Any], type[Exception]]] = {
        "within: limits must be positive, got 0": ({"within": 0}, ValueError),
        "within: expected a limit .* got none": ({"within": ()}, ValueError),
        "within: expected a number .*'near'": ({"within": ["near"]}, TypeError),
        "definition: expected one of 'dataset', 'picture'": ({"definition": "all"}, ValueError),
        r"presence: .*\(2, 3\), got \(2, 4\)": ({"presence": torch.zeros(2, 4)}, ValueError),
        "presence: expected the logits": ({"presence": None}, TypeError),
    }
    for message, (options, error) in wrong.items():
        with pytest.raises(error, match=message):
            metrics.average_precision(z, x, **({"presence": c} | options))
    with pytest.raises(ValueError, match="definition"):
        metrics.AveragePrecision(definition="all")  # type: ignore[arg-type]


def test_it_is_that_of_detectors_where_the_definitions_meet() -> None:
    """COCO's evaluation of boxes: squares moved sideways by d overlap by (1 - d) / (1 + d).

    Its recalls are asked for at every target here, so that its sum over recalls is the area.
    """
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    generator = torch.Generator().manual_seed(1)
    B, M, N = 30, 4, 7
    features = sw.Features(sw.Categorical(2), sw.Gaussian(2))
    looks = torch.eye(2)[torch.randint(2, (B, M), generator=generator)]
    places = torch.stack([torch.arange(0.0, 5 * M, 5).expand(B, M), torch.zeros(B, M)], dim=-1)
    target = torch.cat([looks, places], dim=-1)
    chosen = torch.randint(M, (B, N), generator=generator)
    output = target.gather(1, chosen.unsqueeze(-1).expand(B, N, 4)).clone()
    output[..., 2] += 0.3 * torch.randn(B, N, generator=generator)
    other = torch.rand(B, N, generator=generator) < 0.2
    output[..., :2] = torch.where(other.unsqueeze(-1), 1 - output[..., :2], output[..., :2])
    presence = torch.randn(B, N, generator=generator)
    for overlap in (0.5, 0.75):
        distance = (1 - overlap) / (1 + overlap)
        for kind in (0, 1):
            real, said = target[..., kind] == 1, output[..., kind] == 1
            found = metrics.average_precision(
                features.from_probs(output),
                target,
                features,
                presence=presence,
                within=distance,
                input_valid=said,
                target_valid=real,
            )
            truth, answers = coco.COCO(), coco.COCO()
            truth.dataset, answers.dataset = _boxes(target, real), _boxes(output, said, presence)
            truth.createIndex()
            answers.createIndex()
            judge = evaluation.COCOeval(truth, answers, "bbox")
            total = int(real.sum())
            judge.params.iouThrs = torch.tensor([overlap], dtype=torch.double).numpy()
            judge.params.recThrs = (torch.arange(1, total + 1).double() / total).numpy()
            judge.evaluate()
            judge.accumulate()
            expected = judge.eval["precision"][0, :, 0, 0, -1].mean()
            assert 0.1 < expected < 0.9
            assert found == pytest.approx(expected, abs=1e-6)


def _boxes(elements: Tensor, valid: Tensor, presence: Tensor | None = None) -> dict[str, Any]:
    """Squares of side 1 around the places, as COCO's files describe them."""
    entries = []
    for picture, n in valid.nonzero().tolist():
        x, y = elements[picture, n, -2:].tolist()
        entry = {"id": len(entries) + 1, "image_id": picture, "category_id": 1, "iscrowd": 0}
        entry |= {"bbox": [x - 0.5, y - 0.5, 1.0, 1.0], "area": 1.0}
        entry |= {} if presence is None else {"score": presence[picture, n].item()}
        entries.append(entry)
    pictures = [{"id": b} for b in range(len(elements))]
    return {"images": pictures, "categories": [{"id": 1}], "annotations": entries}
