"""Steps between pictured sets: random ones of an archive, and problems about states left out.

Legend: S states, N blocks, T transitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.data.checks import random_bits, require_int
from setwise.planning.actions.seen import Sights

_MISSES = 1000  # of walks in a row, before it is said that there are too few


@dataclass(frozen=True)
class PicturedSteps:
    """An archive, and those of its transitions that were recorded, by number."""

    sights: Sights  # of all states
    transitions: torch.Tensor  # [T, 2] of the archive: states before and after
    recorded: torch.Tensor  # [n, 2] of these

    @classmethod
    def draw(cls, archive: BlocksworldArchive, count: int, seed: int) -> PicturedSteps:
        """So many transitions of an archive, drawn at random."""
        require_int("transitions", count, 1)
        there = len(archive.transitions)
        if count > there:
            raise ValueError(f"transitions: the archive has {there}, got {count}")
        order = random_bits("pictured steps", seed).random_raw(there).argsort(kind="stable")
        patches = torch.from_numpy(archive.patches).movedim(-1, -3).float() / 255
        boxes = torch.from_numpy(archive.boxes.astype(np.int64))
        transitions = torch.from_numpy(archive.transitions)
        return cls(Sights(patches, boxes), transitions, transitions[order[:count]])

    @property
    def before(self) -> Sights:
        return self.sights[self.recorded[:, 0]]

    @property
    def after(self) -> Sights:
        return self.sights[self.recorded[:, 1]]

    def problems(self, steps: int, count: int, seed: int) -> list[tuple[int, int]]:
        """States to lead from and to, by walks that visit none twice; neither was recorded."""
        require_int("steps", steps, 1)
        known = set(self.recorded.flatten().tolist())
        left = [state for state in range(len(self.sights)) if state not in known]
        if not left:
            raise ValueError("every state of the archive was recorded; record fewer transitions")
        after: dict[int, list[int]] = {}
        for one, other in self.transitions.tolist():
            after.setdefault(one, []).append(other)
        bits = random_bits(f"pictured problems of {steps} steps", seed)
        found: list[tuple[int, int]] = []
        misses = 0
        while len(found) < count:
            walk = [left[int(bits.random_raw()) % len(left)]]
            while len(walk) <= steps:
                options = [state for state in after.get(walk[-1], []) if state not in walk]
                if not options:
                    break
                walk.append(options[int(bits.random_raw()) % len(options)])
            ends = walk[0], walk[-1]
            if len(walk) > steps and walk[-1] not in known and ends not in found:
                found.append(ends)
                misses = 0
            elif (misses := misses + 1) == _MISSES:
                raise ValueError(
                    f"found {len(found)} of {count} problems of {steps} steps between states that "
                    f"were not recorded; record fewer transitions"
                )
        return found
