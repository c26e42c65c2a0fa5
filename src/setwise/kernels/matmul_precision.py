"""How float32 products are formed, as PyTorch's settings of matrix products ask for."""

from __future__ import annotations

from functools import cache

import torch

from setwise.kernels.autocast import no_autocast


def tf32_is_allowed() -> bool:
    """Whether PyTorch's settings allow tf32 in float32 matrix products on CUDA.

    They do after any of these, and do not by default::

        torch.set_float32_matmul_precision("high")        # or "medium"
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.matmul.fp32_precision = "tf32"  # from PyTorch 2.9 on

    Where the last is at odds with the others it is the one that counts, as it does for PyTorch's
    own products.
    """
    try:
        if torch.get_float32_matmul_precision() == "highest":
            return False
    except RuntimeError:  # which is how PyTorch tells that the newer setting alone can be read
        pass
    newer: str = getattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
    return newer == "tf32"


# Compilers ask once, and compile again when the answer changes: they look out for these settings
# themselves. As by torch.compiler.assume_constant_result, which would import them for it.
tf32_is_allowed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def dot_precision(dtype: torch.dtype) -> str:
    """How kernels form products of that type: in "float32", or as fast as tensor cores, "tf32".

    The latter also stands for types of 16 bits, for which there is no choice.
    """
    return "tf32" if dtype != torch.float32 or tf32_is_allowed() else "float32"


def rounds_on_cpu() -> bool:
    """Whether PyTorch rounds what it multiplies on this CPU, as its settings allow it to.

    Units for bfloat16, which are not in every processor, are used at "medium".
    """
    newer = getattr(torch.backends.mkldnn, "matmul", None)  # from PyTorch 2.9 on
    allowed: str = torch.get_float32_matmul_precision() if newer is None else newer.fp32_precision
    return allowed not in ("none", "ieee", "highest") and _rounds(allowed)


@cache
def _rounds(allowed: str) -> bool:
    """Whether a product is off by more than float32 is, at the precision that is allowed now."""
    some = torch.linspace(-1, 1, 4 * 64 * 64).reshape(4, 64, 64)
    with no_autocast(some):
        off = torch.bmm(some, some).double() - torch.bmm(some.double(), some.double())
    return bool(off.abs().max() > 1e-3)
