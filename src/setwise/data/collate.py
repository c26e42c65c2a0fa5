"""Batches of examples that hold sets, for any loader of PyTorch."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import default_collate

from setwise.data.sets import mask_sets


def collate_sets(examples: Sequence[Any]) -> Any:
    """Put examples with sets of different sizes into one batch: a ``collate_fn`` for any loader.

    Tensors of two dimensions, [n, F], are sets: `mask_sets` fills them up to the largest of the
    batch, and gives the mask. Everything else is stacked as PyTorch does.

    - A list of sets becomes ``(elements, valid)``.
    - In mappings the mask of ``objects`` is ``objects_valid``.
    - In tuples it follows its set: ``(picture, set)`` becomes ``(pictures, elements, valid)``.

    ``DataLoader(dataset, batch_size=64, collate_fn=sw.collate_sets)`` makes batches of any data
    set; `SetLoader` makes its own.

    >>> import torch
    >>> batch = collate_sets([
    ...     {"label": 3, "objects": torch.ones(1, 2)}, {"label": 5, "objects": torch.ones(2, 2)}
    ... ])
    >>> batch["label"], batch["objects"].shape, batch["objects_valid"].tolist()
    (tensor([3, 5]), torch.Size([2, 2, 2]), [[True, False], [True, True]])
    """
    if isinstance(examples, Tensor) or not isinstance(examples, Sequence):
        raise TypeError(f"examples: expected a list of them, got {type(examples).__name__}")
    if not examples:
        raise ValueError("examples: expected at least one, got an empty list")
    first = examples[0]
    if isinstance(first, Tensor):
        return mask_sets(examples) if first.dim() == 2 else default_collate(list(examples))
    if isinstance(first, Mapping):
        _require_fields(examples, Mapping)
        batch: dict[Any, Any] = {}
        for name in first:
            batch[name], *mask = _column([one[name] for one in examples])
            if mask:
                require_free(name, first)
                batch[valid_name(name)] = mask[0]
        return batch
    if isinstance(first, tuple):
        _require_fields(examples, tuple)
        return tuple(part for column in zip(*examples, strict=True) for part in _column(column))
    return default_collate(list(examples))


def valid_name(name: str) -> str:
    """What the mask of a set is called."""
    return f"{name}_valid"


def require_free(name: str, fields: Container[str]) -> None:
    """Refuse a field that has the name of the mask of another."""
    if valid_name(name) in fields:
        raise ValueError(
            f"{valid_name(name)}: is what the mask of {name} is called; rename that field"
        )


def _column(values: Sequence[Any]) -> tuple[Any, ...]:
    """One field of all examples; of sets, with its mask."""
    if isinstance(values[0], Tensor) and values[0].dim() == 2:
        return mask_sets(list(values))
    return (default_collate(list(values)),)


def _require_fields(examples: Sequence[Any], kind: type) -> None:
    """All examples are of one kind, with the same fields."""
    first = examples[0]
    for number, one in enumerate(examples):
        if not isinstance(one, kind) or _fields(one) != _fields(first):
            given = _fields(one) if isinstance(one, kind) else type(one).__name__
            raise ValueError(
                f"examples: number {number} has other fields than the first: {given}, expected "
                f"{_fields(first)}"
            )


def _fields(example: Any) -> Any:
    return sorted(map(str, example)) if isinstance(example, Mapping) else len(example)
