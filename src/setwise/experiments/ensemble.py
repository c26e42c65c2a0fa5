"""Several networks of the same shape as one: trained in the same steps, each on its own.

Legend: K members, b examples of a batch, S examples, N elements, F features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from setwise.experiments.config import Config
from setwise.experiments.presence import comparable
from setwise.experiments.presentation import Presentation
from setwise.experiments.randomness import Chances, hashed, random_order
from setwise.experiments.recombine import Recombination
from setwise.experiments.tasks.task import Task, Variation
from setwise.features import Features
from setwise.losses.table import LOSSES
from setwise.models.keyed import keyed_layers, with_keyed_dropout

# The last of the keys of noise: those of orders and of recombinations end in positions, which are
# not negative.
_NOISE = -1


class Ensemble:
    """The stacked weights and statistics of K networks, and their optimiser."""

    def __init__(self, networks: Sequence[nn.Module], device: torch.device, rate: float) -> None:
        weights, statistics = stack_module_state(list(networks))
        self.weights = {name: w.detach().to(device).requires_grad_() for name, w in weights.items()}
        self.statistics = {name: t.to(device) for name, t in statistics.items()}
        self._skeleton = with_keyed_dropout(networks[0]).to("meta")
        self._noisy = keyed_layers(self._skeleton)
        for layer in self._noisy.values():
            layer.key = torch.zeros((), dtype=torch.long, device="meta")
        self.rate = torch.tensor(rate, device=device)
        # Elementwise, so that stacked members are optimised as if alone.
        on_cuda = device.type == "cuda"
        self.optimiser = torch.optim.Adam(
            self.weights.values(), lr=self.rate, fused=True, capturable=on_cuda
        )

    @property
    def noisy_layers(self) -> int:
        """How many keys a member needs in a step of training."""
        return len(self._noisy)

    def __call__(self, inputs: Tensor, temperature: Tensor, keys: Tensor | None = None) -> Tensor:
        """[K, b, ...] -> logits [K, b, N, F].

        With ``keys`` [K, `noisy_layers`] the networks train: their noise and dropout come from the
        keys, and running statistics move. Without, they evaluate.
        """
        self._skeleton.train(keys is not None)
        if keys is None:
            keys = torch.zeros(
                len(inputs), self.noisy_layers, dtype=torch.long, device=inputs.device
            )

        def member(weights: Any, statistics: Any, keys: Tensor, input: Tensor) -> Tensor:
            own = {f"{name}.key": key for name, key in zip(self._noisy, keys, strict=True)}
            return functional_call(self._skeleton, (weights, statistics, own), (input, temperature))

        # Any other source of randomness is an error: it would depend on who is trained together.
        mapped = torch.vmap(member, randomness="error")
        return mapped(self.weights, self.statistics, keys, inputs)

    def descend(self, loss: Tensor) -> None:
        """One step of every member down the gradient of its share of the summed loss."""
        parameters = list(self.weights.values())
        for weight, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            weight.grad = grad.contiguous()  # the fused optimiser wants the layout of the weight
        self.optimiser.step()

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name; the tensors themselves, not copies."""
        found = dict(self.weights) | self.statistics
        for name, weight in self.weights.items():
            for key, value in self.optimiser.state[weight].items():
                found[f"optimiser.{key}.{name}"] = value
        return {name: t.detach() for name, t in found.items()}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Take over what `tensors` gave, after a first step has made the optimiser's state."""
        own = self.tensors()
        if own.keys() != saved.keys():
            different = ", ".join(sorted(own.keys() ^ saved.keys())[:5])
            raise ValueError(f"checkpoint: belongs to another network; differs in {different}")
        for name, tensor in own.items():
            require_like(name, saved[name], tensor)
        for name, tensor in own.items():
            tensor.copy_(saved[name])

    def member(self, index: int) -> dict[str, Tensor]:
        """The ``state_dict`` of one member."""
        stacked = self.weights | self.statistics
        return {name: stacked[name][index].detach() for name in self._skeleton.state_dict()}


def require_like(name: str, saved: Tensor | None, own: Tensor) -> Tensor:
    """The saved tensor, if it can take the place of ours: a copy would stretch it, or round it."""
    expected = f"{own.dtype} of shape {tuple(own.shape)}"
    if saved is None:
        raise ValueError(f"checkpoint: {name} is missing; expected {expected}")
    if saved.dtype != own.dtype or saved.shape != own.shape:
        got = f"{saved.dtype} of shape {tuple(saved.shape)}"
        raise ValueError(f"checkpoint: {name}: expected {expected}, got {got}")
    return saved


class Batch:
    """The examples of a step for K members, each in its own order.

    All of it is computed from tensors on the device, so that a CUDA graph can hold it.
    """

    def __init__(
        self, configs: Sequence[Config], task: Task, recombine: Recombination | None = None
    ) -> None:
        device = task.targets.device
        self._task, self._recombine = task, recombine
        self._presentation = Presentation(configs, task)
        self._size = configs[0].schedule.batch
        self._seeds = torch.tensor([config.seed for config in configs], device=device)
        self._shuffled = torch.tensor([config.shuffle_target for config in configs], device=device)
        self._epoch = torch.zeros((), dtype=torch.long, device=device)
        self._step = torch.zeros((), dtype=torch.long, device=device)
        self._rows = torch.zeros(len(configs), self._size, dtype=torch.long, device=device)
        self.steps = task.train // self._size

    def begin(self, epoch: int) -> None:
        """Deal the examples of a new epoch; what does not fill a batch sits it out."""
        self._epoch.fill_(epoch)
        self._dealt = random_order(
            self._task.train, self._seeds, self._epoch.expand_as(self._seeds)
        )

    def move(self, step: int) -> None:
        self._step.fill_(step)
        self._rows.copy_(self._dealt[:, step * self._size : (step + 1) * self._size])

    def draw(self) -> tuple[Tensor, Tensor]:
        """Inputs [K, b, ...] and targets [K, b, N, F] of the current step."""
        if self._recombine is None:
            inputs, targets = self._task.inputs[self._rows], self._task.targets[self._rows]
        else:
            inputs = targets = self._recombine(self._rows, self._seeds, self._epoch)
        if self._task.vary is not None:
            chances = Chances(self._seeds, self._epoch, self._rows)
            inputs, targets = _varied(self._task.vary, inputs, targets, chances)
        seeds, rows = self._seeds.unsqueeze(-1), self._rows
        order = random_order(targets.shape[2], seeds, self._epoch.expand_as(seeds), rows)
        order = torch.where(
            self._shuffled[:, None, None], order, torch.arange(order.shape[-1], device=order.device)
        )
        targets = targets.gather(2, order.unsqueeze(-1).expand_as(targets))
        return self._presentation.in_training(inputs, rows, self._epoch), targets

    def noise_keys(self, layers: int) -> Tensor:
        """A key [K, layers] for each noisy layer of each member in the current step."""
        layer = torch.arange(layers, device=self._seeds.device)
        return hashed(self._seeds.unsqueeze(-1), self._epoch, self._step, layer, _NOISE)


def _varied(
    vary: Variation, inputs: Tensor, targets: Tensor, chances: Chances
) -> tuple[Tensor, Tensor]:
    """What a task's own function gives, if it has kept the shapes."""
    found: Any = vary(inputs, targets, chances)
    expected = [tuple(inputs.shape), tuple(targets.shape)]
    parts = found if isinstance(found, tuple) else (found,)
    got = [tuple(p.shape) if isinstance(p, Tensor) else type(p).__name__ for p in parts]
    if got != expected:
        raise ValueError(
            f"vary: expected two tensors, of the shapes {expected[0]} and {expected[1]} that the "
            f"inputs and the targets have, got {' and '.join(map(str, got))}"
        )
    return parts


def member_losses(
    names: Sequence[str],
    logits: Tensor,
    targets: Tensor,
    features: Features,
    annealed: Mapping[str, float | Tensor] = MappingProxyType({}),
) -> Tensor:
    """The mean loss [K] of each member over its batch; neighbours share the call of a loss.

    Logits [K, b, L, N, F] are those of L layers, each of which has the same targets [K, b, M, F]:
    their losses are added up.
    ``annealed`` are the options that a schedule sets, for the losses that have them. The loss is
    NaN for a member that has diverged, and the others go on.
    """
    logits, finite = finite_sets(logits)
    parts = []
    start = 0
    for name, group in itertools.groupby(names):
        end = start + len(list(group))
        loss = LOSSES[name]
        outputs, sets = logits[start:end].flatten(0, 1), targets[start:end].flatten(0, 1)
        if outputs.dim() > sets.dim():
            sets = sets.unsqueeze(1).expand(-1, outputs.shape[1], -1, -1)
        z, x, presence = comparable(outputs, sets, features.width)
        options = {option: value for option, value in annealed.items() if option in loss.options}
        per_set = loss.function(z, x, features, reduction="none", **options, **presence)
        parts.append(per_set.reshape(*logits[start:end].shape[:2], -1).sum(dim=-1))
        start = end
    return torch.cat(parts).masked_fill(~finite, math.nan).mean(dim=1)


def finite_sets(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [K, b, ...] with zeros for sets that are not finite, and which sets [K, b] are.

    Losses and metrics refuse other numbers, with good reason. Here they mean that a member has
    diverged, which is a result of its own and none of its neighbours' business.
    """
    finite = logits.detach().isfinite().flatten(2).all(dim=-1)
    kept = finite.reshape(*finite.shape, *[1] * (logits.dim() - 2))
    return logits.masked_fill(~kept, 0.0), finite
