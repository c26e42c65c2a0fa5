"""What the built-in families cost, and the gradients of it, in few steps.

Legend: B sets, M targets, N outputs, w features of a block, P pairs.

Each block of an element has a share in the scores ``queries_i . keys_j + bias_j + base_i`` of all
pairs, and in the costs of single ones, in which nothing cancels. Every loss pulls at the scores of
pairs, by ``g_ij``; all that a block needs of it is ``pulled_j = sum_i g_ij queries_i``, which
becomes the gradient, and ``total_j = sum_i g_ij``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from torch import Tensor

from setwise.kernels import arrays
from setwise.kernels.arrays import Array, Numbers
from setwise.kernels.row_losses import Blocks

# A cost that is an eighth of the largest term of a score can be read off it: three binary digits
# are lost then.
READ_OFF = 8.0
# In float32, the nearest of several are told apart if they cost as much of the largest term, on
# average: rounding is a ten thousandth of it then.
BLURRED = 2**-10


class Block(ABC):
    """Features of one family: targets ``x`` [B, M, w], outputs ``z`` [B, N, w], and a number."""

    x: Array
    queries: Array  # [B, M, w]
    keys: Array  # [B, N, w]
    bias: Array | None = None  # [B, N]; None if it is zero
    base: Array | None = None  # [B, M]
    # The largest term that may cancel in a score; 0 if none grows with distance.
    reach: float = 0.0
    #: Whether the gradient depends on ``total``.
    uses_total: ClassVar[bool] = True

    @abstractmethod
    def costs(self, outputs: Numbers | None, targets: Numbers | None) -> Array:
        """The costs [P] of pairs, told by their numbers among all B * N and B * M; None for all."""

    @abstractmethod
    def gradient(self, pulled: Array, total: Array) -> Array:
        """That to the outputs, of ``pulled`` [B, N, w], in its place or not, and [B, N, 1]."""


class _Bits(Block):
    """Bernoulli features: ``H = sum softplus(z) - x . z``."""

    def __init__(self, x: Array, z: Array, weight: float) -> None:
        self.x, self.z, self.weight = x, z, weight
        self.probabilities = arrays.sigmoid(z)
        # softplus(z) = max(z, 0) - log(max(p, 1 - p))
        self.unsure = -arrays.log_product(arrays.likelier(self.probabilities))
        self.queries, self.keys = x, _times(weight, z)
        self.bias = _times(-weight, arrays.total(arrays.positive_part(z)) + self.unsure)

    def costs(self, outputs: Numbers | None, targets: Numbers | None) -> Array:
        x, z, unsure = _rows(self.x, targets), _rows(self.z, outputs), self.unsure.reshape(-1)
        wrong = arrays.total(arrays.positive_part(z) - x * z)
        return _times(self.weight, wrong + (unsure if outputs is None else unsure[outputs]))

    def gradient(self, pulled: Array, total: Array) -> Array:
        arrays.subtract_product(pulled, self.probabilities, total)
        return _scaled(self.weight, pulled)


class _Choice(Block):
    """One of several classes: ``H = -x . log softmax(z)``."""

    uses_total = False

    def __init__(self, x: Array, z: Array, weight: float) -> None:
        self.x, self.weight = x, weight
        self.logs, self.shares = arrays.log_softmax(np.ascontiguousarray(z))
        self.queries, self.keys = x, _times(weight, self.logs)

    def costs(self, outputs: Numbers | None, targets: Numbers | None) -> Array:
        return _times(
            -self.weight, arrays.total(_rows(self.x, targets) * _rows(self.logs, outputs))
        )

    def gradient(self, pulled: Array, total: Array) -> Array:
        return _scaled(self.weight, arrays.through_log_softmax(pulled, self.logs, self.shares))


class _ChoiceInBits(Block):
    """The same, each class scored as a Bernoulli: ``H = -x . log p - (1 - x) . log (1 - p)``."""

    def __init__(self, x: Array, z: Array, weight: float) -> None:
        self.x, self.weight = x, weight
        self.top = z.argmax(axis=-1, keepdims=True)
        self.logs, shares = arrays.log_softmax(np.ascontiguousarray(z))
        self.probabilities = arrays.exp(self.logs) if shares is None else shares
        # Of the likeliest class, 1 - p is the sum of the others; those have p <= 1/2. They are
        # summed relative to the largest: they may all be too small for an exponential.
        others = self.logs.copy()
        np.put_along_axis(others, self.top, -np.inf, axis=-1)
        largest = arrays.largest(others, axis=-1)
        sums = arrays.total(arrays.exp_(others - largest), keepdims=True)
        self.others = largest + np.log(sums)
        self.not_logs = np.log1p(-self.probabilities)
        np.put_along_axis(self.not_logs, self.top, self.others, axis=-1)
        self.queries, self.keys = x, _times(weight, self.logs - self.not_logs)
        self.bias = _times(weight, arrays.total(self.not_logs))

    def costs(self, outputs: Numbers | None, targets: Numbers | None) -> Array:
        x, logs, not_logs = (
            _rows(self.x, targets),
            _rows(self.logs, outputs),
            _rows(self.not_logs, outputs),
        )
        return _times(-self.weight, arrays.total(x * logs + (1 - x) * not_logs))

    def gradient(self, pulled: Array, total: Array) -> Array:
        p, rising = self.probabilities, pulled
        # Divided by 1 - p, which may be 0 of the likeliest class: its share goes to the others.
        rising -= p * total
        of_top = np.take_along_axis(rising, self.top, axis=-1)
        rising /= 1 - p
        np.put_along_axis(rising, self.top, 0, axis=-1)
        shares = arrays.exp_(self.logs - self.others)
        np.put_along_axis(shares, self.top, -1, axis=-1)
        rising -= p * arrays.total(rising, keepdims=True)
        rising -= shares * of_top
        return _scaled(self.weight, rising)


class _Squares(Block):
    """Points: ``H = c |x - z|^2``, multiplied from the middle of the targets."""

    def __init__(self, x: Array, z: Array, curvature: float) -> None:
        self.x, self.z, self.curvature = x, z, curvature
        middle = arrays.total(x, axis=1, keepdims=True) / x.shape[1]
        self.queries, from_middle = arrays.subtract(x, middle), arrays.subtract(z, middle)
        self.keys = _times(2 * curvature, from_middle)
        self.base = arrays.dot(self.queries, self.queries) * -curvature
        self.bias = arrays.dot(from_middle, self.keys) * -0.5
        self.reach = -float(min(self.base.min(), self.bias.min()))

    def costs(self, outputs: Numbers | None, targets: Numbers | None) -> Array:
        apart = _rows(self.x, targets) - _rows(self.z, outputs)
        apart *= apart
        return arrays.total(apart) * self.curvature

    def gradient(self, pulled: Array, total: Array) -> Array:
        pulled = _scaled(2 * self.curvature, pulled)
        arrays.subtract_product(pulled, self.keys, total)
        return pulled


KINDS: dict[str, type[_Bits] | type[_Choice] | type[_ChoiceInBits] | type[_Squares]] = {
    "bernoulli": _Bits,
    "categorical": _Choice,
    "categorical as bernoulli": _ChoiceInBits,
    "square": _Squares,
}


class Elements:
    """All blocks of an element side by side, with the arguments of `Block`."""

    def __init__(self, blocks: Blocks, target: Array, logits: Array) -> None:
        self.given = blocks, target, logits
        # What all pairs cost, [B, M, N], once somebody has asked for it.
        self.pairs: Array | None = None
        # What each output costs beside its element, [B, N].
        self.charges: Array | None = None
        self._prepare(target, logits)

    def _prepare(self, target: Array, logits: Array) -> None:
        self.blocks: list[Block] = []
        self.slices: list[slice] = []
        start = 0
        for name, width, number in self.given[0]:
            part = slice(start, start + width)
            start += width
            self.slices.append(part)
            self.blocks.append(KINDS[name](target[..., part], logits[..., part], number))
        # Those of most families are the targets as they stand.
        as_given = all(block.queries is block.x for block in self.blocks)
        self.queries = target if as_given else _beside([block.queries for block in self.blocks])
        self.keys = _beside([block.keys for block in self.blocks])
        self.bias = _added([block.bias for block in self.blocks])
        self.base = _added([block.base for block in self.blocks])
        # A reach that is no number is too far.
        self.reach = sum(block.reach for block in self.blocks)
        # Of all pairs, without the base: [B, N, M] for soft losses and [B, M, N] for others, where
        # it had to be seen how large they are.
        self._scores: Array | None = None

    def widen(self) -> None:
        """Go on in float64."""
        _, target, logits = self.given
        self._prepare(target.astype(np.float64), logits.astype(np.float64))
        if self.charges is not None:
            self.charge(self.charges.astype(np.float64))

    def blurs(self, least: Array, valid: Tensor | None) -> bool:
        """Whether costs [B, M] of the nearest are lost beside their terms: others may be nearer.

        Not in float64, which tells all points apart that float32 can hold.
        """
        if self.reach == 0 or self.keys.dtype == np.float64:
            return False
        size = least.shape[1]
        if valid is not None:
            there = valid.numpy(force=True)
            least, size = np.where(there, least, 0), np.maximum(there.sum(axis=1), 1)
        mean = arrays.total(least) / size
        if valid is not None:
            mean[~there.any(axis=1)] = np.inf
        if not (mean < BLURRED * self.reach).any():
            return False
        terms = [term.min(axis=1) for term in (self.bias, self.base) if term is not None]
        return bool((mean < -BLURRED * np.minimum.reduce(terms)).any())

    def keep_scores(self, scores: Array) -> None:
        """See `take_scores`."""
        self._scores = scores

    def take_scores(self) -> Array | None:
        """Those that are known already, which whoever takes them may use up."""
        scores, self._scores = self._scores, None
        return scores

    def charge(self, charges: Array) -> None:
        """Have every pair cost what its output is charged, [B, N]; once."""
        self.charges, self._scores = charges, None
        self.bias = -charges if self.bias is None else self.bias - charges

    @property
    def uses_total(self) -> bool:
        """See `Block.uses_total`; and charges are derived by it."""
        return self.charges is not None or any(block.uses_total for block in self.blocks)

    @property
    def largest_term(self) -> float:
        """Of those that may cancel in a cost; what is pulled by may be more than what it costs."""
        return max((-float(t.min()) for t in (self.bias, self.base) if t is not None), default=0.0)

    def correct_(self, costs: Array, outputs: Numbers | None, targets: Numbers | None) -> None:
        """Compute those of costs [P] anew that were read off scores and have lost digits there.

        In place; pairs are told as for `costs`.
        """
        term = self.largest_term
        if term == 0 or READ_OFF * costs.min() >= term:
            return
        lost = np.flatnonzero(~(READ_OFF * costs >= term))  # also those that are no number
        if 2 * len(lost) > len(costs):
            costs[:] = self.costs(outputs, targets)
        elif len(lost):
            pairs = (lost if each is None else each[lost] for each in (outputs, targets))
            costs[lost] = self.costs(*pairs)

    def costs(self, outputs: Numbers | None = None, targets: Numbers | None = None) -> Array:
        """See `Block.costs`."""
        costs = _added([block.costs(outputs, targets) for block in self.blocks])
        assert costs is not None
        if self.charges is not None:
            costs += _rows(self.charges[..., None], outputs)[:, 0]
        return costs

    def gradient(self, pulled: Array, total: Array) -> Array:
        """See `Block.gradient`."""
        if len(self.blocks) == 1:
            return self.blocks[0].gradient(pulled, total)
        for block, part in zip(self.blocks, self.slices, strict=True):
            of_block = pulled[..., part]
            found = block.gradient(of_block, total)
            if found is not of_block:
                of_block[...] = found
        return pulled


def _rows(elements: Array, which: Numbers | None) -> Array:
    """Elements [B, _, w] by their numbers: [P, w]."""
    rows = elements.reshape(-1, elements.shape[-1])
    return rows if which is None else rows.take(which, axis=0)


def _times(weight: float, array: Array) -> Array:
    if weight == 1.0:
        return array
    return np.multiply(array, weight, out=arrays.empty(array.shape, array.dtype))


def _scaled(weight: float, array: Array) -> Array:
    """In place."""
    if weight != 1.0:
        array *= weight
    return array


def _beside(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else arrays.beside(parts)


def _added(parts: list[Array | None]) -> Array | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    return found[0] if len(found) == 1 else np.add.reduce(found)
