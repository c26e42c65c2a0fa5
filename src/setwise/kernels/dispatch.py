"""Which engine serves a call, decided from the tensors of that call.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``; every
query has at least one key whose bias is finite. With a ``sharpness`` [D] the first D features are
compared, not multiplied; see `reference`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from setwise.kernels import clouds, compiled_losses, operators, reference, trees
from setwise.kernels.autocast import no_autocast
from setwise.kernels.matmul_precision import tf32_is_allowed
from setwise.kernels.ready_loss import ReadyLoss
from setwise.kernels.row_losses import Blocks, Call, Mode
from setwise.kernels.transforms import has_tangent, is_eager

Engine = Literal["reference", "chunked", "trees", "triton", "clouds"]
Impl = Literal["auto", "reference", "chunked", "triton"]
IMPLS: tuple[str, ...] = get_args(Impl)

# The oldest release that the kernels are tested with.
OLDEST_TRITON = (3, 4)
# No advice to upgrade Triton: a release of PyTorch works with one release of it.
NO_TRITON = (
    f"Triton {OLDEST_TRITON[0]}.{OLDEST_TRITON[1]} or newer, which is not installed. PyTorch "
    f"for CUDA on Linux brings the Triton it works with (PyTorch 2.8 brings 3.4): install that, as "
    f"https://pytorch.org says, and not Triton by itself"
)

# Up to this many scores the dense engine is at least as fast (benchmarks/losses_cpu.py) and its
# memory is of no account.
DENSE_SCORES = 2**20

# A GPU compares one feature after the other, while its tensor cores multiply many at once.
# Coordinates are few; more features than these are taken for those of an embedding.
MOST_COMPARED = 16
# Where tf32 is not allowed, digits count for more than time, and products of centred features lose
# them where a set is in several places that are far apart.
MOST_COMPARED_IN_FULL = 1024

# Of so many in a set, fused kernels ask each target and output whether they are nearest to each
# other; the general way sorts.
MOST_SHARED = 2**28


def choose(impl: Impl, queries: Tensor, keys: Tensor) -> Engine:
    """The engine asked for, or the best one for these tensors; one asked for is never replaced."""
    if impl == "triton":
        _require_triton(queries, keys)
    if queries.shape[0] == 0:
        return "reference"  # nothing to do, and kernels cannot be started for nothing
    if torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        # Compilers lose the gradients of operators that ``torch.func`` differentiates.
        if impl not in ("auto", "reference"):
            raise ValueError(
                f"impl: transforms of torch.func inside torch.compile need 'auto' or 'reference', "
                f"got {impl!r}; or transform what is compiled, or do not compile"
            )
        return "reference"
    if impl != "auto":
        return impl
    if queries.device.type == "cuda" and queries.dtype != torch.float64:
        if _has_triton() and _fits_triton(queries, keys):
            return "triton"
        if not _has_triton():
            _warn_without_triton()
    scores = queries.shape[0] * queries.shape[1] * keys.shape[1]
    return "reference" if scores <= DENSE_SCORES else "chunked"


def compares(impl: Impl, target: Tensor, logits: Tensor, features: int) -> bool:
    """Whether so many features of an element, all that can be compared, are; else multiplied.

    What is multiplied is centred first; what is compared need not be.
    """
    if features <= MOST_COMPARED or choose(impl, target, logits) != "triton":
        return True
    return features <= most_compared()


def most_compared() -> int:
    """How many features Triton compares at most; see `tf32_is_allowed` for what compilers do."""
    return MOST_COMPARED if tf32_is_allowed() else MOST_COMPARED_IN_FULL


def logsumexp(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    impl: Impl,
    skip_negligible: bool,
    sharpness: Tensor | None = None,
) -> Tensor:
    """``logsumexp_j score_ij``: [B, M, F], [B, N, F], [B, N] -> [B, M].

    With ``skip_negligible`` the backward pass may leave out tiles, see `triton.skipping`, and pairs
    may be left out altogether, see `trees` and `triton.clouds`.
    """
    engine = choose(impl, queries, keys)
    if engine == "triton" and skip_negligible and clouds.suit(queries, keys, sharpness):
        engine = "clouds"
    if impl == "auto" and skip_negligible and trees.suit(queries, keys, sharpness) and is_eager():
        given = [t for t in (queries, keys, bias, sharpness) if t is not None]
        engine = engine if has_tangent(*given) else "trees"
    sharpness = _of_each_set(sharpness, queries)
    with no_autocast(queries):
        if engine == "reference":
            return reference.logsumexp(queries, keys, bias, sharpness)
        return operators.differentiable_logsumexp(
            queries, keys, bias, engine, skip_negligible, sharpness
        )


def bernoulli_is_fused(impl: Impl, target: Tensor, logits: Tensor) -> bool:
    """Whether `bernoulli_set_cross_entropy` serves such a call.

    Shortcuts are for eager PyTorch: compilers and transforms see the general operators.
    """
    if choose(impl, target, logits) != "triton":
        return False
    return is_eager() and not has_tangent(target, logits)


def fuses(
    impl: Impl,
    blocks: Blocks,
    mode: Mode,
    target: Tensor,
    logits: Tensor,
    *others: object,
) -> bool:
    """Whether `fused_loss` serves such a call; ``blocks`` are `Features.kernel`.

    It is for sets that are not so large that launches are of no account. The ``others`` are
    whatever else the loss depends on.
    """
    if logits.dtype != torch.float32:
        return False
    if choose(impl, target, logits) != "triton" or not is_plain(target, logits, *others):
        return False
    (B, N, F), M = logits.shape, target.shape[1]
    return not _too_large(mode, B, M, N) and bool(triton_module("fused").serves(blocks, M, N, F))


def _too_large(mode: Mode, B: int, M: int, N: int) -> bool:
    """Whether launches are of no account, and the general way leaves pairs out or sorts."""
    return B * M * N >= clouds.FEWEST_PAIRS or (mode != "soft" and M * N > MOST_SHARED)


def is_plain(target: Tensor, logits: Tensor, *others: object) -> bool:
    """Whether a call is eager, all on one device, and differentiated by the logits alone."""
    if not is_eager():
        return False
    device, tracked = logits.device, torch.is_grad_enabled()
    for tensor in (target, *others):
        if isinstance(tensor, Tensor):
            if tensor.device != device:
                return False  # a temperature may be on the host, where kernels cannot read it
            if (tracked and tensor.requires_grad) or has_tangent(tensor):
                return False
    return not has_tangent(logits)


def fuses_compiled(
    impl: Impl, blocks: Blocks, mode: Mode, target: Tensor, logits: Tensor, *others: object
) -> bool:
    """Whether `compiled_losses.loss` serves such a call inside ``torch.compile``; as of `fuses`."""
    (B, N, _), M = logits.shape, target.shape[1]
    if not is_plain_compiled(target, logits, *others):
        return False
    if _too_large(mode, B, M, N):
        return False
    if not compiled_losses.serves(blocks, MOST_COMPARED, most_compared()):
        return False
    return choose(impl, target, logits) == "triton"


def is_plain_compiled(target: Tensor, logits: Tensor, *others: object) -> bool:
    """As `is_plain`, of a call of float32 that a compiler looks at, for operators of losses."""
    if not torch.compiler.is_compiling() or logits.dtype != torch.float32:
        return False
    # What the operator has to offer is the gradient of autograd; ``torch.func`` has its own.
    if not (torch.is_grad_enabled() and logits.requires_grad):
        return False
    mapped = torch._C._functorch.is_batchedtensor
    tensors = [t for t in (target, *others) if isinstance(t, Tensor)]
    if any(t.requires_grad or t.device != logits.device for t in tensors):
        return False
    # A reduced loss cannot be folded.
    return not (mapped(logits) or any(mapped(t) for t in tensors))


def fused_loss(
    target: Tensor, logits: Tensor, call: Call, again: Callable[[Tensor], Tensor]
) -> Tensor:
    """A set loss in the fewest launches; see `ReadyLoss` for ``again``."""
    # Kernels read plain arrays. Here, not in the function: its gradients are of what it was given.
    target, logits = target.contiguous(), logits.contiguous()
    names = ("output_valid", "target_valid", "weight", "share")
    arrays = {
        name: array.contiguous() for name in names if (array := getattr(call, name)) is not None
    }
    if arrays:
        call = call._replace(**arrays)
    compute = partial(triton_module("fused").computed, call, target, logits)
    loss: Tensor = ReadyLoss.apply(compute, again, torch.is_grad_enabled(), logits)
    return loss


def bernoulli_set_cross_entropy(
    target: Tensor,
    logits: Tensor,
    valid: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    skip_negligible: bool,
) -> Tensor:
    """Set cross entropy of Bernoulli elements [B, M, F] and [B, N, F] in the fewest launches."""
    # Kernels read plain arrays. Here, not in the function: its gradients are of what it was given.
    target, logits = target.contiguous(), logits.contiguous()
    valid = None if valid is None else valid.contiguous()
    weight = None if weight is None else weight.contiguous()
    return triton_module("bernoulli").BernoulliSetCrossEntropy.apply(
        target, logits, valid, weight, reduction, torch.is_grad_enabled(), skip_negligible
    )


def argmax(
    queries: Tensor, keys: Tensor, bias: Tensor, impl: Impl, sharpness: Tensor | None = None
) -> Tensor:
    """``argmax_j score_ij``: [B, M, F], [B, N, F], [B, N] -> [B, M]; not differentiable."""
    engine = choose(impl, queries, keys)
    if engine == "triton" and clouds.suit(queries, keys, sharpness):
        engine = "clouds"
    if impl == "auto" and trees.suit(queries, keys, sharpness):
        engine = "trees"
    queries, keys, bias = queries.detach(), keys.detach(), bias.detach()
    sharpness = _of_each_set(sharpness, queries)
    with no_autocast(queries):
        if engine == "reference":
            return reference.argmax(queries, keys, bias, sharpness)
        return operators.argmax(queries, keys, bias, engine, sharpness)


def scores(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None = None) -> Tensor:
    """Every ``score_ij``, for reductions that cannot do without: [B, M, N]."""
    return reference.scores(queries, keys, bias, _of_each_set(sharpness, queries))


def fused(module: str, scores: Tensor) -> Any | None:
    """The module of kernels that take all of these scores [B, M, N] at once, where they serve.

    Else None, and there is PyTorch code for the same; all of it where types are wider.
    """
    if scores.device.type != "cuda" or scores.dtype != torch.float32 or not _has_triton():
        return None
    return triton_module(f"triton.{module}") if 0 < scores[:1].numel() < 2**31 else None


def _of_each_set(sharpness: Tensor | None, queries: Tensor) -> Tensor | None:
    """[D] -> [B, D]: operators are mapped over whatever begins with B."""
    return None if sharpness is None else sharpness.expand(len(queries), -1)


def _triton_version() -> tuple[int, ...] | None:
    for name in ("triton", "pytorch-triton", "pytorch-triton-rocm"):
        try:
            found = re.match(r"(\d+)\.(\d+)", version(name))
        except PackageNotFoundError:
            continue
        return (int(found[1]), int(found[2])) if found else None
    return None


_TRITON = _triton_version()


def _has_triton() -> bool:
    return _TRITON is not None and _TRITON >= OLDEST_TRITON


def _fits_triton(queries: Tensor, keys: Tensor) -> bool:
    """Whether positions inside one set fit the 32 bits the kernels count them with.

    In full precision they read padded elements (`triton.bf16x6.padded_features`).
    """
    width = (queries.shape[2] + 15) // 16 * 16
    return queries.shape[1] * width < 2**31 and keys.shape[1] * width < 2**31


@cache
def _warn_without_triton() -> None:
    """Once: a cached function runs its body the first time only."""
    warnings.warn(f"set losses on CUDA are slower without {NO_TRITON}", stacklevel=2)


def _require_triton(queries: Tensor, keys: Tensor) -> None:
    problem = None
    if not _has_triton():
        problem = f"needs {NO_TRITON}"
    elif queries.dtype == torch.float64:
        problem = "computes in float32; use 'chunked' for float64 tensors"
    elif queries.device.type != "cuda" and not _interprets():
        problem = f"needs CUDA tensors, got {queries.device}; use 'auto' or 'chunked'"
    elif not _fits_triton(queries, keys):
        problem = "takes sets of less than 2^31 numbers, in rows of a multiple of 16; use 'chunked'"
    if problem:
        raise ValueError(f"impl: 'triton' {problem}")


def _interprets() -> bool:
    """Whether Triton runs its kernels in its interpreter, the way to run them on a CPU."""
    return bool(triton_module("triton.launch").INTERPRETED)


@cache
def triton_module(module: str) -> Any:
    """A module that imports Triton, which not every machine has."""
    return import_module(f"setwise.kernels.{module}")
