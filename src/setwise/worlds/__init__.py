"""Worlds to plan in: states that are sets of objects, actions between them, and how they look.

A world of one's own is a subclass of `World`, in a file of one's own.
"""

from setwise.worlds.blocksworld import PicturedBlocksworld
from setwise.worlds.puzzle import PuzzleWorld
from setwise.worlds.world import WORLDS, World

__all__ = ["WORLDS", "PicturedBlocksworld", "PuzzleWorld", "World"]
