"""Triton's interpreter, made faster.

Nearly all of its time goes to what is said about tensors, not to their numbers: a product of two
tiles makes a dozen types, each checked and named anew. Here types are made once and remember what
was made of them. Nothing is computed otherwise; `tests/kernels/test_interpreter.py` holds it so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import Any

NUMBERS = {int, float, bool}
MOST_CONSTANTS = 256  # of a type of tensors


def speed_up() -> None:
    """Once, before kernels run. Releases that go about a thing otherwise are left be in that."""
    try:
        import triton.language as tl
        from triton.runtime import interpreter
    except ImportError:
        return
    if hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope"):
        patch_language_once(tl, interpreter)
        call_builtins_directly(interpreter)
    look_for_no_overflow(interpreter)
    make_types_once(tl)
    broadcast_by_sizes(tl)
    promote_once(tl)
    unwrap_constants_only(tl)
    remember_dtypes(interpreter)
    copy_more_at_once()


def patch_language_once(tl: Any, interpreter: Any) -> None:
    """Spare functions that a kernel calls what the kernel has done: to patch Triton's language."""
    patch = interpreter._patch_lang

    @cache
    def languages(function: FunctionType) -> list[Any]:
        return [m for m in function.__globals__.values() if m is tl or m is tl.core]

    def patch_unless_done(function: FunctionType) -> Any:
        if any(tl.core.is_builtin(language.load) for language in languages(function)):
            return patch(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = patch_unless_done


def call_builtins_directly(interpreter: Any) -> None:
    """Not by way of a wrapper that looks whether it was called from a kernel."""

    def patch_attr(obj: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        function = getattr(member, "__wrapped__", member)
        semantic = interpreter.interpreter_semantic

        def called(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        scope.set_attr(obj, name, called)

    interpreter._patch_attr = patch_attr


def look_for_no_overflow(interpreter: Any) -> None:
    """Of integers: unless in debugging, what was found is thrown away."""
    builder = interpreter.interpreter_builder
    if not builder.options.debug:
        builder.options = replace(builder.options, sanitize_overflow=False)


def make_types_once(tl: Any) -> None:
    """The same object for the same block of a type; and of a type, what all its tensors share."""
    block_type, tensor, dtype = tl.core.block_type, tl.core.tensor, tl.core.dtype
    make_block, make_tensor, equal = block_type.__init__, tensor.__init__, dtype.__eq__

    def the_block(cls: Any, element_ty: Any, shape: Any) -> Any:
        known = element_ty.__dict__.setdefault("_blocks", {})
        sizes = shape if type(shape) is tuple else tuple([getattr(n, "value", n) for n in shape])
        if sizes not in known:
            known[sizes] = object.__new__(cls)
            known[sizes]._sizes = sizes
        return known[sizes]

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        if "name" not in self.__dict__:
            make_block(self, element_ty, list(shape))

    def of_type(self: Any, handle: Any, type: Any) -> None:
        shared = type.__dict__.get("_shared")
        if shared is None:
            make_tensor(self, handle, type)
            type._shared = {k: v for k, v in self.__dict__.items() if k != "handle"}
        else:
            self.__dict__.update(shared)
            self.handle = handle

    block_type.__new__, block_type.__init__, tensor.__init__ = the_block, block, of_type
    block_type.with_element_ty = lambda self, scalar_ty: block_type(scalar_ty, self._sizes)
    dtype.__eq__ = lambda self, other: self is other or equal(self, other)


def broadcast_by_sizes(tl: Any) -> None:
    """Numbers and blocks of as many axes, by their sizes; what does not fit is left to Triton."""
    semantic, block_type, tensor = tl.semantic.TritonSemantic, tl.core.block_type, tl.core.tensor
    broadcast = semantic.broadcast_impl_value

    def widened(self: Any, x: Any, before: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
        if before == sizes:
            return x
        block = block_type(x.type.scalar, sizes)
        if not before:
            return tensor(self.builder.create_splat(block, x.handle), block)
        return tensor(self.builder.create_broadcast(x.handle, list(sizes)), block)

    def fit(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return len(a) == len(b) and all(m == n or 1 in (m, n) for m, n in zip(a, b, strict=True))

    def broadcast_quickly(self: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.type is rhs.type:
            return lhs, rhs
        a, b = getattr(lhs.type, "_sizes", ()), getattr(rhs.type, "_sizes", ())
        if a and b and not fit(a, b):
            return broadcast(self, lhs, rhs)
        sizes = tuple(map(max, a, b)) if a and b else a or b
        return widened(self, lhs, a, sizes), widened(self, rhs, b, sizes)

    semantic.broadcast_impl_value = broadcast_quickly


def promote_once(tl: Any) -> None:
    """The type that numbers of two types are computed in; of one type, there is nothing to do.

    A number beside a tensor becomes one as well, the same beside all tensors of a type.
    """
    semantic, tensor = tl.semantic.TritonSemantic, tl.core.tensor
    promote, check, known = (
        semantic.computation_type_impl,
        semantic.binary_op_type_checking_impl,
        {},
    )

    def promoted(self: Any, a_ty: Any, a_is: bool, b_ty: Any, b_is: bool, div_or_mod: bool) -> Any:
        key = (a_ty.name, a_is, b_ty.name, b_is, div_or_mod)
        if key not in known:
            known[key] = promote(self, a_ty, a_is, b_ty, b_is, div_or_mod)
        return known[key]

    def beside(self: Any, lhs: Any, rhs: Any, *how: bool) -> Any:
        """A tensor and a number, in any order."""
        number_first = type(lhs) is not tensor
        known, number = (rhs, lhs) if number_first else (lhs, rhs)
        constants = known.type.__dict__.setdefault("_constants", {})
        # Zero has a sign, which numbers are not told apart by.
        key = (number_first, type(number), number or str(number), *how)
        if key in constants:
            return (constants[key], known) if number_first else (known, constants[key])
        pair = check(self, lhs, rhs, *how)
        constant, same = pair if number_first else pair[::-1]
        if same is known:
            if len(constants) >= MOST_CONSTANTS:
                constants.clear()
            constant.handle.data.flags.writeable = False  # it is everybody's
            constants[key] = constant
        return pair

    def checked(
        self: Any, lhs: Any, rhs: Any, ptr: bool = False, rhs_ptr: bool = False,
        arithmetic_check: bool = True, div_or_mod: bool = False,
    ) -> Any:  # fmt: skip
        if type(lhs) is tensor and type(rhs) is tensor:
            if lhs.dtype.is_ptr():
                if ptr and rhs.dtype.is_int():
                    return self.broadcast_impl_value(lhs, rhs)
            elif lhs.dtype is rhs.dtype and not div_or_mod:
                return self.broadcast_impl_value(lhs, rhs)
        elif (type(lhs) is tensor or type(rhs) is tensor) and {type(lhs), type(rhs)} & NUMBERS:
            return beside(self, lhs, rhs, ptr, rhs_ptr, arithmetic_check, div_or_mod)
        return check(self, lhs, rhs, ptr, rhs_ptr, arithmetic_check, div_or_mod)

    semantic.computation_type_impl = promoted
    semantic.binary_op_type_checking_impl = checked


def unwrap_constants_only(tl: Any) -> None:
    """What is no constant and holds none is known by its type."""
    unwrap = tl.core._unwrap_if_constexpr
    plain = {int, float, bool, str, type(None), tl.core.tensor, tl.core.dtype}
    tl.core._unwrap_if_constexpr = lambda o: o if type(o) in plain else unwrap(o)


def remember_dtypes(interpreter: Any) -> None:
    """NumPy's for Triton's, without a table that is written anew for each."""
    find = interpreter._get_np_dtype

    def found(tt_dtype: Any) -> Any:
        known = tt_dtype.__dict__
        if "_np_dtype" not in known:
            known["_np_dtype"] = find(tt_dtype)
        return known["_np_dtype"]

    interpreter._get_np_dtype = found


def copy_more_at_once() -> None:
    """A program costs the same whatever it copies; more than one is left where sets are large."""
    from setwise.kernels.triton import plans

    plans.NUMBERS_AT_ONCE *= 8
