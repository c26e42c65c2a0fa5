"""Sets of different sizes in one tensor, and sets in random order.

Legend: B sets, M elements, F features.

Two ways to put sets of different sizes into one tensor. `pad_sets` is the paper's: one more
feature marks the elements that only fill up the set, and a network learns to produce those too,
so the number of elements is part of what it outputs. `mask_sets` fills with zeros and returns a
mask for the losses, which then ignore the filling.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import overload

import torch
from torch import Tensor

from setwise.features import Bernoulli, Features


def pad_sets(
    sets: Sequence[Tensor], size: int | None = None, features: Features | None = None
) -> Tensor:
    """Fill every set [n, F] up to ``size`` with distinct dummies: a tensor [B, size, F + 1].

    The last feature is 0 for real elements and 1 for dummies. The features of the k-th dummy of a
    set spell out k, in binary over F binary features. With ``features`` every block spells as its
    family does, and every dummy is a proper element: a choice among ``w`` classes is a digit of
    base ``w``, a count a decimal digit, an angle one of 4 directions; Gaussian features spell
    nothing. ``size`` defaults to that of the largest set. `unpad_sets` is the inverse.

    >>> pad_sets([torch.ones(1, 2), torch.ones(3, 2)])[0]
    tensor([[1., 1., 0.],
            [0., 0., 1.],
            [0., 1., 1.]])
    """
    width, size = _check_sets(sets, size)
    features = Features(Bernoulli(width)) if features is None else features
    if not isinstance(features, Features):
        raise TypeError(f"features: expected Features(...), got {type(features).__name__}")
    if features.width != width:
        raise ValueError(
            f"features: {features} describes {features.width} features, the sets have {width}"
        )
    dummies = _dummies(size - min(len(elements) for elements in sets), features)
    padded = []
    for elements in sets:
        missing = size - len(elements)
        filling = dummies[:missing].to(elements)
        real = torch.cat([elements, elements.new_zeros(len(elements), 1)], dim=-1)
        padded.append(torch.cat([real, torch.cat([filling, filling.new_ones(missing, 1)], -1)]))
    return torch.stack(padded)


def unpad_sets(padded: Tensor) -> list[Tensor]:
    """The real elements [n, F] of each padded set [B, size, F + 1]: those whose flag is below 1/2.

    For targets and for outputs in their space; logits go through ``Features.discretise`` first.

    >>> [len(elements) for elements in unpad_sets(pad_sets([torch.ones(1, 2), torch.ones(3, 2)]))]
    [1, 3]
    """
    if not isinstance(padded, Tensor):
        raise TypeError(f"padded: expected a torch.Tensor, got {type(padded).__name__}")
    if padded.dim() != 3 or padded.shape[-1] < 2:
        raise ValueError(
            f"padded: expected shape [sets, elements, features + 1], got {tuple(padded.shape)}"
        )
    return [elements[elements[:, -1] < 0.5, :-1] for elements in padded]


def mask_sets(sets: Sequence[Tensor], size: int | None = None) -> tuple[Tensor, Tensor]:
    """Fill every set [n, F] up to ``size`` with zeros: a tensor [B, size, F] and a mask [B, size].

    The mask is True at real elements, as ``input_valid`` and ``target_valid`` of the losses want.

    >>> elements, valid = mask_sets([torch.ones(1, 2), torch.ones(3, 2)])
    >>> valid
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    _, size = _check_sets(sets, size)
    lengths = torch.tensor([len(one) for one in sets], device=sets[0].device)
    return masked(torch.cat(list(sets)), lengths, size)


def masked(values: Tensor, lengths: Tensor, size: int | None = None) -> tuple[Tensor, Tensor]:
    """Sets [B, size, F] and their mask from all elements one after the other, unchecked."""
    size = int(lengths.max()) if size is None else size
    valid = torch.arange(size, device=values.device) < lengths.unsqueeze(-1)
    elements = values.new_zeros(*valid.shape, values.shape[-1])
    # By their places rather than by the mask: a GPU would have to be waited for.
    before = torch.arange(len(lengths), device=values.device) * size - lengths.cumsum(0) + lengths
    places = torch.arange(len(values), device=values.device)
    places = places + before.repeat_interleave(lengths, output_size=len(values))
    return elements.flatten(0, 1).index_copy(0, places, values).view_as(elements), valid


@overload
def shuffle_sets(
    elements: Tensor, generator: torch.Generator | None = None, *, valid: None = None
) -> Tensor: ...


@overload
def shuffle_sets(
    elements: Tensor, generator: torch.Generator | None = None, *, valid: Tensor
) -> tuple[Tensor, Tensor]: ...


def shuffle_sets(
    elements: Tensor,
    generator: torch.Generator | None = None,
    *,
    valid: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Put the elements of each set [*, M, F] into an order of its own, drawn uniformly.

    With a mask ``valid`` [*, M] the mask is reordered alike and the result is a pair. The same
    generator state gives the same orders.

    >>> sets = torch.arange(6.0).reshape(1, 3, 2)
    >>> shuffled = shuffle_sets(sets, torch.Generator().manual_seed(0))
    >>> shuffled.sort(dim=1).values.equal(sets)
    True
    """
    if not isinstance(elements, Tensor):
        raise TypeError(f"elements: expected a torch.Tensor, got {type(elements).__name__}")
    if elements.dim() < 2:
        raise ValueError(
            f"elements: expected shape [*, elements, features], got {tuple(elements.shape)}"
        )
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator: expected a torch.Generator, got {type(generator).__name__}; "
            f"a seed goes in as torch.Generator().manual_seed(seed)"
        )
    if valid is not None:
        if not isinstance(valid, Tensor) or valid.dtype != torch.bool:
            given = valid.dtype if isinstance(valid, Tensor) else type(valid).__name__
            raise TypeError(f"valid: expected a boolean tensor, got {given}")
        if valid.shape != elements.shape[:-1] or valid.device != elements.device:
            raise ValueError(
                f"valid: expected shape {tuple(elements.shape[:-1])} on {elements.device}, "
                f"got {tuple(valid.shape)} on {valid.device}"
            )
    device = elements.device if generator is None else generator.device
    # Doubles: ties, which would make some orders likelier, practically never happen.
    keys = torch.rand(elements.shape[:-1], dtype=torch.float64, generator=generator, device=device)
    order = keys.argsort(dim=-1).to(elements.device)
    shuffled = elements.gather(-2, order.unsqueeze(-1).expand_as(elements))
    return shuffled if valid is None else (shuffled, valid.gather(-1, order))


def _check_sets(sets: Sequence[Tensor], size: int | None) -> tuple[int, int]:
    if isinstance(sets, Tensor) or not isinstance(sets, Sequence):
        raise TypeError(f"sets: expected a list of tensors [n, F], got {type(sets).__name__}")
    if not sets:
        raise ValueError("sets: expected at least one set, got an empty list")
    for index, elements in enumerate(sets):
        if not isinstance(elements, Tensor):
            raise TypeError(f"sets: expected tensors, item {index} is {type(elements).__name__}")
        if elements.dim() != 2 or elements.shape[1] == 0:
            raise ValueError(
                f"sets: expected tensors of shape [n, F], item {index} has {tuple(elements.shape)}"
            )
        first = sets[0]
        if (elements.shape[1], elements.device) != (first.shape[1], first.device):
            raise ValueError(
                f"sets: every set must have the same features and device: item 0 has "
                f"{tuple(first.shape)} on {first.device}, item {index} has "
                f"{tuple(elements.shape)} on {elements.device}"
            )
    largest = max(len(elements) for elements in sets)
    if size is None:
        return sets[0].shape[1], largest
    if isinstance(size, bool) or not isinstance(size, int):
        raise TypeError(f"size: expected an int, got {type(size).__name__}")
    if size < largest:
        raise ValueError(f"size: must hold the largest set, of {largest} elements, got {size}")
    return sets[0].shape[1], size


def _dummies(count: int, features: Features) -> Tensor:
    """``count`` distinct elements, the k-th spelling k with the blocks as digits."""
    bases = [block.dummy_digits for block in features.blocks]
    rest = torch.arange(count)
    digits = torch.empty(count, sum(map(len, bases)), dtype=torch.long)
    for place, base in reversed(list(enumerate(chain(*bases)))):
        digits[:, place] = rest % base  # the last digit changes fastest, as in 000, 001, 010
        rest = rest // base
    if bool((rest > 0).any()):
        raise ValueError(
            f"size: {count} dummies are needed, but {features} can tell fewer of them apart; "
            f"choose a smaller size"
        )
    parts = zip(features.blocks, digits.split([len(base) for base in bases], dim=-1), strict=True)
    return torch.cat([block.dummies(part) for block, part in parts], dim=-1)
