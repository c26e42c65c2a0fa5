"""Training with Lightning on any number of processes: losses and metrics as they are.

The network and the data are those of ``torchrun.py`` beside this file, which is the same training
by hand: a network is told how often each digit is in a bag, and puts out the bag. Metrics are
attributes of the module, so that Lightning moves, resets and logs them; they add up their counts
over processes themselves.

    python examples/lightning_training.py --quick --devices 2  # two processes, some seconds
    python examples/lightning_training.py --quick    # one process, the same numbers
    python examples/lightning_training.py            # half a CPU minute. This is what it printed:

        loss -0.2454, bags that come out exactly 0.977
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

import setwise as sw

sys.path.insert(0, str(Path(__file__).parent))
from torchrun import BATCH, EPOCHS, FEATURES, Bags, network

Batch = tuple[Tensor, Tensor, Tensor]


class Unpacking(lightning.LightningModule):
    """From the counts of digits to the bag."""

    def __init__(self, bags: Bags, unseen: Bags) -> None:
        super().__init__()
        self.bags, self.unseen = bags, unseen
        self.model = network()
        self.right = sw.metrics.MultisetEquality(FEATURES)
        self.losses: list[float] = []

    def training_step(self, batch: Batch) -> Tensor:
        counts, bag, valid = batch
        elements, presence = self.model(counts)
        loss = sw.set_likelihood(elements, bag, FEATURES, presence=presence, target_valid=valid)
        whole = self.trainer.strategy.reduce(loss.detach(), reduce_op="mean")
        self.losses.append(float(whole))
        return loss

    def validation_step(self, batch: Batch) -> None:
        counts, bag, valid = batch
        elements, presence = self.model(counts)
        self.right.update(elements, bag, presence=presence, target_valid=valid)
        self.log("right", self.right, on_epoch=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 2e-3)

    def train_dataloader(self) -> DataLoader[Any]:
        ranks, rank = self.trainer.world_size, self.trainer.global_rank
        # That of PyTorch on one process, too, so that batches are the same; Lightning tells it the
        # epoch.
        sampler = DistributedSampler(self.bags, ranks, rank, drop_last=True)
        options = {"sampler": sampler, "collate_fn": sw.collate_sets}
        return DataLoader(self.bags, BATCH // ranks, **options)

    def val_dataloader(self) -> DataLoader[Any]:
        ranks, rank = self.trainer.world_size, self.trainer.global_rank
        part = [self.unseen[index] for index in range(rank, len(self.unseen), ranks)]
        return DataLoader(part, BATCH, collate_fn=sw.collate_sets)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train, and print what the network has learned; its losses are returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--devices", type=int, default=1, help="processes")
    parser.add_argument("--output", type=Path, help="a file for the losses, as JSON")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    module = Unpacking(Bags(256 if options.quick else 2048, 0), Bags(301, 1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.devices,
        strategy="ddp" if options.devices > 1 else "auto",
        max_epochs=3 if options.quick else EPOCHS,
        check_val_every_n_epoch=3 if options.quick else EPOCHS,
        use_distributed_sampler=False,  # ours is
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module)
    right = trainer.callback_metrics["right"].item()
    found = {"losses": module.losses, "right": right}
    if trainer.is_global_zero:
        print(f"loss {module.losses[-1]:.4f}, bags that come out exactly {right:.3f}")
        if options.output is not None:
            options.output.write_text(json.dumps(found))
    return found


if __name__ == "__main__":
    main()
