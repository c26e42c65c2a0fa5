"""Worlds to plan in: states that are sets of objects, actions between them, and how they look.

A world of one's own is a subclass of `World`, in a file of one's own.
"""

from setwise.worlds.blocksworld import PicturedBlocksworld
from setwise.worlds.hanoi import Hanoi
from setwise.worlds.lights import LightsOut
from setwise.worlds.pushing import Pushing
from setwise.worlds.puzzle import PuzzleWorld
from setwise.worlds.world import WORLDS, World

__all__ = [
    "WORLDS",
    "Hanoi",
    "LightsOut",
    "PicturedBlocksworld",
    "Pushing",
    "PuzzleWorld",
    "World",
]
