"""What an element of a set is: families of features, and the one form in which all are scored.

An element is made of blocks side by side, each an instance of a `Family`; `Features` lists them.
A family knows everything that is particular to it, so that nothing outside this room asks which
family it has before it.
"""

from setwise.features.angle import Angle
from setwise.features.bernoulli import Bernoulli
from setwise.features.categorical import Categorical
from setwise.features.family import Family
from setwise.features.features import DotProduct, Factors, Features
from setwise.features.gaussian import Gaussian
from setwise.features.poisson import Poisson

__all__ = [
    "Angle",
    "Bernoulli",
    "Categorical",
    "DotProduct",
    "Factors",
    "Family",
    "Features",
    "Gaussian",
    "Poisson",
]
