"""One measured feature: its codes, and what they are called.

Legend: E values, w numbers of each, W numbers of a statistic, K codes.

A feature that is right or wrong, such as a class, is its own symbol. Others are measured: codes are
learned in the space of their statistic, in which the cost of an element is a dot product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from setwise import features as shipped
from setwise.features import Family
from setwise.planning.actions.quantiser import Quantiser, require_numbers
from setwise.planning.actions.symbols import UnknownSymbolError, Value

# Of the furthest point of a code, or of what shakes by one standard deviation, if that is more, for
# values need not shake where they were seen: what is further away is something else.
_BEYOND = 2.0
# Values on a grid: with fewer codes than values, some are cut in two, until codes are as many.
_PATIENCE = 8
_SOME = 100  # elements that tell whether a feature is right or wrong
_MOST_EXACT = 1000  # different values of a feature that is right or wrong


@dataclass(frozen=True)
class MeasuredFeature:
    """The codes of one feature: numbers in the order of what is typical of them."""

    family: Family
    typical: Tensor  # [K, w]
    quantiser: Quantiser | None  # None where the feature is right or wrong
    order: Tensor  # [K]: the code of each centre of the quantiser
    reach: Tensor  # [K]: how far from its centre what a code names may be
    words: tuple[Value, ...] | None = None  # what each of w classes is called

    @classmethod
    def fit(
        cls,
        family: Family,
        values: Tensor,
        alone: Tensor,
        words: Sequence[Value] | None = None,
    ) -> MeasuredFeature:
        """Learn from values [E, w], of which pairs [n, 2] were left alone by a step."""
        called = None if words is None else tuple(words)
        if not bool(family.distance(values[:_SOME], values[-_SOME:]).any()):  # right or wrong
            typical = _exact(family, values).unique(dim=0)
            if len(typical) > _MOST_EXACT:
                raise ValueError(
                    f"{type(family).__name__}: {len(typical)} different values, more than "
                    f"{_MOST_EXACT}; symbols have to come again"
                )
            none = torch.zeros(0)
            return cls(family, typical, None, none, none, called)
        quantiser = Quantiser.fit(family.statistic(values), alone, patience=_PATIENCE)
        centre, distance = quantiser.nearest(family.statistic(values))
        typical = torch.stack(
            [family.average(values[centre == number], 0) for number in range(quantiser.count)]
        )
        ordered = torch.tensor(
            sorted(range(len(typical)), key=lambda number: typical[number].tolist())
        )
        furthest = torch.stack([distance[centre == number].max() for number in ordered])
        reach = _BEYOND * furthest.clamp(min=1.0)  # distances are in units of the shaking
        return cls(family, typical[ordered], quantiser, ordered.argsort(), reach, called)

    def __post_init__(self) -> None:
        if self.words is None:
            return
        if self.quantiser is not None:
            raise ValueError("words: expected those of classes; this feature is measured")
        if len(self.words) != self.family.width or len(set(self.words)) < len(self.words):
            raise ValueError(
                f"words: expected {self.family.width} different ones, one a class, "
                f"got {list(self.words)!s:.60}"
            )

    def encode(self, values: Tensor) -> Tensor:
        """The codes [*] of values [*, w]; an error if one is like none that was seen."""
        flat = values.reshape(-1, values.shape[-1])
        if self.quantiser is None:
            apart = self.family.differ(_exact(self.family, flat), self.typical, 0.0)
            codes, strange = (~apart).int().argmax(-1), apart.all(-1)
        else:
            points = self.family.statistic(flat)
            centre, distance = self.quantiser.nearest(points)
            codes = self.order[centre]
            strange = distance > self.reach[codes]
        if bool(strange.any()):
            value = flat[int(strange.nonzero()[0])].tolist()
            raise UnknownSymbolError(
                f"{value}: is like none of the {len(self.typical)} that were seen"
            )
        return codes.reshape(values.shape[:-1])

    def value(self, code: int) -> Value:
        """What a code is called: a class or a whole number as it is, all else by the code."""
        typical = self.typical[code]
        if self.words is not None:
            return self.words[int(typical.argmax())]
        if self.quantiser is None and self.family.is_choice:
            return int(typical.argmax())
        if self.quantiser is None and len(typical) == 1 and bool(typical == typical.round()):
            return int(typical)
        return code

    def facts(self) -> dict[str, Any]:
        """What a file says of it, beside `tensors`."""
        return {
            "family": type(self.family).__name__,
            "settings": asdict(self.family),
            "exact": self.quantiser is None,
            "words": self.words,
        }

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """What it is made of, by names for a file."""
        found = {f"{prefix}.typical": self.typical}
        if self.quantiser is not None:
            found |= {f"{prefix}.order": self.order, f"{prefix}.reach": self.reach}
            found |= self.quantiser.tensors(prefix)
        return found

    @classmethod
    def from_file(
        cls,
        facts: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        prefix: str,
        families: Iterable[type[Family]],
    ) -> MeasuredFeature:
        """What `facts` and `tensors` gave; from a file of somebody else's it may be anything."""
        family, typical = _family(facts, families), tensors[f"{prefix}.typical"]
        if typical.dim() != 2 or not len(typical) or typical.shape[1] != family.width:
            raise ValueError(
                f"{prefix}.typical: expected [codes, {family.width}], got {tuple(typical.shape)}"
            )
        require_numbers(f"{prefix}.typical", typical, typical.dtype)
        family.check_targets(f"{prefix}.typical", typical)
        words = facts["words"]
        if words is not None:
            if not all(isinstance(one, str) or math.isfinite(one) for one in words):
                raise ValueError(f"words: expected words or numbers, got {words!r:.60}")
            words = tuple(words)
        if facts["exact"]:
            none = torch.zeros(0)
            return cls(family, typical, None, none, none, words)
        quantiser = Quantiser.from_tensors(tensors, prefix)
        order, reach = tensors[f"{prefix}.order"], tensors[f"{prefix}.reach"]
        require_numbers(f"{prefix}.reach", reach, typical.dtype)
        require_numbers(f"{prefix}.centre", quantiser.centre, typical.dtype)
        counted = torch.arange(len(typical))
        if (
            len(quantiser.centre) != family.statistic(typical).shape[-1]
            or quantiser.count != len(typical)
            or reach.shape != counted.shape
            or order.dtype != torch.int64
            or not order.sort().values.equal(counted)
        ):
            raise ValueError(f"{prefix}: its codes do not fit what is typical of them")
        return cls(family, typical, quantiser, order, reach, words)


def _exact(family: Family, values: Tensor) -> Tensor:
    """Values of a feature that is right or wrong, as answers."""
    return family.discretise(family.from_mean(values))


def _family(facts: Mapping[str, Any], families: Iterable[type[Family]]) -> Family:
    known = {name: getattr(shipped, name) for name in shipped.__all__}
    known |= {family.__name__: family for family in families}
    name, settings = facts["family"], facts["settings"]
    kind = known.get(name)
    if not (isinstance(kind, type) and issubclass(kind, Family) and kind is not Family):
        raise ValueError(
            f"a feature of the family {name!r:.60}, which is none of ours; if it is yours, give it "
            f"as families=[{name!s:.60}]"
        )
    return kind(**settings)
