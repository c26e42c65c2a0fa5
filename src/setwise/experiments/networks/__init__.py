"""The networks of experiments: one file a network, found by its kind."""

from setwise.experiments.networks.autoencoder import Autoencoder
from setwise.experiments.networks.network import NETWORKS, NetworkConfig
from setwise.experiments.networks.perceptron import Perceptron
from setwise.experiments.networks.predictor import Predictor
from setwise.experiments.networks.rule_learner import EquivariantLearner, RuleLearner

__all__ = [
    "NETWORKS",
    "Autoencoder",
    "EquivariantLearner",
    "NetworkConfig",
    "Perceptron",
    "Predictor",
    "RuleLearner",
]
