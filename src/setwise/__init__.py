"""setwise: losses, metrics and tools for neural networks whose output is a set."""

from setwise import losses, metrics
from setwise.data.sets import mask_sets, pad_sets, shuffle_sets, unpad_sets
from setwise.features import (
    Angle,
    Bernoulli,
    Categorical,
    Family,
    Features,
    Gaussian,
    Poisson,
)
from setwise.losses import (
    AssignmentCrossEntropyLoss,
    HausdorffLoss,
    OrderedCrossEntropyLoss,
    SetAverageLoss,
    SetCrossEntropyLoss,
    SetLikelihoodLoss,
    assignment_cross_entropy,
    hausdorff,
    matching_marginals,
    most_likely_matching,
    ordered_cross_entropy,
    rising_exclusivity,
    sample_matchings,
    set_average,
    set_cross_entropy,
    set_likelihood,
)

__all__ = [
    "Angle",
    "AssignmentCrossEntropyLoss",
    "Bernoulli",
    "Categorical",
    "Family",
    "Features",
    "Gaussian",
    "HausdorffLoss",
    "OrderedCrossEntropyLoss",
    "Poisson",
    "SetAverageLoss",
    "SetCrossEntropyLoss",
    "SetLikelihoodLoss",
    "assignment_cross_entropy",
    "hausdorff",
    "losses",
    "mask_sets",
    "matching_marginals",
    "metrics",
    "most_likely_matching",
    "ordered_cross_entropy",
    "pad_sets",
    "rising_exclusivity",
    "sample_matchings",
    "set_average",
    "set_cross_entropy",
    "set_likelihood",
    "shuffle_sets",
    "unpad_sets",
]
__version__ = "0.1.0"
