"""Table 3: reconstruction of rendered Blocksworld states, with the orders of Table 1.

The network and the data are those of the paper; what the paper does not say is explained in
docs/blocksworld.md. The pictures come from ``setwise data blocksworld``.
"""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import Autoencoder, BlocksData, Config, Loss, Schedule
from setwise.experiments.recipes import table1

SCENARIOS = table1.SCENARIOS

# Elements are mostly alike here, and the latent variables of all states would run away together:
# hence the start and the small rate. The temperature keeps one output from serving two blocks, low
# enough for outputs to stay with the kind of block that they begin at.
PAPER = Schedule(
    epochs=670, batch=250, learning_rate=3e-4, cooldown=0.2, softness=3.0, evaluations=20
)
QUICK = Schedule(
    epochs=300, batch=50, learning_rate=2e-3, cooldown=0.2, softness=3.0, evaluations=3
)


def paper(scenario: str, loss: Loss, seed: int) -> Config:
    base = table1.paper(scenario, loss, seed)
    network = Autoencoder(start_at_prototypes=True)
    return replace(base, table="table3", data=BlocksData(), network=network, schedule=PAPER)


def quick(scenario: str, loss: Loss, seed: int) -> Config:
    """Three blocks in small pictures of few rays, and small networks: minutes on a CPU."""
    return replace(
        paper(scenario, loss, seed),
        table="table3-quick",
        data=BlocksData(
            blocks=3,
            states=240,
            width=150,
            height=100,
            samples=8,
            train=200,
            patch_channels=2,
            patch_epochs=30,
            patch_batch=50,
        ),
        network=Autoencoder(
            element_widths=(128, 128),
            widths=(128,),
            latent=32,
            decoder_width=128,
            dropout=0.1,
            start_at_prototypes=True,
        ),
        schedule=QUICK,
    )
