"""The Deep Sets encoder: from a set to one vector, whatever the order of the elements.

Legend: N elements, F features, U distinct elements; ``*`` any leading dimensions.

This is the room's lowest file and also holds the checks that its other files share. They look at
Python integers alone (shapes, options), so that nothing here waits for a device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from setwise.features import Features
from setwise.models.initialise import glorot


class DeepSetsEncoder(nn.Module):
    """``dense(sum_i embed(x_i))`` (Zaheer et al., 2017).

    ``embed`` is a stack of linear layers of ``element_widths``, applied to each element alone, and
    ``dense`` one of ``widths``; ReLU follows each of these layers. A last linear layer maps to
    ``outputs``. The defaults are the encoder of the Set Cross Entropy paper.

    >>> encoder = DeepSetsEncoder(features=4, outputs=3, element_widths=(8,), widths=(8,))
    >>> encoder(torch.rand(5, 2, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        features: int | Features,
        outputs: int,
        element_widths: Sequence[int] = (1000, 1000),
        widths: Sequence[int] = (1000, 1000),
    ) -> None:
        super().__init__()
        features = width_of(features)
        check_size("outputs", outputs)
        self.features = features
        self.embed = nn.Sequential(*_relu_layers("element_widths", features, element_widths))
        summed = element_widths[-1] if element_widths else features
        self.dense = nn.Sequential(*_relu_layers("widths", summed, widths))
        # The paper activates "all encoder layers" by ReLU and then the latent layer, which this
        # one feeds, by Gumbel-Softmax. A ReLU in between would clip the logits at 0: no binary
        # latent variable could lean to its negative side, and clipped ones would get no gradient.
        self.output = nn.Linear(widths[-1] if widths else summed, outputs)
        glorot(self)

    def forward(self, sets: Tensor, valid: Tensor | None = None) -> Tensor:
        """[*, N, F] -> [*, outputs]; elements where ``valid`` [*, N] is False add nothing."""
        check_floats("sets", sets, "[*, elements, features]", 2, self.features)
        if valid is None:
            return self._from_sum(self.embed(sets).sum(dim=-2))
        _check_valid(valid, sets)
        hidden = ~valid.unsqueeze(-1)
        # Masked before the layers too: a NaN among the filling would pass into the gradients.
        embedded = self.embed(sets.masked_fill(hidden, 0.0))
        return self._from_sum(embedded.masked_fill(hidden, 0.0).sum(dim=-2))

    def from_counts(self, counts: Tensor, elements: Tensor) -> Tensor:
        """The same function of sets whose elements all come from a table: -> [*, outputs].

        ``counts`` [*, U], of any type, says how often each row of ``elements`` [U, F] occurs in
        the set. Each row passes the element-wise layers once, however many sets hold it, and
        ``counts @ embed(elements)`` is the sum: much cheaper where few distinct elements exist.

        >>> encoder = DeepSetsEncoder(features=2, outputs=3, element_widths=(8,), widths=(8,))
        >>> table = torch.eye(2)
        >>> twice_and_once = encoder.from_counts(torch.tensor([2, 1]), table)
        >>> torch.allclose(twice_and_once, encoder(table[[0, 1, 0]]), atol=1e-6)
        True
        """
        check_floats("elements", elements, "[distinct elements, features]", 2, self.features)
        if elements.dim() != 2:
            raise ValueError(
                f"elements: expected one table [distinct elements, features] for all sets, got "
                f"shape {tuple(elements.shape)}; sets of elements go in by forward(sets)"
            )
        if not isinstance(counts, Tensor):
            raise TypeError(f"counts: expected a torch.Tensor, got {type(counts).__name__}")
        if counts.dim() < 1 or counts.shape[-1] != elements.shape[0]:
            raise ValueError(
                f"counts: expected shape [*, {elements.shape[0]}], one count per row of elements, "
                f"got {tuple(counts.shape)}"
            )
        embedded = self.embed(elements)
        return self._from_sum(counts.to(embedded.dtype) @ embedded)

    def _from_sum(self, summed: Tensor) -> Tensor:
        return self.output(self.dense(summed))


def width_of(features: int | Features) -> int:
    """How many numbers an element has, from their number or from what they are."""
    if isinstance(features, Features):
        return features.width
    check_size("features", features)
    return features


def check_size(name: str, given: object, least: int = 1) -> None:
    """A number of things must be an int and not too small."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{name}: expected an int, got {given!r}")
    if given < least:
        raise ValueError(f"{name}: must be at least {least}, got {given}")


def check_floats(
    name: str, given: Tensor, expected: str, dims: int, last: int | None = None
) -> None:
    """A floating-point tensor of ``dims`` or more dimensions, ``last`` in the last one."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(given).__name__}")
    if not given.is_floating_point():
        raise TypeError(
            f"{name}: expected a floating-point tensor, got {given.dtype}; use {name}.float()"
        )
    if given.dim() < dims or (last is not None and given.shape[-1] != last):
        last_one = "" if last is None else f" with {last} in the last dimension"
        raise ValueError(f"{name}: expected shape {expected}{last_one}, got {tuple(given.shape)}")


def check_booleans(name: str, given: Tensor) -> None:
    """A tensor of booleans: numbers are not taken for them."""
    if not isinstance(given, Tensor) or given.dtype != torch.bool:
        kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise TypeError(f"{name}: expected a boolean tensor, got {kind}; use {name}.bool()")


def _check_valid(valid: Tensor, sets: Tensor) -> None:
    check_booleans("valid", valid)
    if valid.shape != sets.shape[:-1]:
        raise ValueError(
            f"valid: expected one flag per element, shape {tuple(sets.shape[:-1])}, "
            f"got {tuple(valid.shape)}"
        )


def _relu_layers(name: str, inputs: int, widths: Sequence[int]) -> list[nn.Module]:
    if not isinstance(widths, Sequence):
        raise TypeError(
            f"{name}: expected the width of each layer, as in (1000, 1000), got {widths!r}"
        )
    layers: list[nn.Module] = []
    for width in widths:
        check_size(name, width)
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return layers
