"""Losses between a set of outputs and a set of targets: functions, modules, and their table."""

from setwise.losses.assign import assign
from setwise.losses.assignment import assignment_cross_entropy
from setwise.losses.exclusivity import rising_exclusivity
from setwise.losses.hausdorff import hausdorff
from setwise.losses.matchings import matching_marginals, most_likely_matching, sample_matchings
from setwise.losses.modules import (
    AssignmentCrossEntropyLoss,
    HausdorffLoss,
    OrderedCrossEntropyLoss,
    SetAverageLoss,
    SetCrossEntropyLoss,
    SetLikelihoodLoss,
    SetLoss,
    StableMatchingCrossEntropyLoss,
    TransportCrossEntropyLoss,
)
from setwise.losses.ordered import ordered_cross_entropy
from setwise.losses.points import chamfer, earth_movers
from setwise.losses.set_average import set_average
from setwise.losses.set_cross_entropy import set_cross_entropy
from setwise.losses.set_likelihood import set_likelihood
from setwise.losses.stable_matching import stable_matching_cross_entropy
from setwise.losses.table import LOSSES, Loss, find_loss, register_loss
from setwise.losses.transport import transport_cross_entropy

__all__ = [
    "LOSSES",
    "AssignmentCrossEntropyLoss",
    "HausdorffLoss",
    "Loss",
    "OrderedCrossEntropyLoss",
    "SetAverageLoss",
    "SetCrossEntropyLoss",
    "SetLikelihoodLoss",
    "SetLoss",
    "StableMatchingCrossEntropyLoss",
    "TransportCrossEntropyLoss",
    "assign",
    "assignment_cross_entropy",
    "chamfer",
    "earth_movers",
    "find_loss",
    "hausdorff",
    "matching_marginals",
    "most_likely_matching",
    "ordered_cross_entropy",
    "register_loss",
    "rising_exclusivity",
    "sample_matchings",
    "set_average",
    "set_cross_entropy",
    "set_likelihood",
    "stable_matching_cross_entropy",
    "transport_cross_entropy",
]
