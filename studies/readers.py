"""Readers: from a whole picture of a state to the set of things in it, without boxes.

    setwise train studies/readers.py --experiment block-reader --keep all     # wants a GPU
    setwise train studies/readers.py --experiment puzzle-reader --keep all    # minutes on a CPU
    setwise train studies/readers.py --experiment puzzle-codes --keep all     # likewise

Networks learn by the likelihood of the set: nobody tells them which output is for which block. They
have an output for each region of a picture; or, in another scenario, as many queries as there are
blocks, which look for them. ``setwise plan`` then takes pictures. Those of the Blocksworld to learn
from are drawn by the renderer torch at the start, several of each state; pictures to be read
afterwards may be of any renderer. The last is an autoencoder of the 8-puzzle for the planner to
plan with between such pictures: smaller than those of the paper, and of a third of all states.
"""

from __future__ import annotations

from setwise.experiments import Config, Experiment, Schedule
from setwise.experiments.networks import Autoencoder, Predictor
from setwise.experiments.tasks import PuzzleData, PuzzlePicturesData, TracedBlocksData

LOSS = "set_likelihood"
_CONVOLUTIONS = (32, 64, 128, 128)
BLOCK_NETWORKS = {
    "regions": Predictor("regions", width=128, convolutions=_CONVOLUTIONS),
    "queries": Predictor("queries", outputs=4, width=128, convolutions=_CONVOLUTIONS),
}


def block_config(scenario: str, loss: str, seed: int) -> Config:
    return Config(
        experiment="block-reader",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=TracedBlocksData(blocks=4, states=3200, train=2200, views=4),
        network=BLOCK_NETWORKS[scenario],
        schedule=Schedule(
            epochs=75, batch=50, learning_rate=1.5e-3, cooldown=0.8, blur=8.0, evaluations=10
        ),
    )


def puzzle_config(scenario: str, loss: str, seed: int) -> Config:
    return Config(
        experiment="puzzle-reader",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=PuzzlePicturesData(),
        network=Predictor("regions", width=64, convolutions=(16, 32, 64, 64)),
        schedule=Schedule(epochs=10, batch=50, cooldown=0.6, evaluations=10),
    )


def codes_config(scenario: str, loss: str, seed: int) -> Config:
    """No dropout: a plan is only as good as the worst state on its way."""
    return Config(
        experiment="puzzle-codes",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=True,
        shuffle_target=True,
        data=PuzzleData(states=61_000, train=60_000),
        network=Autoencoder((256, 256), (256,), latent=48, decoder_width=256, dropout=0.0),
        schedule=Schedule(epochs=70, batch=500, learning_rate=2e-3, cooldown=0.6, evaluations=10),
    )


BLOCKS = Experiment(
    name="block-reader",
    title="Blocks read from whole pictures",
    config=block_config,
    scenarios={
        "regions": "4 blocks; an output for each region",
        "queries": "4 blocks; as many queries",
    },
    losses=(LOSS,),
    seeds=1,
    metric="read",
    metric_label="share of all states that are read right: every block, its look and its box",
    decimals=3,
)
PUZZLE = Experiment(
    name="puzzle-reader",
    title="Tiles read from pictures of the 8-puzzle",
    config=puzzle_config,
    scenarios={"3x3": "3 x 3"},
    losses=(LOSS,),
    seeds=1,
    metric="exact",
    metric_label="share of all states that are read right: every tile and its place",
    decimals=3,
)
CODES = Experiment(
    name="puzzle-codes",
    title="Codes of states of the 8-puzzle, to plan between pictures",
    config=codes_config,
    scenarios={"3x3": "3 x 3"},
    losses=("set_cross_entropy",),
    seeds=1,
    metric="heldout",
    metric_label="share of the states not trained on that are reconstructed",
    decimals=4,
)
