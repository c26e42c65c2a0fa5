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

# The temperature of the set cross entropy falls at first: it decides whether an output stands for
# the same part of all bodies, which is what carries over to clauses not seen.
_FEW = Schedule(
    epochs=120, batch=25, learning_rate=3e-3, cooldown=0.2, softness=3.0, evaluations=20
)
# Bodies of five terms go on improving for longer.
_FEW_OF_FIVE = replace(_FEW, epochs=240)
_MANY = replace(_FEW, epochs=200, batch=100)
SCENARIOS = {
    f"n{n}-{train}-{order}": (RulesData(n=n, train=train, test=test), schedule, order)
    for n, train, test, schedule in [
        (2, 2250, 250, _FEW),
        (3, 2250, 250, _FEW),
        (4, 2250, 250, _FEW),
        (4, 9000, 1000, _MANY),
        (5, 2250, 250, _FEW_OF_FIVE),
        (5, 9000, 1000, _MANY),
    ]
    for order in ("fixed", "random")
}


def paper(scenario: str, loss: Loss, seed: int) -> Config:
    data, schedule, order = SCENARIOS[scenario]
    return Config(
        table="table4",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=order == "random",
        data=data,
        network=RuleLearner(dropout=0.2),
        schedule=schedule,
    )


def unannealed(scenario: str, loss: Loss, seed: int) -> Config:
    """The same with the set cross entropy as it is from the start; the others do not differ."""
    base = paper(scenario, loss, seed)
    return replace(base, table="table4-unannealed", schedule=replace(base.schedule, softness=1.0))


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
        schedule=Schedule(epochs=60, batch=250, learning_rate=2e-3, cooldown=0.2, evaluations=10),
    )
