"""How float32 products are formed, as PyTorch's settings of matrix products ask for."""

from __future__ import annotations

import torch


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
    """Whether PyTorch may round what it multiplies on a CPU: to bfloat16, where there are units."""
    newer = getattr(torch.backends.mkldnn, "matmul", None)  # from PyTorch 2.9 on
    if newer is None:
        return torch.get_float32_matmul_precision() != "highest"
    precision: str = newer.fp32_precision
    return precision not in ("none", "ieee")
