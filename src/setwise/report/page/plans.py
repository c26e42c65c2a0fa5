"""Plans that were recorded by ``setwise plan --record``, to be gone through step by step."""

from __future__ import annotations

from pathlib import Path

from setwise.experiments.records import upgraded
from setwise.outside import read_json
from setwise.report.page.pieces import (
    Markup,
    Section,
    command,
    joined,
    paragraph,
    steps,
    subheading,
)
from setwise.report.page.provenance import provenance, source_of
from setwise.report.records import Kinds, numbered_pictures, require

FOLDER = "plans"
EXAMPLES = (
    "setwise plan puzzle --steps 14 --seed 3 --record results/plans",
    "setwise plan blocksworld --steps 7 --record results/plans",
)
_PLAN: Kinds = {
    **{"captions": list, "network": dict, "environment": dict},
    **{"domain": str, "verdict": str, "command": str},
}


def plans_section(results: Path) -> Section:
    """All plans of a folder of results, or how to have one."""
    said = (
        "A set autoencoder turns each state into a string of bits, Fast Downward finds a shortest "
        "way between two strings, and the strings on the way are decoded into objects again. "
        "What is drawn is what was decoded; the verdict comes from the rules of the world alone."
    )
    parts = [paragraph(said)]
    # Names that begin with a dot are of plans that are being written, or never were to the end.
    found = sorted(path.parent for path in (results / FOLDER).glob("[!.]*/plan.json"))
    parts += [_plan(folder) for folder in found]
    if not found:
        parts += [paragraph("No plans are recorded yet."), command("\n".join(EXAMPLES))]
    return Section("plans", "Plans, step by step", joined(parts), short="Plans")


def _plan(folder: Path) -> Markup:
    try:
        plan = read_json(folder / "plan.json")
        require(plan, _PLAN)
        captions = [str(caption) for caption in plan["captions"]]
        pictures = numbered_pictures(folder, len(captions))
        network, made = upgraded(plan["network"]), plan["environment"]
        told = (
            f"Codes of a network trained with {network['loss']}, seed {network['seed']}, in "
            f"scenario {network['scenario']} of {network['experiment']}. Checked: "
            f"{plan['verdict']}."
        )
        name = f"{plan['domain']}, {len(captions) - 1} steps"
        source = source_of(plan, made, f"a plan over the codes of {network['file']}")
        parts = [subheading(folder.name), paragraph(told), steps(name, pictures, captions)]
        parts.append(provenance([plan["command"]], [source], folder.name, level=4))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'plan.json'}: not a plan: {error!r}") from error
    return joined(parts)
