"""Losses between a set of outputs and a set of targets: one function per file, modules beside."""

from setwise.losses.assignment import assignment_cross_entropy
from setwise.losses.hausdorff import hausdorff
from setwise.losses.modules import (
    AssignmentCrossEntropyLoss,
    HausdorffLoss,
    OrderedCrossEntropyLoss,
    SetAverageLoss,
    SetCrossEntropyLoss,
)
from setwise.losses.ordered import ordered_cross_entropy
from setwise.losses.set_average import set_average
from setwise.losses.set_cross_entropy import set_cross_entropy

__all__ = [
    "AssignmentCrossEntropyLoss",
    "HausdorffLoss",
    "OrderedCrossEntropyLoss",
    "SetAverageLoss",
    "SetCrossEntropyLoss",
    "assignment_cross_entropy",
    "hausdorff",
    "ordered_cross_entropy",
    "set_average",
    "set_cross_entropy",
]
