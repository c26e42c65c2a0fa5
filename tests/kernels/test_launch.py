"""Starting kernels: directly where Triton is known to allow it, else as Triton does it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton

from setwise.kernels import dispatch
from setwise.kernels.triton import launch
from setwise.kernels.triton.launch import Launcher, starts_directly

GRID = (3, 2, 1)


class Kernel:
    """Stands for a kernel of Triton's; what it compiles to has the attributes given."""

    def __init__(self, **attributes: Any) -> None:
        self.started: list[tuple[Any, ...]] = []
        self.compiled = SimpleNamespace(**attributes)

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            self.started.append((grid, args, options))
            return self.compiled

        return run


class Compiled(Kernel):
    """One that can be started directly, as the releases in DIRECT_TRITON have it."""

    def __init__(self) -> None:
        self.direct: list[tuple[Any, ...]] = []
        super().__init__(
            run=lambda *args: self.direct.append(args), function="f", packed_metadata="m"
        )


@pytest.fixture(autouse=True)
def on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the CPU say that they are on device -1; take that to be the current one."""
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "DIRECT", True)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)


def start(kernel: Kernel, times: int, *numbers: int | float) -> tuple[Launcher, torch.Tensor]:
    launcher = Launcher(kernel, {"F": 5, "EVEN": True}, warps=4, stages=2)
    tensor = torch.zeros(8)
    for _ in range(times):
        launcher(GRID, (tensor, tensor), numbers or (2, 0.5))
    return launcher, tensor


def test_directly_from_the_second_time_on() -> None:
    kernel = Compiled()
    _, tensor = start(kernel, 3)
    (by_triton,) = kernel.started
    options = {"num_warps": 4, "num_stages": 2, "enable_fp_fusion": True}
    assert by_triton == (GRID, (tensor, tensor, 2, 0.5), {"F": 5, "EVEN": True, **options})
    address = tensor.data_ptr()
    nothing = (None, None, None)
    assert kernel.direct == [(*GRID, 77, "f", "m", *nothing, address, address, 2, 0.5, 5, True)] * 2


@pytest.mark.parametrize("missing", ["run", "function", "packed_metadata"])
def test_where_a_name_is_missing_triton_starts_it_every_time(missing: str) -> None:
    kernel = Compiled()
    delattr(kernel.compiled, missing)
    start(kernel, 3)
    assert len(kernel.started) == 3
    assert kernel.started[0] == kernel.started[1] == kernel.started[2]
    assert not kernel.direct


def test_another_release_starts_it_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "DIRECT", False)
    kernel = Compiled()
    start(kernel, 3)
    assert len(kernel.started) == 3
    assert not kernel.direct


def test_what_is_compiled_anew() -> None:
    """Other types, alignments and properties of integers; not other values."""
    kernel = Compiled()
    launcher, tensor = start(kernel, 1, 3, 0.5)
    launcher(GRID, (tensor, tensor), (5, 0.25))
    assert (len(kernel.started), len(kernel.direct)) == (1, 1)
    for tensors, numbers in [
        ((tensor, tensor.half()), (3, 0.5)),
        ((tensor, tensor[1:]), (3, 0.5)),
        ((tensor, tensor), (16, 0.5)),
        ((tensor, tensor), (1, 0.5)),
    ]:
        before = len(kernel.started)
        launcher(GRID, tensors, numbers)
        assert len(kernel.started) == before + 1


@pytest.mark.parametrize(
    ("version", "expected"),
    [("3.3.1", False), ("3.4.0", True), ("3.6.0+git123", True), ("3.9.0", True), ("4.0.0", False)],
)
def test_which_releases_are_known(version: str, expected: bool) -> None:
    assert starts_directly(version) == expected


def test_a_release_to_come_is_not() -> None:
    _, (major, minor) = launch.DIRECT_TRITON
    assert not starts_directly(f"{major}.{minor + 1}.0")


def test_the_oldest_release_with_kernels_can_be_started_directly() -> None:
    assert launch.DIRECT_TRITON[0] == dispatch.OLDEST_TRITON


@pytest.mark.skipif(not starts_directly(triton.__version__), reason="not a release that is known")
def test_the_names_are_those_of_this_release() -> None:
    """Where there is no device to try it: what the release itself calls, and with what."""
    import inspect

    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    called = "".join(inspect.getsource(JITFunction.run).split())
    assert (
        "kernel.run(grid_0,grid_1,grid_2,stream,kernel.function,kernel.packed_metadata," in called
    )
    assert "launch_exit_hook,*bound_args.values())" in called
    assert "self.packed_metadata=" in "".join(inspect.getsource(CompiledKernel.__init__).split())


class TestAdvice:
    """Where Triton is missing or too old."""

    @pytest.fixture(autouse=True)
    def without_triton(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatch, "_TRITON", (3, 3))
        dispatch._warn_without_triton.cache_clear()

    def test_of_a_call(self) -> None:
        x = torch.zeros(1, 2, 3)
        with pytest.raises(ValueError, match=r"impl: 'triton'.*Triton 3\.4 or newer") as error:
            dispatch.choose("triton", x, x)
        self.is_right(str(error.value))

    def test_of_a_slower_engine(self) -> None:
        cuda = SimpleNamespace(shape=(1, 2, 3), device=torch.device("cuda"), dtype=torch.float32)
        with pytest.warns(UserWarning, match="slower without Triton") as warned:
            assert dispatch.choose("auto", cuda, cuda) == "reference"  # type: ignore[arg-type]
        self.is_right(str(warned[0].message))

    def is_right(self, text: str) -> None:
        """PyTorch pins the Triton it works with: to upgrade that alone would break it."""
        assert "pip install" not in text
        assert "PyTorch 2.8 brings 3.4" in text
        assert "https://pytorch.org" in text
