"""The losses inside PyTorch's machinery: compile, transforms, autocast, checks."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import setwise as sw
from mixed_sets import FEATURES, mixed_sets
from setwise.kernels.gather import Gather, gather, gather_elements, scatter_add

CASES: list[tuple[Any, dict[str, Any]]] = [
    (sw.ordered_cross_entropy, {}),
    (sw.set_cross_entropy, {"impl": "reference"}),
    (sw.set_cross_entropy, {"impl": "chunked", "temperature": 0.5}),
    (sw.set_average, {"impl": "chunked", "directed": False}),
    (sw.hausdorff, {"impl": "reference"}),
    (sw.assignment_cross_entropy, {}),
    (sw.set_likelihood, {"method": "exact"}),
    (sw.set_likelihood, {"method": "bethe"}),
    (sw.set_likelihood, {"exclusivity": 0.7}),
    (sw.transport_cross_entropy, {"missing_cost": 2.0}),
    (sw.stable_matching_cross_entropy, {}),
]
# Losses of all pairs, whose backward pass to the elements is PyTorch's own.
WHOLE = (sw.set_likelihood, sw.transport_cross_entropy)
# Losses whose derivatives are computed beside them have no forward mode.
REVERSE_ONLY = [(sw.set_cross_entropy, {"impl": "chunked", "temperature": 0.5}), *CASES[6:10]]


@pytest.mark.parametrize(("loss", "options"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
class TestTransforms:
    def test_compiles_without_a_graph_break(self, loss: Any, options: dict[str, Any]) -> None:
        z, x, lengths = mixed_sets()

        def function(z: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
            return loss(z, x, FEATURES, input_valid=lengths, target_valid=lengths, **options)

        torch._dynamo.reset()  # which counts the cases as recompilations of one function
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        results = []
        for run in (function, compiled):
            leaf = z.clone().requires_grad_()
            value = run(leaf, x, lengths)
            value.backward()
            results.append((value.detach(), leaf.grad))
        torch.testing.assert_close(results[1], results[0])

    def test_vmap_and_grad(self, loss: Any, options: dict[str, Any]) -> None:
        """Gradients of each set by itself, mapped over the batch, are those of the batch."""
        z, x, lengths = mixed_sets()

        def one_set(z: Tensor, x: Tensor, length: Tensor) -> Tensor:
            return loss(z, x, FEATURES, input_valid=length, target_valid=length, **options)

        mapped = torch.func.vmap(torch.func.grad(one_set))(z, x, lengths)
        leaf = z.clone().requires_grad_()
        total = loss(
            leaf,
            x,
            FEATURES,
            input_valid=lengths,
            target_valid=lengths,
            reduction="sum",
            **options,
        )
        (expected,) = torch.autograd.grad(total, leaf)
        torch.testing.assert_close(mapped, expected)

    def test_autocast_changes_nothing(self, loss: Any, options: dict[str, Any]) -> None:
        z, x, _ = mixed_sets()
        expected = loss(z, x, FEATURES, **options)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(z, x, FEATURES, **options)
        assert value.dtype == torch.float32
        assert value == expected

    def test_autocast_does_not_reach_the_backward_pass(
        self, loss: Any, options: dict[str, Any]
    ) -> None:
        if options.get("impl") == "reference" or loss in WHOLE:
            return  # whose backward pass is PyTorch's own
        z, x, _ = mixed_sets()
        grads = []
        for enabled in (False, True):
            leaf = z.clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                grads.append(torch.autograd.grad(loss(leaf, x, FEATURES, **options), leaf)[0])
        assert grads[0].equal(grads[1])

    def test_half_precision_gradients(self, loss: Any, options: dict[str, Any]) -> None:
        """Computed in float32, returned in the type of the leaf."""
        z, x, _ = mixed_sets()
        leaf = z.bfloat16().requires_grad_()
        wide = z.bfloat16().float().requires_grad_()
        (grad,) = torch.autograd.grad(loss(leaf, x, FEATURES, **options), leaf)
        (expected,) = torch.autograd.grad(loss(wide, x, FEATURES, **options), wide)
        assert grad.dtype == torch.bfloat16
        torch.testing.assert_close(grad, expected.bfloat16())


@pytest.mark.slow  # compiles; test_vmap_and_grad is the same without a compiler
def test_transforms_within_what_is_compiled() -> None:
    z, x, _ = mixed_sets()

    def gradients(z: Tensor, x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.grad(lambda z, x: sw.set_average(z, x, FEATURES)))(z, x)

    torch._dynamo.reset()
    compiled = torch.compile(gradients, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z, x), gradients(z, x))


@pytest.mark.slow  # compiles
def test_engines_whose_gradients_a_compiler_would_lose() -> None:
    z, x, _ = mixed_sets()

    def gradient(z: Tensor) -> Tensor:
        return torch.func.grad(lambda z: sw.set_cross_entropy(z, x, FEATURES, impl="chunked"))(z)

    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"inside torch\.compile need 'auto' or 'reference', got"):
        torch.compile(gradient, fullgraph=True, backend="aot_eager")(z)
    torch._dynamo.reset()
    partly = torch.compile(gradient, backend="aot_eager")  # what is refused is then not compiled
    torch.testing.assert_close(partly(z), gradient(z))


def test_hessian_of_the_chunked_engine() -> None:
    z, x, _ = mixed_sets()
    hessians = [
        torch.func.jacrev(
            torch.func.grad(lambda z, impl=impl: sw.set_cross_entropy(z, x[0], FEATURES, impl=impl))
        )(z[0])
        for impl in ("reference", "chunked")
    ]
    torch.testing.assert_close(hessians[1], hessians[0])


class _Unreadable(Tensor):
    """A tensor that, like one on a busy GPU, must not be asked for its values."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in {"item", "__bool__", "tolist", "nonzero", "cpu"}:
            raise AssertionError(f"{func.__name__} would synchronise with the device")
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("loss", [case[0] for case in CASES[:5]])
def test_no_value_is_read_where_reading_synchronises(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("setwise.values.are_readable", lambda tensor: False)
    z, x, lengths = (t.as_subclass(_Unreadable) for t in mixed_sets())
    value = loss(z, x, FEATURES, input_valid=lengths, target_valid=lengths)
    assert value.as_subclass(Tensor).isfinite()


def test_values_are_checked_on_other_devices_under_anomaly_detection() -> None:
    from setwise.values import are_readable

    class _OnCuda:
        device = torch.device("cuda")

    assert not are_readable(_OnCuda())  # type: ignore[arg-type]
    with torch.autograd.set_detect_anomaly(True):
        assert are_readable(_OnCuda())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "loss",
    [
        sw.set_cross_entropy,
        sw.transport_cross_entropy,
        sw.assignment_cross_entropy,
        partial(sw.set_likelihood, method="exact"),
        partial(sw.set_likelihood, method="bethe"),
    ],
)
def test_nothing_is_read_from_tensors_without_values(loss: Any) -> None:
    """Shapes can be worked out with fake tensors, as tracing tools do."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        value = loss(torch.randn(2, 5, 4), torch.rand(2, 3, 4), reduction="none")
    assert value.shape == (2,)


@pytest.mark.parametrize("engine", ["reference", "chunked"])
def test_a_nan_is_not_hidden_by_a_search_for_the_best(engine: Any) -> None:
    from setwise.kernels import dispatch

    keys = torch.randn(1, 700, 3)
    keys[0, 3] = torch.nan
    index = dispatch.argmax(torch.randn(1, 5, 3), keys, torch.zeros(1, 700), engine)
    assert (index == 3).all()


class TestGather:
    """Elements by their number: operators of ours that PyTorch's indexing is the measure of."""

    def test_as_indexing(self) -> None:
        generator = torch.Generator().manual_seed(0)
        elements = torch.randn(3, 5, 2, generator=generator, dtype=torch.float64)
        index = torch.randint(5, (3, 7), generator=generator)
        elements.requires_grad_()
        expected = elements[torch.arange(3).unsqueeze(-1), index]
        assert Gather.apply(elements, index).equal(expected)
        weight = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
        grads = [
            torch.autograd.grad((gathered * weight).sum(), elements)[0]
            for gathered in (Gather.apply(elements, index), expected)
        ]
        torch.testing.assert_close(grads[0], grads[1])
        assert torch.autograd.gradgradcheck(lambda e: Gather.apply(e, index).square(), (elements,))

    def test_operators_keep_their_promises(self) -> None:
        elements, index = torch.randn(3, 5, 2).mT.contiguous().mT, torch.randint(5, (3, 7))
        torch.library.opcheck(gather, (elements, index))
        torch.library.opcheck(scatter_add, (torch.randn(3, 7, 2), index, 5))

    def test_mapped(self) -> None:
        elements, index = torch.randn(4, 3, 5, 2), torch.randint(5, (4, 3, 7))
        mapped = torch.vmap(Gather.apply)(elements, index)
        assert mapped.equal(
            torch.stack([gather_elements(*one) for one in zip(elements, index, strict=True)])
        )

    def test_compiled(self) -> None:
        """As the operator, which is what keeps additions in order."""
        seen: list[str] = []

        def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            seen.append(str(graph.code))
            return graph

        elements, index = torch.randn(3, 5, 2), torch.randint(5, (3, 7))
        assert torch.compile(gather_elements, backend=backend)(elements, index).equal(
            gather_elements(elements, index)
        )
        assert "torch.ops.setwise.gather" in seen[0]


@pytest.mark.parametrize(
    ("loss", "options"),
    [case for case in CASES if case not in REVERSE_ONLY],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, in jvp
def test_forward_mode(loss: Any, options: dict[str, Any]) -> None:
    """The dense engine has it; so do losses that pick pairs, whatever engine picks them."""
    z, x, _ = mixed_sets()
    direction = torch.randn(z.shape, generator=torch.Generator().manual_seed(1))

    def function(z: Tensor) -> Tensor:
        return loss(z, x, FEATURES, **options)

    _, along = torch.func.jvp(function, (z,), (direction,))
    leaf = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(function(leaf), leaf)
    torch.testing.assert_close(along, (grad * direction).sum(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("features", [sw.Features(sw.Gaussian(3)), None], ids=["points", "bits"])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, of duals
def test_forward_mode_by_dual_numbers(features: sw.Features | None) -> None:
    generator = torch.Generator().manual_seed(0)
    z, x = torch.randn(2, 4, 3, generator=generator), torch.rand(2, 3, 3, generator=generator)
    direction = torch.randn(z.shape, generator=generator)
    leaf = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(sw.set_cross_entropy(leaf, x, features), leaf)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(z, direction)
        loss = sw.set_cross_entropy(dual, x, features, impl="reference")
        along = forward_ad.unpack_dual(loss).tangent
    torch.testing.assert_close(along, (grad * direction).sum(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [sw.set_cross_entropy, sw.set_average, sw.hausdorff])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, of duals
def test_forward_mode_by_what_else_a_loss_depends_on(loss: Any) -> None:
    """A short cut that knows the gradient by the outputs alone would lose these in silence."""
    generator = torch.Generator().manual_seed(0)
    z, x = torch.randn(2, 4, 3, generator=generator), torch.rand(2, 3, 3, generator=generator)
    options = {"weight": torch.rand(2, 3, generator=generator)}
    if loss is sw.set_cross_entropy:
        options["temperature"] = torch.tensor(2.0)
    for name, tensor in options.items():
        leaf = tensor.clone().requires_grad_()
        (grad,) = torch.autograd.grad(loss(z, x, **(options | {name: leaf})), leaf)
        with forward_ad.dual_level():
            dual = {name: forward_ad.make_dual(tensor, tensor)}
            along = forward_ad.unpack_dual(loss(z, x, **(options | dual))).tangent
        torch.testing.assert_close(along, (grad * tensor).sum())
