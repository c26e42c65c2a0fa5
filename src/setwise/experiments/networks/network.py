"""Networks of experiments: settings that build what is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from setwise.experiments.tasks.task import Task
from setwise.registry import Registry

NETWORKS: Registry[type[NetworkConfig]] = Registry("network")


@dataclass(frozen=True)
class NetworkConfig(ABC):
    """Settings of a network, which build it; a subclass with a ``kind`` is found by that name.

    A subclass is a frozen dataclass whose fields JSON can hold: numbers, texts, booleans, tuples.
    """

    kind: ClassVar[str]
    # Whether a step on a GPU is compiled first. That takes most of a minute, and pays where most
    # of a step is moving activations.
    compiled: ClassVar[bool] = False
    # Whether the network adds up its elements, so that their order is nothing to it. Such a one
    # reads sets [B, N, F] and, where the inputs of a task are counts of elements, those too.
    order_free: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            NETWORKS.add(cls.kind, cls)

    @abstractmethod
    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        """The network for a task, with weights from PyTorch's generator.

        It is called as ``network(input, temperature)`` with a batch of the task's inputs and the
        temperature of latent variables, and returns logits [B, N, F]; while it trains those of
        several layers [B, L, N, F], if the loss of each is to count. Its randomness in training is
        that of ``nn.Dropout`` and of `setwise.models.keyed.KeyedLayer`. Not ``to_train`` means
        that other weights will take the place of these: nothing needs to be looked for.
        """

    def model(self, network: nn.Module) -> nn.Module:
        """The part of what `build` gave that is of use after training."""
        return network
