"""Table 5: the networks whose codes are planned with, where they are not those of Table 1.

A network serves several scenarios of the table, so these configs have a table of their own. The
8-puzzle is planned with the networks of Table 1, scenario 4.
"""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import Autoencoder, BlocksData, Config, Loss, PuzzleData
from setwise.experiments.recipes import table1, table3

SEEDS = 10
QUICK_SEEDS = 1
# All 5760 states of 4 blocks on 3 stacks have pictures, the first 1000 are trained on.
BLOCKS = BlocksData(blocks=4, stacks=3, states=5760, train=1000)


def blocks(loss: Loss, seed: int) -> Config:
    """The network of Table 3 on 1000 states of the smaller Blocksworld, in random orders.

    They show few of the combinations of materials and places, which the network would remember.
    Recombined, it sees ever new ones, and so needs no dropout, which blurs what it puts out.
    """
    return replace(
        table3.paper("4", loss, seed),
        table="networks5",
        data=BLOCKS,
        network=Autoencoder(start_at_prototypes=True, dropout=0.0),
        schedule=replace(table3.PAPER, epochs=5600, recombined=0.5),
    )


def quick(loss: Loss, seed: int) -> Config:
    """The 2 x 3 puzzle: all of its states are trained on, without dropout, until nothing is lost.

    A plan is only as good as the worst state on its way.
    """
    base = table1.quick("4", loss, seed)
    return replace(
        base,
        table="networks5-quick",
        data=PuzzleData(width=2, height=3, states=720, train=720),
        network=Autoencoder(
            element_widths=(192, 192), widths=(192,), latent=24, decoder_width=192, dropout=0.0
        ),
        schedule=replace(
            base.schedule, epochs=300, batch=120, learning_rate=3e-3, cooldown=0.4, evaluations=10
        ),
    )
