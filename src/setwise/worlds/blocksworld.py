"""The Blocksworld as a world to plan in, its states known by learned object vectors.

Legend: B sets, S states, N blocks and objects, F features, C = 3 N numbers of a configuration, A
actions; ``*`` any leading dimensions.

A configuration is the stack, level and material of every block, one block after the other, as
`Blocksworld` has them. The network sees the object vectors [S, N, F] of rendered pictures, and what
it decodes is never exactly one of them; `Recogniser` tells which state is meant, and how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from setwise.data.blocksworld import MATERIALS, Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.data.blocksworld_steps import action_between, state_from_json, state_to_json
from setwise.data.checks import require_shape
from setwise.data.look_and_place import LookAndPlace
from setwise.features import Features
from setwise.outside import read_json
from setwise.worlds.drawing import Pictures
from setwise.worlds.recognise import Recogniser
from setwise.worlds.world import World

# From sets of object vectors [P, N, F] to pictures [P, 3, height, width] in [0, 1].
Paste = Callable[[Tensor], Tensor]
# From patches [*, N, 3, 32, 32] in [0, 1] and their boxes [*, N, 4] to object vectors [*, N, F].
See = Callable[[Tensor, Tensor], Tensor]


class PicturedBlocksworld(World):
    """A `Blocksworld` with the object vectors [S, N, F] of all its states, in order of rank.

    A decoded set is a legal state if no doubt about any of its objects exceeds ``tolerance``, in
    the nearest state; see `Recogniser`. ``names`` are what readers call the blocks. ``paste`` draws
    sets of vectors; without it, nothing but their features is drawn. ``see`` makes vectors of what
    was cut out of pictures.
    """

    kind: ClassVar[str] = "blocksworld"
    photographic: ClassVar[bool] = True

    def __init__(
        self,
        world: Blocksworld,
        vectors: Tensor,
        features: Features,
        *,
        tolerance: float = 1.0,
        names: Sequence[str] | None = None,
        paste: Paste | None = None,
        see: See | None = None,
    ) -> None:
        self.world, self.vectors, self.paste, self.see = world, vectors, paste, see
        self.tolerance = tolerance
        self.names = list(names or (f"block {number}" for number in range(world.blocks)))
        if len(self.names) != world.blocks:
            raise ValueError(f"names: expected {world.blocks}, got {self.names}")
        self._features, self._is_look = features, LookAndPlace(features).is_look
        self._recogniser = Recogniser(world, vectors, features)

    @staticmethod
    def of_archive(
        path: Path,
        world: Blocksworld,
        vectors: Tensor,
        features: Features,
        *,
        seed: int,
        paste: Paste | None = None,
        see: See | None = None,
    ) -> PicturedBlocksworld:
        """The world whose pictures are in a file, with the object vectors made of them.

        All states must have been drawn, in the order of a sample of all of them by the seed. Which
        picture shows which state is not in an archive, but its transitions betray it.
        """
        ranks = ranks_of_archive(path, BlocksworldArchive.read(path), world, seed)
        ordered = torch.empty_like(vectors)
        ordered[ranks] = vectors
        names = _names(path.with_name("settings.json"))
        return PicturedBlocksworld(world, ordered, features, names=names, paste=paste, see=see)

    @property
    def name(self) -> str:
        return self.name_of(self.world)

    @staticmethod
    def name_of(world: Blocksworld) -> str:
        """What a world is called, whatever its pictures."""
        return f"blocks-{world.blocks}x{world.stacks}"

    @property
    def features(self) -> Features:
        return self._features

    def states(self) -> Tensor:
        return self.world.states().flatten(-2)

    def index(self, configurations: Tensor) -> Tensor:
        return self.world.rank(self._unflattened(configurations))

    def transitions(self) -> Tensor:
        return self.world.transitions()

    def sample(self, count: int, seed: int) -> Tensor:
        return self.world.sample(count, seed).flatten(-2)

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        after, legal = self.world.successors(self._unflattened(configurations))
        return after.flatten(-2), legal

    def is_legal_move(self, before: Tensor, after: Tensor) -> Tensor:
        return self.world.is_legal_action(self._unflattened(before), self._unflattened(after))

    def solvable(self, start: Tensor, end: Tensor) -> Tensor:
        """With two stacks, the blocks up the first and down the second keep their order."""
        start, end = torch.broadcast_tensors(self._unflattened(start), self._unflattened(end))
        if self.world.stacks > 2:
            return torch.ones(start.shape[:-2], dtype=torch.bool)
        return (_round_trip(start) == _round_trip(end)).all(-1)

    def objects(self, configurations: Tensor) -> Tensor:
        return self.vectors[self.index(configurations)]

    def configuration_of(self, objects: Tensor) -> Tensor:
        require_shape("objects", objects, self.world.blocks, self.features.width)
        configuration, distance, reason = self._judge(objects)
        if distance > self.tolerance:
            raise ValueError(reason)
        return configuration

    def read(self, outputs: Tensor) -> Tensor:
        """The means of looks, the likeliest class of every coordinate of a place.

        Of an object that is not all finite numbers nothing is read, since a choice would hide it.
        """
        likeliest = self.features.discretise(outputs)
        read = torch.where(self._is_look, self.features.mean(outputs), likeliest)
        return read.where(outputs.isfinite().all(-1, keepdim=True), torch.nan)

    def elements(self) -> None:
        """No two pictures of an object are alike."""

    def recovers(self, outputs: Tensor, configurations: Tensor) -> Tensor:
        ranks, doubts = self._recogniser.nearest(self.read(outputs))
        right = ranks == self.index(configurations)
        return right & (doubts.amax((-1, -2)) <= self.tolerance)

    def nearest(self, objects: Tensor) -> tuple[Tensor, float]:
        """The distance is the greatest doubt about any of the objects."""
        configuration, distance, _ = self._judge(objects)
        return configuration, distance

    def from_words(self, given: Mapping[str, Any]) -> Tensor:
        """The configuration [C] of ``{"stacks": [[0, 1], [], [2]], "materials": [...]}``."""
        try:
            return state_from_json(self.world, given).flatten()
        except TypeError as error:
            raise ValueError(
                f'expected {{"stacks": lists of blocks, "materials": names}}, got {dict(given)}'
            ) from error

    def describe(self, configuration: Tensor) -> str:
        """The blocks of each stack, bottom first; those of metal have a star.

        >>> from setwise.features import Bernoulli, Categorical
        >>> world = Blocksworld(blocks=2, stacks=3)
        >>> vectors = torch.eye(2).repeat(48, 1, 1)
        >>> vectors = torch.cat([vectors, vectors], -1)
        >>> blocks = PicturedBlocksworld(
        ...     world, vectors, Features(Bernoulli(2), Categorical(2))
        ... )
        >>> blocks.describe(torch.tensor([2, 0, 0, 2, 1, 1]))
        '[] [] [0 1*]'
        """
        state = self._unflattened(configuration)
        stacks = state_to_json(self.world, state)["stacks"]
        star = ["*" if metal else "" for metal in state[:, 2].tolist()]
        return " ".join(f"[{' '.join(f'{b}{star[b]}' for b in stack)}]" for stack in stacks)

    def action(self, before: Tensor, after: Tensor) -> str:
        step = action_between(self.world, self._unflattened(before), self._unflattened(after))
        where = "" if step.stack is None else f", now {self._stack(step.stack)}"
        return f"{step.name} {self.names[step.block]}{where}"

    def explain(self, before: Tensor, after: Tensor) -> str:
        changes = []
        rows = zip(
            self._unflattened(before).tolist(), self._unflattened(after).tolist(), strict=True
        )
        for block, ((stack, level, metal), (to_stack, to_level, to_metal)) in enumerate(rows):
            if (stack, level) != (to_stack, to_level):
                places = (
                    f"level {to_level} {self._stack(to_stack)}, not {level} {self._stack(stack)}"
                )
                changes.append(f"{self.names[block]} is at {places}")
            if metal != to_metal:
                changes.append(f"{self.names[block]} became {MATERIALS[to_metal]}")
        said = ", ".join(changes) if changes else "nothing changed"
        return f"{said}; an action moves one top block or changes its material"

    def draw(self, objects: Tensor) -> Pictures:
        """Decoded patches, pasted into their boxes."""
        if self.paste is None:
            return super().draw(objects)
        from setwise.worlds.photographs import photographs

        return photographs(self.paste(objects.nan_to_num()))

    def _judge(self, objects: Tensor) -> tuple[Tensor, float, str]:
        """The nearest configuration, its distance, and what is wrong with the worst object."""
        ranks, doubts = self._recogniser.nearest(objects.unsqueeze(0))
        worst, part = divmod(int(doubts[0].argmax()), 2)
        doubt = float(doubts[0, worst, part])
        reason = (
            f"object {worst} looks more like something else than like what is missing",
            f"object {worst} lies where no block can lie",
        )[part]
        if doubt == torch.inf:
            reason = f"object {worst} has values that are no finite numbers"
        return self.world.unrank(ranks[0]).flatten(), doubt, reason

    def _stack(self, number: int) -> str:
        """What a reader of pictures calls a stack."""
        three = ("on the left", "in the middle", "on the right")
        return three[number] if self.world.stacks == 3 else f"on stack {number}"

    def _unflattened(self, configurations: Tensor) -> Tensor:
        if configurations.shape[-1] != 3 * self.world.blocks:
            raise ValueError(
                f"configurations: expected {3 * self.world.blocks} numbers, stack, level and "
                f"metal of {self.world.blocks} blocks, got {tuple(configurations.shape)}"
            )
        return configurations.unflatten(-1, (self.world.blocks, 3))


def _round_trip(states: Tensor) -> Tensor:
    """The blocks up the first stack, then down the second."""
    stack, level, _ = states.unbind(-1)
    last = 2 * states.shape[-2]
    return torch.where(stack == 0, level, last - level).argsort(-1)


def ranks_of_archive(
    path: Path, archive: BlocksworldArchive, world: Blocksworld, seed: int
) -> Tensor:
    """Which states [S] the pictures of an archive show, if they show all of the world."""
    states, blocks = archive.boxes.shape[:2]
    if blocks != world.blocks:
        raise ValueError(f"{path}: expected {world.blocks} blocks, those of {world}, got {blocks}")
    if states != world.number_of_states:
        raise ValueError(
            f"{path}: planning needs pictures of all {world.number_of_states} states of "
            f"{world}, got {states}"
        )
    ranks = world.rank(world.sample(states, seed))
    claimed = ranks[torch.from_numpy(archive.transitions)].unique(dim=0)
    if not claimed.equal(world.transitions().unique(dim=0)):
        raise ValueError(
            f"{path}: its transitions are not those of {world} with the states in the order of "
            f"the seed, so that its pictures would be taken for those of other "
            f"states; draw them with setwise data blocksworld"
        )
    return ranks


def _names(settings: Path) -> list[str] | None:
    """What the blocks look like, if the pictures were drawn here."""
    if not settings.exists():
        return None
    saved = read_json(settings)
    try:
        blocks = saved["environment"]["blocks"]
        return [f"{block['size']} {block['colour']} {block['shape']}" for block in blocks]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{settings}: expected blocks in its environment") from error
