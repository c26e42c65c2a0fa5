"""Networks from anything to sets: encoders, discrete latents, decoders, autoencoder, predictor.

Ordinary modules, which also run inside ``torch.func.functional_call`` under
``torch.vmap(..., randomness="different")``, so that an ensemble trains as one network, and inside
a CUDA graph; and ``torch.export`` takes them with a batch of any size.
"""

from setwise.models.autoencoder import SetAutoencoder
from setwise.models.decoder import SetDecoder
from setwise.models.deep_sets import DeepSetsEncoder
from setwise.models.equivariant import EquivariantRuleLearner
from setwise.models.implicit import ImplicitDecoder
from setwise.models.latent import BinaryConcrete, GumbelSoftmax, annealed_temperature
from setwise.models.patch_autoencoder import PatchAutoencoder
from setwise.models.picture_encoder import PictureEncoder
from setwise.models.pointing import PointingDecoder
from setwise.models.predictor import Prediction, SetPredictor
from setwise.models.prototypes import (
    find_prototypes,
    pair_with_prototypes,
    start_at_prototypes,
)
from setwise.models.query_decoder import QueryDecoder
from setwise.models.region_decoder import RegionDecoder
from setwise.models.set_transformer import SetTransformerEncoder
from setwise.models.slot_attention import SlotAttention

__all__ = [
    "BinaryConcrete",
    "DeepSetsEncoder",
    "EquivariantRuleLearner",
    "GumbelSoftmax",
    "ImplicitDecoder",
    "PatchAutoencoder",
    "PictureEncoder",
    "PointingDecoder",
    "Prediction",
    "QueryDecoder",
    "RegionDecoder",
    "SetAutoencoder",
    "SetDecoder",
    "SetPredictor",
    "SetTransformerEncoder",
    "SlotAttention",
    "annealed_temperature",
    "find_prototypes",
    "pair_with_prototypes",
    "start_at_prototypes",
]
