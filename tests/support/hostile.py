"""Hostile bytes and values: seeded mutations of files that were whole."""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

# What stands in for a value: of another type, of no possible size, or not to be shown.
VALUES: list[Any] = [
    *(None, True, "", "x", "\x1b[2J", "\x00", "../../x", "é" * 300, [], {}, [[]], [None], {"a": 1}),
    *(-1, 0, 1, 2, 7, 2**31, 2**53, 2**63, 10**12, 10**30, -(10**12)),
    *(0.0, -0.5, 1e-300, 1e300, float("nan"), float("inf")),
    *([10**12], [2, 10**9], [-1], ["x"], [1] * 1000, "puzzle", "blocks", "world", "autoencoder"),
]


def flipped(data: bytes, rng: random.Random, most: int | None = None) -> bytes:
    """With up to eight bits flipped, among the first ``most`` bytes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(min(len(data), most or len(data)))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def shortened(data: bytes, rng: random.Random) -> bytes:
    """Cut off anywhere, or with a piece cut out."""
    first, last = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:first] if rng.random() < 0.5 else data[:first] + data[last:]


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of a JSON tree, of its inner nodes too."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    below = [
        place
        for key, value in inner
        for place in (
            leaves(value, (*path, key)) if isinstance(value, dict | list) else [(*path, key)]
        )
    ]
    return ([path] if path else []) + below


def mutated(tree: Any, rng: random.Random) -> Any:
    """The tree with one to three of its places changed, removed or added."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = leaves(tree)
        if not places:
            break
        *above, key = rng.choice(places)
        node = tree
        for step in above:
            node = node[step]
        how = rng.random()
        if how < 0.8:
            node[key] = copy.deepcopy(rng.choice(VALUES))
        elif how < 0.9:
            del node[key]
        elif isinstance(node, dict):
            node[rng.choice(["x", "kind", "", "width"])] = rng.choice(VALUES)
    return tree


def split_safetensors(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a file of tensors, and their bytes."""
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def join_safetensors(header: Any, body: bytes) -> bytes:
    """The other way round, whatever the header is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body
