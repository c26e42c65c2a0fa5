"""Facts of one's own: a family tree, and the rule of grandparents learned from its clauses.

Two couples with three children each, who have six each, make 72 clauses: from the head
grandparent(X, Z) a network learns the set {parent(X, Y), parent(Y, Z)}, in any order. Eight clauses
are held out. The command ``setwise reproduce table4 --facts FILE --rule RULE`` does the same.

    python examples/own_facts.py --quick  # some seconds; part of the test suite
    python examples/own_facts.py          # a CPU minute. This is what it printed:

        right: 1.00 of the clauses trained on, 0.38 of those held out
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from setwise.experiments import run
from setwise.experiments.recipes import EXPERIMENTS
from setwise.experiments.recipes.own_facts import OwnFacts, on_own_facts

RULE = "grandparent(X,Z) :- parent(X,Y), parent(Y,Z)"
CHILDREN = [f"parent({who}{c},c{c}{k})." for c in range(2) for who in "fm" for k in range(3)]
GRANDCHILDREN = [
    f"parent(c{c}{k},g{c}{k}{z})." for c in range(2) for k in range(3) for z in range(6)
]


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train, and print the shares of clauses that are right, which are returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few epochs")
    epochs = 20 if parser.parse_args(arguments).quick else None
    with TemporaryDirectory() as folder:
        facts = Path(folder) / "family.pl"
        facts.write_text("\n".join([*CHILDREN, *GRANDCHILDREN]))
        own = OwnFacts.read(facts, rule=RULE)
        family = on_own_facts(EXPERIMENTS["table4-quick"], own, (64, 8), epochs)
        places = {"results": Path(folder), "runs": None}
        (record,) = run(family, "cpu", losses=["set_cross_entropy"], **places)
    found = {part: record["metrics"][part] for part in ("train", "heldout")}
    print(
        f"right: {found['train']:.2f} of the clauses trained on, {found['heldout']:.2f} of those "
        f"held out"
    )
    return found


if __name__ == "__main__":
    main()
