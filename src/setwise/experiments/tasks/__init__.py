"""The tasks of experiments: one file a data set, found by its kind."""

from setwise.experiments.tasks.block_pictures import BlockPicturesData
from setwise.experiments.tasks.blocks import BlocksData
from setwise.experiments.tasks.multisets import MultisetData
from setwise.experiments.tasks.numbering import NumberingData
from setwise.experiments.tasks.puzzle import PuzzleData
from setwise.experiments.tasks.puzzle_pictures import PuzzlePicturesData
from setwise.experiments.tasks.rows import RowsData
from setwise.experiments.tasks.rules import FactsData, RulesData
from setwise.experiments.tasks.scenes import ScenesData
from setwise.experiments.tasks.sprites import SpritesData
from setwise.experiments.tasks.task import DATA, TASKS, DataConfig, Task
from setwise.experiments.tasks.traced_blocks import TracedBlocksData
from setwise.experiments.tasks.world import WorldData

__all__ = [
    "DATA",
    "TASKS",
    "BlockPicturesData",
    "BlocksData",
    "DataConfig",
    "FactsData",
    "MultisetData",
    "NumberingData",
    "PuzzleData",
    "PuzzlePicturesData",
    "RowsData",
    "RulesData",
    "ScenesData",
    "SpritesData",
    "Task",
    "TracedBlocksData",
    "WorldData",
]
