"""Elements in clusters that are far from the origin and from each other, judged beside dense sums.

The dense computation in float32 takes differences first, which are exact between neighbours: no
engine may be worse than that by more than 1e-5 of the largest number. Of more features than a
GPU compares, it is the product of centred elements that the kernels may be no worse than; but on a
GPU, whose tensor cores cut digits off where others round, they may have eight times its error.

Legend: B sets, M targets, N outputs, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional as F_

import setwise as sw
from setwise.kernels.dispatch import most_compared

FAR = [0.0, 100.0, 1e4]
FEATURES = {
    "points": sw.Features(sw.Gaussian(3, scale=0.1)),
    "pixels": sw.Features(sw.Gaussian(2, scale=1.0, weight=0.5)),
    "points and bits": sw.Features(sw.Bernoulli(1), sw.Gaussian(2, scale=0.1)),
    "mixed": sw.Features(
        sw.Categorical(4), sw.Gaussian(2, scale=0.1), sw.Bernoulli(2), sw.Gaussian(1, scale=0.5)
    ),
    "wide": sw.Features(sw.Gaussian(40, scale=0.5)),
    "embedding": sw.Features(sw.Gaussian(100, scale=0.5)),
}
# Each loss of one set from its costs [M, N].
Loss = tuple[Callable[..., Tensor], dict[str, Any], Callable[[Tensor], Tensor]]


def soft(temperature: float) -> Callable[[Tensor], Tensor]:
    return lambda h: -temperature * torch.logsumexp(-h / temperature, -1).sum()


def matched(h: Tensor) -> Tensor:
    rows, columns = linear_sum_assignment(h.detach().double().cpu().numpy())
    return h[rows, columns].sum()


PAIRWISE: dict[str, Loss] = {
    "set": (sw.set_cross_entropy, {}, soft(1.0)),
    "set, hot": (sw.set_cross_entropy, {"temperature": 30.0}, soft(30.0)),
    "set, cold": (sw.set_cross_entropy, {"temperature": 0.01}, soft(0.01)),
    "average": (
        sw.set_average,
        {"directed": False},
        lambda h: h.amin(-1).mean() + h.amin(-2).mean(),
    ),
    "hausdorff": (sw.hausdorff, {}, lambda h: h.amin(-1).amax()),
}
ASSIGNMENT: Loss = (sw.assignment_cross_entropy, {}, matched)


def clusters(
    features: sw.Features, far: float, B: int = 2, M: int = 21, N: int = 19
) -> tuple[Tensor, Tensor]:
    """Outputs close to targets, in clusters on either side of the origin; float32, on the host."""
    generator = torch.Generator().manual_seed(int(far) + features.width)
    place = torch.tensor([far, -far / 3, 0.0]).repeat(M)[:M, None]
    logits, target = [], []
    for block in features.blocks:
        x = block.random_targets((B, M), generator)
        if isinstance(block, sw.Gaussian):
            x = torch.rand(x.shape, generator=generator) + place
            z = x + 0.5 * block.scale * torch.randn(x.shape, generator=generator)
        else:
            z = 4 * x - 2 + torch.randn(x.shape, generator=generator)
        logits.append(z[:, :N])
        target.append(x)
    return torch.cat(logits, -1), torch.cat(target, -1)


def dense_costs(
    features: sw.Features, logits: Tensor, target: Tensor, multiplied: bool = False
) -> Tensor:
    """[N, F], [M, F] -> [M, N], straight from the definitions."""
    total = logits.new_zeros(())
    parts = zip(features.blocks, features.split(logits), features.split(target), strict=True)
    for block, y, x in parts:
        y, x = y.unsqueeze(0), x.unsqueeze(1)
        if isinstance(block, sw.Gaussian) and multiplied:
            middle = x.mean(dim=0, keepdim=True)
            x, y = (x - middle)[:, 0], (y - middle)[0]
            own = x.square().sum(-1)[:, None] + y.square().sum(-1)
            cost = (own - 2 * x @ y.T) / (2 * block.scale**2)
        elif isinstance(block, sw.Gaussian):
            cost = (x - y).square().sum(-1) / (2 * block.scale**2)
        elif isinstance(block, sw.Categorical):
            cost = -(x * y.log_softmax(-1)).sum(-1)
        else:
            cost = (F_.softplus(y) - x * y).sum(-1)
        total = total + block.weight * cost
    return total


def judge(
    features: sw.Features,
    loss: Loss,
    far: float,
    device: str = "cpu",
    *,
    of_targets: bool = True,
    **options: Any,
) -> None:
    """Value and both gradients, each no further from float64 than dense float32 and 1e-5.

    Without that ``of_targets``, the shortest ways are taken, which have no such gradient. Where
    products cancel all digits, there is nothing to compare.
    """
    function, own, of_costs = loss
    logits, target = clusters(features, far)
    on_kernels = options.get("impl") == "triton" or device != "cpu"
    multiplied = on_kernels and features.comparable > most_compared()

    def ours(z: Tensor, x: Tensor) -> Tensor:
        return function(z, x, features, reduction="none", **own, **options)

    def densely(z: Tensor, x: Tensor) -> Tensor:
        pairs, centred = zip(z, x, strict=True), multiplied and z.dtype == torch.float32
        return torch.stack([of_costs(dense_costs(features, *pair, centred)) for pair in pairs])

    found = []
    for compute, kind in (
        (ours, torch.float32),
        (densely, torch.float32),
        (densely, torch.float64),
    ):
        leaves = [t.to(device, kind) for t in (logits, target)]
        if function is sw.assignment_cross_entropy:
            leaves[1] = leaves[1][:, : logits.shape[1]]
        graded = leaves if of_targets else leaves[:1]
        for leaf in graded:
            leaf.requires_grad_()
        value = compute(*leaves)
        grads = torch.autograd.grad(value.sum(), graded)
        found.append([value.detach().double(), *(g.double() for g in grads)])
    for got, plain, exact in zip(*found, strict=True):
        largest = exact.abs().max()
        error, allowed = ((t - exact).abs().max() / largest for t in (got, plain))
        if not multiplied:
            assert error <= allowed + 1e-5
        elif allowed < 0.1:
            assert error <= (1 if device == "cpu" else 8) * allowed + 1e-5
        else:
            assert got.isfinite().all()
