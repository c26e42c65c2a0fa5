"""Experiments: networks trained on sets with several losses, from configs to records.

Write an `Experiment` in a file of your own and train it by ``setwise train FILE.py`` or by `run`;
``setwise tables`` and ``setwise report`` show what came of it.
"""

from setwise.experiments.config import Config, Schedule
from setwise.experiments.experiment import Experiment, Reference, Sheet
from setwise.experiments.networks import NETWORKS, NetworkConfig
from setwise.experiments.run import run
from setwise.experiments.saved_networks import load_network
from setwise.experiments.tasks import TASKS, DataConfig, Task

__all__ = [
    "NETWORKS",
    "TASKS",
    "Config",
    "DataConfig",
    "Experiment",
    "NetworkConfig",
    "Reference",
    "Schedule",
    "Sheet",
    "Task",
    "load_network",
    "run",
]
