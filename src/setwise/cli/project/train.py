"""From the columns of a row to its set of objects: a network in plain PyTorch, to be changed.

python train.py
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import setwise as sw
from setwise.data import Schema, read_rows

FOLDER = Path(__file__).parent


def main() -> float:
    """Train, save the network, and print which share of the held-out sets is right."""
    config = tomllib.loads((FOLDER / "config.toml").read_text(encoding="utf-8"))
    rows = read_rows(FOLDER / config["data"])
    sets = [row[config["target"]] for row in rows]
    inputs = [{name: row[name] for name in config["inputs"]} for row in rows]

    # What an element is, and what a row is, inferred from the values: print them to see.
    element = Schema.infer("elements", [one for objects in sets for one in objects])
    features = element.features
    read = Schema.infer("inputs", inputs, few_are_classes=False).encode(inputs)
    targets, valid = sw.mask_sets([element.encode(objects) for objects in sets])

    torch.manual_seed(config["seed"])
    order = torch.randperm(len(rows))
    held_out, seen = order[: config["held_out"]], order[config["held_out"] :]
    # One number more for each output: the logit that it exists.
    size, numbers, width = targets.shape[1], features.width + 1, config["width"]
    model = nn.Sequential(
        *(nn.Linear(read.shape[-1], width), nn.LayerNorm(width), nn.ReLU()),
        *(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()),
        *(nn.Linear(width, size * numbers), nn.Unflatten(-1, (size, numbers))),
    )
    optimizer = torch.optim.Adam(model.parameters())
    steps = config["steps"]
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in range(steps):
        batch = seen[torch.randint(len(seen), (64,))]
        output = model(read[batch])
        loss = sw.set_likelihood(
            output[..., :-1],
            targets[batch],
            features,
            presence=output[..., -1],
            target_valid=valid[batch],
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step:5}  loss {loss.item():8.3f}")

    with torch.no_grad():
        output = model(read[held_out])
    exact = sw.metrics.multiset_equality(
        output[..., :-1],
        targets[held_out],
        features,
        tolerance=0.25,
        presence=output[..., -1],
        target_valid=valid[held_out],
    ).item()
    save_file(model.state_dict(), FOLDER / "network.safetensors")
    print(f"{exact:.2f} of {len(held_out)} held-out sets are right")
    return float(exact)


if __name__ == "__main__":
    main()
