"""Pictured blocks as a space to plan in without a network: codes made of learned symbols.

Legend: B sets, N blocks, F = K + C + N features: K looks, C columns, N levels; L = K C N bits.

Where a network would have to be trained on pictures of all states, symbols are learned from a few
hundred steps between them, in seconds. An object is then its look and its place, and the code of a
state has a bit for each look at each place: whether it is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.data.blocksworld_pictures import paste
from setwise.features import Bernoulli, Categorical, Features
from setwise.planning.actions.pictured import PicturedSteps
from setwise.planning.actions.seen import SeenSymbols, Sights
from setwise.worlds import PicturedBlocksworld
from setwise.worlds.blocksworld import ranks_of_archive

TRANSITIONS = 400  # that symbols are learned from, of those of the archive, unless told otherwise
_SURE = 20.0  # the logit of what is there


@dataclass(frozen=True)
class SeenCoder:
    """Between sets of objects and codes; nothing is lost if symbols are right."""

    looks: int
    columns: int
    levels: int

    def encode(self, sets: Tensor) -> Tensor:
        """[B, N, F] -> bool [B, L], whatever the order of the objects."""
        parts = sets.split([self.looks, self.columns, self.levels], dim=-1)
        look, column, level = (part.argmax(-1) for part in parts)
        bit = (look * self.columns + column) * self.levels + level
        codes = torch.zeros(len(sets), self.looks * self.columns * self.levels, dtype=torch.bool)
        return codes.scatter(1, bit, True)

    def decode(self, codes: Tensor) -> Tensor:
        """Bool [B, L] -> outputs [B, N, F]."""
        bit = codes.int().topk(self.levels, dim=1).indices
        found = (
            bit // (self.columns * self.levels),
            bit // self.levels % self.columns,
            bit % self.levels,
        )
        return _SURE * (2 * self._one_hots(*found) - 1)

    def objects(self, symbols: SeenSymbols, sights: Sights) -> Tensor:
        """Sets of things seen as sets of objects [B, N, F]."""
        places = [symbols.places.encode(boxes) for boxes in sights.boxes]
        column = torch.tensor([[ord(one[0]) - ord("a") for one in own] for own in places])
        level = torch.tensor([[int(one[1:]) - 1 for one in own] for own in places])
        return self._one_hots(symbols.looks.encode(sights.patches), column, level)

    def sights(self, symbols: SeenSymbols, sets: Tensor) -> list[Sights]:
        """What is typical of each of the sets [B, N, F]."""
        parts = sets.split([self.looks, self.columns, self.levels], dim=-1)
        rows = torch.stack([part.argmax(-1) for part in parts], dim=-1).tolist()
        letters = symbols.places.letters
        return [
            symbols.decode([(k, f"{letters[c]}{level + 1}") for k, c, level in own]) for own in rows
        ]

    def _one_hots(self, look: Tensor, column: Tensor, level: Tensor) -> Tensor:
        sizes = self.looks, self.columns, self.levels
        pairs = zip((look, column, level), sizes, strict=True)
        return torch.cat([one_hot(digit, size) for digit, size in pairs], dim=-1).float()


@dataclass(frozen=True)
class SeenSpace:
    """A world whose objects are learned symbols, the file of these, and a coder."""

    kind: ClassVar[str] = "symbols"
    path: Path
    symbols: SeenSymbols
    model: SeenCoder
    world: PicturedBlocksworld
    transitions: int  # that symbols are learned from

    @property
    def said(self) -> str:
        """What is planned with, in a line."""
        places = len(self.symbols.places.middles)
        return f"{self.symbols.looks.count} looks in {places} columns, and no network"

    def as_dict(self) -> dict[str, Any]:
        """A record of a plan is about a network."""
        raise ValueError(
            "--record: the page is about networks, and this plan would be over learned symbols; "
            "train a network with setwise reproduce table5 --scenarios blocks-3"
        )


def symbols_file(archive: Path, transitions: int = TRANSITIONS) -> Path:
    """Where the symbols of an archive are kept: beside it, under a name that no other has."""
    name = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    others = "" if transitions == TRANSITIONS else f"-{transitions}"
    return archive.with_name(f"symbols-{name}{others}.safetensors")


def open_seen(
    path: Path,
    world: Blocksworld,
    seed: int,
    transitions: int = TRANSITIONS,
    *,
    told: Callable[[str], None] = lambda text: None,
) -> SeenSpace:
    """The archive of all states, with symbols that are learned the first time and kept beside it.

    ``seed`` is that of the states of the archive; symbols are learned from so many ``transitions``,
    and ``told`` is called with a line about it before they are.
    """
    archive = BlocksworldArchive.read(path)
    ranks_of_archive(path, archive, world, seed)  # refused before anything is learned, and kept
    steps = PicturedSteps.draw(archive, min(transitions, len(archive.transitions)), seed)
    kept = symbols_file(path, transitions)
    if kept.is_file():
        symbols = SeenSymbols.load(kept)
    else:
        told(f"symbols are learned from the pictures in {path}")
        symbols = SeenSymbols.fit(steps.before, steps.after)
        symbols.save(kept)
    coder = SeenCoder(symbols.looks.count, len(symbols.places.middles), world.blocks)
    features = Features(
        Bernoulli(coder.looks), Categorical(coder.columns), Categorical(coder.levels)
    )

    def drawn(sets: Tensor) -> Tensor:
        shown = coder.sights(symbols, sets)
        patches = torch.cat([one.patches for one in shown])
        boxes = torch.cat([one.boxes for one in shown]).round().long()
        return paste(patches, boxes, *archive.picture)[0]

    def seen(patches: Tensor, boxes: Tensor) -> Tensor:
        return coder.objects(symbols, Sights(patches, boxes))

    objects = coder.objects(symbols, steps.sights)
    made = PicturedBlocksworld.of_archive(
        path,
        world,
        _with_looks_of_their_own(objects, world.sample(len(objects), seed), coder.looks),
        features,
        seed=seed,
        paste=drawn,
        see=seen,
    )
    return SeenSpace(kept, symbols, coder, made, len(steps.recorded))


def _with_looks_of_their_own(objects: Tensor, states: Tensor, looks: int) -> Tensor:
    """Objects [S, N, F] of states [S, N, 3], their looks replaced where another kind has them more.

    A kind is a block of a material, which is known of the pictures of an archive. Some of these
    are taken for another kind; a state known by such a picture would be mistaken for another one,
    and plans would jump between the two. In its place comes the look that most of the kind have, of
    those that no other kind has more often, if there is one.
    """
    kind = 2 * torch.arange(objects.shape[1]) + states[..., 2]  # [S, N]
    look = objects[..., :looks].argmax(-1)
    counts = torch.zeros(2 * objects.shape[1], looks)
    counts.index_put_((kind, look), torch.tensor(1.0), accumulate=True)
    own = counts.where(counts == counts.amax(0), 0.0)  # [kinds, K]
    usual = torch.where(own.amax(1) > 0, own.argmax(1), counts.argmax(1))
    foreign = (own[kind, look] == 0).unsqueeze(-1)
    kept = objects[..., :looks].where(~foreign, one_hot(usual, looks).to(objects.dtype)[kind])
    return torch.cat([kept, objects[..., looks:]], dim=-1)
