"""Networks from sets to sets: the Deep Sets encoder, discrete latents, decoder and autoencoder.

Ordinary modules, which also run inside ``torch.func.functional_call`` under
``torch.vmap(..., randomness="different")``, so that an ensemble trains as one network, and inside
a CUDA graph.
"""

from setwise.models.autoencoder import SetAutoencoder
from setwise.models.decoder import SetDecoder
from setwise.models.deep_sets import DeepSetsEncoder
from setwise.models.equivariant import EquivariantRuleLearner
from setwise.models.latent import BinaryConcrete, GumbelSoftmax, annealed_temperature
from setwise.models.patch_autoencoder import PatchAutoencoder
from setwise.models.prototypes import (
    find_prototypes,
    pair_with_prototypes,
    start_at_prototypes,
)

__all__ = [
    "BinaryConcrete",
    "DeepSetsEncoder",
    "EquivariantRuleLearner",
    "GumbelSoftmax",
    "PatchAutoencoder",
    "SetAutoencoder",
    "SetDecoder",
    "annealed_temperature",
    "find_prototypes",
    "pair_with_prototypes",
    "start_at_prototypes",
]
