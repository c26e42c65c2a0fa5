"""From the columns of a row to its set of objects: a network in Lightning, to be changed.

pip install lightning
python train.py
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import setwise as sw
from setwise.data import Schema, read_rows

FOLDER = Path(__file__).parent
BATCH = 64


class Predictor(lightning.LightningModule):
    """Inputs [B, I] to logits [B, N, F + 1]; the last number is the logit that an output exists."""

    def __init__(self, inputs: int, size: int, features: sw.Features, width: int) -> None:
        super().__init__()
        self.features, numbers = features, features.width + 1
        self.layers = nn.Sequential(
            *(nn.Linear(inputs, width), nn.LayerNorm(width), nn.ReLU()),
            *(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()),
            *(nn.Linear(width, size * numbers), nn.Unflatten(-1, (size, numbers))),
        )
        # An attribute, so that Lightning moves and resets it; numbers are right to a quarter of
        # their standard deviation.
        self.right = sw.metrics.MultisetEquality(features, tolerance=0.25)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        output = self.layers(inputs)
        return output[..., :-1], output[..., -1]

    def training_step(self, batch: list[Tensor]) -> Tensor:
        inputs, target, valid = batch
        elements, presence = self(inputs)
        loss = sw.set_likelihood(
            elements, target, self.features, presence=presence, target_valid=valid
        )
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[Tensor]) -> None:
        inputs, target, valid = batch
        elements, presence = self(inputs)
        self.right.update(elements, target, presence=presence, target_valid=valid)
        self.log("right", self.right, on_epoch=True, prog_bar=True)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        optimizer = torch.optim.Adam(self.parameters())
        steps = int(self.trainer.estimated_stepping_batches)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}


def main() -> float:
    """Train, save the network, and print which share of the held-out sets is right."""
    config = tomllib.loads((FOLDER / "config.toml").read_text(encoding="utf-8"))
    rows = read_rows(FOLDER / config["data"])
    sets = [row[config["target"]] for row in rows]
    inputs = [{name: row[name] for name in config["inputs"]} for row in rows]

    # What an element is, and what a row is, inferred from the values: print them to see.
    element = Schema.infer("elements", [one for objects in sets for one in objects])
    read = Schema.infer("inputs", inputs, few_are_classes=False).encode(inputs)
    targets, valid = sw.mask_sets([element.encode(objects) for objects in sets])

    lightning.seed_everything(config["seed"], verbose=False)
    order = torch.randperm(len(rows))
    held_out, seen = order[: config["held_out"]], order[config["held_out"] :]
    model = Predictor(read.shape[-1], targets.shape[1], element.features, config["width"])
    training, judging = (
        TensorDataset(read[part], targets[part], valid[part]) for part in (seen, held_out)
    )
    batches = DataLoader(training, BATCH, shuffle=True, drop_last=len(seen) > BATCH)
    trainer = lightning.Trainer(
        max_steps=config["steps"],
        max_epochs=-1,
        check_val_every_n_epoch=20,
        num_sanity_val_steps=0,
        accelerator="auto",
        devices=1,
        default_root_dir=FOLDER,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(model, batches, DataLoader(judging, BATCH))
    exact = trainer.validate(model, DataLoader(judging, BATCH), verbose=False)[0]["right"]
    save_file(model.layers.state_dict(), FOLDER / "network.safetensors")
    print(f"{exact:.2f} of {len(held_out)} held-out sets are right")
    return float(exact)


if __name__ == "__main__":
    main()
