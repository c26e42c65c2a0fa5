"""Triton's interpreter, made faster."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def patch_language_once() -> None:
    """Spare functions that a kernel calls what the kernel has done: to patch Triton's language.

    That takes a third of the time of these tests. Releases that go about it otherwise are left be.
    """
    try:
        import triton.language as tl
        from triton.runtime import interpreter
    except ImportError:
        return
    if not (hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope")):
        return
    patch = interpreter._patch_lang

    def patch_unless_done(function: FunctionType) -> Any:
        languages = [m for m in function.__globals__.values() if m is tl or m is tl.core]
        if any(tl.core.is_builtin(language.load) for language in languages):
            return patch(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = patch_unless_done
