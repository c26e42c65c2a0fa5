"""The losses as modules: settings are attributes, and forwarded to the function."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import setwise as sw
from mixed_sets import FEATURES, mixed_sets

MODULES = {
    sw.OrderedCrossEntropyLoss: sw.ordered_cross_entropy,
    sw.SetCrossEntropyLoss: sw.set_cross_entropy,
    sw.SetAverageLoss: sw.set_average,
    sw.HausdorffLoss: sw.hausdorff,
    sw.AssignmentCrossEntropyLoss: sw.assignment_cross_entropy,
    sw.SetLikelihoodLoss: sw.set_likelihood,
    sw.StableMatchingCrossEntropyLoss: sw.stable_matching_cross_entropy,
    sw.TransportCrossEntropyLoss: sw.transport_cross_entropy,
}
CALL_ARGUMENTS = {
    "input",
    "target",
    "input_valid",
    "target_valid",
    "weight",
    "presence",
    "matching_cost",
}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_modules_mirror_their_functions(module: Any) -> None:
    """The same options with the same defaults, and the rest in forward."""
    parameters = inspect.signature(MODULES[module]).parameters
    options = {name: p.default for name, p in parameters.items() if name not in CALL_ARGUMENTS}
    constructor = inspect.signature(module).parameters
    assert {name: p.default for name, p in constructor.items()} == options
    forward = inspect.signature(module.forward).parameters
    assert set(forward) - {"self"} == CALL_ARGUMENTS & set(parameters)
    z, x, lengths = mixed_sets()
    expected = MODULES[module](z, x, FEATURES, target_valid=lengths)
    assert module(FEATURES)(z, x, target_valid=lengths) == expected


@pytest.mark.parametrize(
    ("module", "option"),
    [
        (sw.SetCrossEntropyLoss, {"temperature": 0.5}),
        (sw.SetAverageLoss, {"directed": False}),
        (sw.HausdorffLoss, {"directed": False}),
        (sw.SetCrossEntropyLoss, {"reduction": "sum"}),
        (sw.SetCrossEntropyLoss, {"impl": "chunked"}),
    ],
)
def test_modules_forward_their_options(module: Any, option: dict[str, Any]) -> None:
    z, x, _ = mixed_sets()
    assert module(FEATURES, **option)(z, x) == MODULES[module](z, x, FEATURES, **option)
    assert f"{next(iter(option))}={next(iter(option.values()))!r}" in repr(module(**option))


# Another value than the default, for every setting of every module.
OTHERS: dict[str, Any] = {
    "features": FEATURES,
    "temperature": 0.5,
    "directed": False,
    "return_matching": True,
    "method": "bethe",
    "missing_cost": 2.0,
    "exclusivity": 0.5,
    "presence_weight": 2.0,
    "return_settled": True,
    "reduction": "none",
    "impl": "chunked",
    "skip_negligible": False,
}
# A group is of several processes; see `test_sharded`.
SETTINGS = [(module, name) for module in MODULES for name in module.settings if name != "group"]


@pytest.mark.parametrize(
    ("module", "name"), SETTINGS, ids=lambda v: v if isinstance(v, str) else v.__name__
)
def test_settings_are_attributes(module: Any, name: str) -> None:
    """Those of the constructor, read and set at any time; the next call and the text follow."""
    default = inspect.signature(module).parameters[name].default
    loss = module()
    assert getattr(loss, name) == default != OTHERS[name]
    setattr(loss, name, OTHERS[name])
    assert getattr(loss, name) == getattr(module(**{name: OTHERS[name]}), name) == OTHERS[name]
    assert f"{name}={OTHERS[name]!r}" in repr(loss)
    assert not loss.state_dict()
    z, x, _ = mixed_sets()
    if name != "features":
        loss.features = FEATURES
    expected = MODULES[module](z, x, **{"features": FEATURES, name: OTHERS[name]})
    torch.testing.assert_close(loss(z, x), expected, rtol=0, atol=0)


def test_a_wrong_setting_is_an_error_of_the_call() -> None:
    z, x, _ = mixed_sets()
    loss = sw.SetCrossEntropyLoss(FEATURES)
    loss.reduction = "median"
    with pytest.raises(ValueError, match="median"):
        loss(z, x)


class TestTemperature:
    """The one setting that may be a tensor."""

    def test_a_tensor_moves_with_the_module(self) -> None:
        temperature = torch.tensor(2.0)
        loss = sw.SetCrossEntropyLoss(temperature=temperature)
        assert loss.temperature is temperature  # the caller may go on changing it in place
        assert [*loss.buffers()] == [temperature]
        assert loss.double().temperature.dtype == torch.float64
        assert loss.to("meta").temperature.device.type == "meta"

    def test_it_is_no_part_of_a_checkpoint(self) -> None:
        class Model(nn.Module):
            def __init__(self, temperature: float | Tensor) -> None:
                super().__init__()
                self.layer = nn.Linear(2, 3)
                self.loss = sw.SetCrossEntropyLoss(temperature=temperature)

        saved = Model(1.0).state_dict()
        assert [*saved] == ["layer.weight", "layer.bias"]
        model = Model(torch.tensor(3.0))
        model.load_state_dict(saved)
        assert model.loss.temperature == 3.0

    def test_it_may_change_from_one_kind_to_another(self) -> None:
        z, x, _ = mixed_sets()
        loss = sw.SetCrossEntropyLoss(FEATURES)
        kinds = [2.0, torch.tensor(3.0), nn.Parameter(torch.tensor(4.0)), torch.tensor(5.0), 6.0]
        for kind in [*kinds, *kinds[::-1]]:
            loss.temperature = kind
            assert loss.temperature is kind
            assert len([*loss.parameters()]) == isinstance(kind, nn.Parameter)
            assert len([*loss.buffers()]) == (type(kind) is Tensor)
            expected = sw.set_cross_entropy(
                z, x, FEATURES, temperature=torch.as_tensor(kind).item()
            )
            torch.testing.assert_close(loss(z, x), expected)

    def test_a_parameter_is_learned_and_saved(self) -> None:
        z, x, _ = mixed_sets()
        loss = sw.SetCrossEntropyLoss(FEATURES, temperature=nn.Parameter(torch.tensor(2.0)))
        assert [*loss.state_dict()] == ["temperature"]
        loss(z, x).backward()
        step = 1e-3
        high, low = (
            sw.set_cross_entropy(z.double(), x.double(), FEATURES, temperature=2.0 + change)
            for change in (step, -step)
        )
        assert loss.temperature.grad.item() == pytest.approx(((high - low) / 2 / step).item(), 1e-3)

    def test_copied_and_pickled(self) -> None:
        loss = sw.SetCrossEntropyLoss(FEATURES, temperature=torch.tensor(2.0), reduction="sum")
        for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
            assert repr(other) == repr(loss)
            assert [*other.buffers()] == [torch.tensor(2.0)]
            other.temperature = 1.0
        assert loss.temperature == 2.0

    def test_compiled(self) -> None:
        """A change takes effect in a compiled module, too."""
        z, x, _ = mixed_sets()
        loss = sw.SetCrossEntropyLoss(FEATURES, temperature=torch.tensor(2.0))
        compiled = torch.compile(loss, fullgraph=True, backend="eager")
        for temperature in (2.0, 3.0):
            loss.temperature.fill_(temperature)
            expected = sw.set_cross_entropy(z, x, FEATURES, temperature=temperature)
            torch.testing.assert_close(compiled(z, x), expected)


def test_a_module_of_ones_own() -> None:
    """A function of the same signature is all it takes."""

    def scaled(
        input: Tensor, target: Tensor, features: Any = None, *, by: float = 2.0, **options: Any
    ) -> Tensor:
        return by * sw.set_cross_entropy(input, target, features, **options)

    class ScaledLoss(sw.losses.SetLoss):
        function = staticmethod(scaled)

        def __init__(self, features: Any = None, *, by: float = 2.0) -> None:
            super().__init__(features)
            self.by = by

    z, x, _ = mixed_sets()
    assert ScaledLoss.settings == ("features", "by", "reduction")
    assert ScaledLoss(FEATURES, by=3.0)(z, x) == 3 * sw.set_cross_entropy(z, x, FEATURES)
