"""Table 4: from the head of a rule over countries to the set of its body.

The data and the network are those of the paper; what it does not say (optimiser, epochs, batch) is
explained in docs/reproduction.md. Scenarios are named by the length of the rule, the number of
clauses trained on and the order of the bodies, as in ``n4-9000-random``.
"""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import (
    Config,
    EquivariantLearner,
    Loss,
    RuleLearner,
    RulesData,
    Schedule,
)

# (n, clauses to train on, clauses held out, epochs, batch)
_SETTINGS = [
    (2, 2250, 250, 1000, 250),
    (3, 2250, 250, 1000, 250),
    (4, 2250, 250, 1000, 250),
    (4, 9000, 1000, 600, 500),
    (5, 2250, 250, 1000, 250),
    (5, 9000, 1000, 600, 500),
]
SCENARIOS = {
    f"n{n}-{train}-{order}": (RulesData(n=n, train=train, test=test), epochs, batch, order)
    for n, train, test, epochs, batch in _SETTINGS
    for order in ("fixed", "random")
}


def paper(scenario: str, loss: Loss, seed: int) -> Config:
    data, epochs, batch, order = SCENARIOS[scenario]
    return Config(
        table="table4",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=order == "random",
        data=data,
        network=RuleLearner(),
        schedule=Schedule(epochs=epochs, batch=batch, cooldown=0.2, evaluations=20),
    )


def best(scenario: str, loss: Loss, seed: int) -> Config:
    """The same clauses and losses, and a network that treats all countries alike."""
    base = paper(scenario, loss, seed)
    assert isinstance(base.data, RulesData)
    return replace(
        base,
        table="table4-best",
        data=replace(base.data, scored_as="categorical"),
        network=EquivariantLearner(),
        schedule=Schedule(
            epochs=60 if base.data.train < 9000 else 30,
            batch=250,
            learning_rate=3e-3,
            cooldown=0.2,
            softness=10.0,
            evaluations=15,
        ),
    )


QUICK_SCENARIOS = ("n2-2250-random",)


def quick(scenario: str, loss: Loss, seed: int) -> Config:
    """Fewer epochs: enough to see which losses can do without an order."""
    base = paper(scenario, loss, seed)
    return replace(
        base,
        table="table4-quick",
        schedule=replace(base.schedule, epochs=60, learning_rate=2e-3, evaluations=10),
    )
