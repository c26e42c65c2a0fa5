"""Discrete latent variables that gradients can pass: relaxed in training, exact in evaluation.

Legend: L latent variables, C categories; ``*`` any leading dimensions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from setwise.arguments import check_flag
from setwise.models.deep_sets import check_booleans, check_floats, check_size
from setwise.models.keyed import KeyedLayer

# Up to this size float32 rounds logits by less than 1e-4, which does no harm. They are relaxed as
# they are then, so that trainings give the bits that were recorded before there was an anchor.
LARGE = 1024.0


class Latent(KeyedLayer, ABC):
    """What the two kinds of variables share.

    In training, noise is added to the logits and the choice is softened by a temperature; without
    ``noise`` it is softened alone, so that training is deterministic. In evaluation the likeliest
    choice is made: nothing is random, the temperature has no effect and gradients do not pass.
    """

    def __init__(self, variables: int, width: int, noise: bool) -> None:
        super().__init__()
        check_flag("noise", noise)
        self.variables = variables
        self.width = width  # the numbers in the logits, and in the activation, of one example
        self.noise = noise

    def forward(self, logits: Tensor, temperature: float | Tensor) -> Tensor:
        """[*, width] -> [*, width], all of it between 0 and 1.

        A temperature that changes between replays of a CUDA graph must be a tensor on the device.
        """
        check_floats("logits", logits, "[*, width]", 1, self.width)
        _check_temperature(temperature)
        if not self.training:
            return self._choose(logits)
        logits = self._anchored(logits)
        if self.noise:
            logits = logits + self._sample_noise(logits)
        return self._relax(logits / temperature)

    def extra_repr(self) -> str:
        return f"{self.variables}, noise={self.noise}"

    @abstractmethod
    def codes(self, logits: Tensor) -> Tensor:
        """The choice made in evaluation, one bit per variable: [*, width] -> bool [*, L]."""

    @abstractmethod
    def from_codes(self, codes: Tensor) -> Tensor:
        """The activation that evaluation gives for these codes: bool [*, L] -> [*, width]."""

    def _anchored(self, logits: Tensor) -> Tensor:
        """Logits of the same distribution that rounding does no harm to."""
        return logits

    @abstractmethod
    def _choose(self, logits: Tensor) -> Tensor: ...

    @abstractmethod
    def _relax(self, logits: Tensor) -> Tensor: ...

    @abstractmethod
    def _sample_noise(self, logits: Tensor) -> Tensor: ...

    def _check_codes(self, codes: Tensor) -> None:
        check_booleans("codes", codes)
        if codes.dim() < 1 or codes.shape[-1] != self.variables:
            raise ValueError(
                f"codes: expected shape [*, {self.variables}], one bit per latent variable, "
                f"got {tuple(codes.shape)}"
            )


class GumbelSoftmax(Latent):
    """L choices among C categories each (Jang et al., 2017; Maddison et al., 2017).

    In training ``softmax((logits + g) / temperature)``, g from the standard Gumbel distribution:
    the largest entry is category c with probability ``softmax(logits)[c]``, at any temperature. In
    evaluation the one-hot vector of the largest logit, the first one where several are equal.

    >>> latent = GumbelSoftmax(variables=2).eval()
    >>> logits = torch.tensor([0.3, -1.0, 0.0, 4.0])
    >>> latent(logits, temperature=1.0)
    tensor([1., 0., 0., 1.])
    >>> latent.codes(logits)
    tensor([False,  True])
    """

    def __init__(self, variables: int, categories: int = 2, noise: bool = True) -> None:
        check_size("variables", variables)
        check_size("categories", categories, least=2)
        super().__init__(variables, variables * categories, noise)
        self.categories = categories

    def codes(self, logits: Tensor) -> Tensor:
        """The category chosen in evaluation, 0 or 1: [*, L*C] -> bool [*, L]."""
        self._require_two_categories()
        check_floats("logits", logits, "[*, width]", 1, self.width)
        return self._split(logits).argmax(dim=-1) == 1

    def from_codes(self, codes: Tensor) -> Tensor:
        self._require_two_categories()
        self._check_codes(codes)
        one_hot = torch.stack([~codes, codes], dim=-1)
        return one_hot.flatten(-2).to(torch.get_default_dtype())

    def _choose(self, logits: Tensor) -> Tensor:
        chosen = self._split(logits).argmax(dim=-1, keepdim=True)
        is_chosen = torch.arange(self.categories, device=logits.device) == chosen
        return is_chosen.flatten(-2).to(logits.dtype)

    def _anchored(self, logits: Tensor) -> Tensor:
        """Relative to the largest of each variable, where that is large.

        A float32 of 1e9 has no digits left for the noise. And where a compiled softmax rounds the
        largest number in one way and its difference to it in another, ``exp`` of what is left may
        be anything: gradients of 1e18 have been seen in place of 0.
        """
        split = self._split(logits)
        top = split.detach().amax(dim=-1, keepdim=True)  # the choice does not depend on it
        return (split - torch.where(top.abs() > LARGE, top, 0.0)).flatten(-2)

    def _relax(self, logits: Tensor) -> Tensor:
        return self._split(logits).softmax(dim=-1).flatten(-2)

    def _sample_noise(self, logits: Tensor) -> Tensor:
        return (-(-self.uniform(logits).log()).log()).to(logits.dtype)

    def _split(self, logits: Tensor) -> Tensor:
        return logits.unflatten(-1, (self.variables, self.categories))

    def _require_two_categories(self) -> None:
        if self.categories != 2:
            raise ValueError(
                f"codes: one bit cannot name {self.categories} categories; codes exist for "
                f"GumbelSoftmax(variables, categories=2) and BinaryConcrete(variables)"
            )

    def extra_repr(self) -> str:
        return f"{self.variables}, categories={self.categories}, noise={self.noise}"


class BinaryConcrete(Latent):
    """L binary variables with one logit each (Maddison et al., 2017).

    In training ``sigmoid((logits + l) / temperature)``, l from the standard logistic distribution:
    the result exceeds 1/2 with probability ``sigmoid(logits)``, at any temperature. In evaluation
    1 where the logit is positive, else 0. The same distribution as `GumbelSoftmax` of two
    categories, whose logits differ by this one, with half the numbers.

    >>> latent = BinaryConcrete(variables=3).eval()
    >>> latent(torch.tensor([0.3, -1.0, 0.0]), temperature=1.0)
    tensor([1., 0., 0.])
    """

    def __init__(self, variables: int, noise: bool = True) -> None:
        check_size("variables", variables)
        super().__init__(variables, variables, noise)

    def codes(self, logits: Tensor) -> Tensor:
        check_floats("logits", logits, "[*, width]", 1, self.width)
        return logits > 0

    def from_codes(self, codes: Tensor) -> Tensor:
        self._check_codes(codes)
        return codes.to(torch.get_default_dtype())

    def _choose(self, logits: Tensor) -> Tensor:
        return (logits > 0).to(logits.dtype)

    def _relax(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def _sample_noise(self, logits: Tensor) -> Tensor:
        return self.uniform(logits).logit().to(logits.dtype)


def annealed_temperature(
    progress: float, start: float = 5.0, end: float = 0.7, until: float = 0.7
) -> float:
    """``start * (end / start) ** min(progress / until, 1)``: exponential, then constant.

    ``progress`` is the share of training done, from 0 to 1; ``end`` is reached at ``until``.

    >>> [round(annealed_temperature(share), 2) for share in (0.0, 0.35, 0.7, 1.0)]
    [5.0, 1.87, 0.7, 0.7]
    """
    if not 0.0 <= progress <= 1.0:
        raise ValueError(
            f"progress: expected the share of training done, from 0 to 1, got {progress!r}; "
            f"divide the step by the number of steps"
        )
    if not 0.0 < until <= 1.0:
        raise ValueError(f"until: expected a share of training in (0, 1], got {until!r}")
    _check_temperature(start, "start")
    _check_temperature(end, "end")
    return float(start * (end / start) ** min(progress / until, 1.0))


def _check_temperature(given: float | Tensor, name: str = "temperature") -> None:
    if isinstance(given, Tensor):
        if given.dim() != 0:
            raise ValueError(
                f"{name}: a tensor must have no dimensions, got shape {tuple(given.shape)}"
            )
    elif isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"{name}: expected a number or a 0-dim tensor, got {type(given).__name__}")
    elif not given > 0:
        raise ValueError(f"{name}: must be positive, got {given!r}")
