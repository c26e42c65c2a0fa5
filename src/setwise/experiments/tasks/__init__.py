"""The tasks of experiments: one file a data set, found by its kind."""

from setwise.experiments.tasks.blocks import BlocksData
from setwise.experiments.tasks.multisets import MultisetData
from setwise.experiments.tasks.numbering import NumberingData
from setwise.experiments.tasks.puzzle import PuzzleData
from setwise.experiments.tasks.rows import RowsData
from setwise.experiments.tasks.rules import FactsData, RulesData
from setwise.experiments.tasks.sprites import SpritesData
from setwise.experiments.tasks.task import DATA, TASKS, DataConfig, Task
from setwise.experiments.tasks.world import WorldData

__all__ = [
    "DATA",
    "TASKS",
    "BlocksData",
    "DataConfig",
    "FactsData",
    "MultisetData",
    "NumberingData",
    "PuzzleData",
    "RowsData",
    "RulesData",
    "SpritesData",
    "Task",
    "WorldData",
]
