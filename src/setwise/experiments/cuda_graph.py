"""A step that is repeated: on CUDA it is recorded once and replayed, which costs no launches."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Repeated:
    """Calls a function that reads and writes the same tensors every time.

    If it is to be ``replayed``, on CUDA, the first calls run as they are, on a stream of their own,
    until all that is set up lazily is there; the next is recorded as a CUDA graph. Else the
    function is just called.
    """

    FIRST_CALLS = 3

    def __init__(self, function: Callable[[], None], replayed: bool) -> None:
        self._function = function
        self._replayed = replayed
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if not self._replayed:
            self._function()
        elif self._graph is not None:
            self._graph.replay()
        elif self._calls < self.FIRST_CALLS:
            self._calls += 1
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._function()
            torch.cuda.current_stream().wait_stream(side)
        else:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):  # records, and does not run
                self._function()
            self._graph.replay()
