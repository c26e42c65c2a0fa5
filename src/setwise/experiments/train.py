"""Training an ensemble from its configs to its results.

Legend: K members, S examples, N elements, F features.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from setwise.executors import StoppedError
from setwise.experiments import checkpoint
from setwise.experiments.annealing import Annealing
from setwise.experiments.config import MEMBERWISE, Config
from setwise.experiments.context import THREADS, fixed_threads, training_context
from setwise.experiments.cuda_graph import Repeated
from setwise.experiments.ensemble import Batch, Ensemble, member_losses, require_like
from setwise.experiments.evaluate import Evaluator, RunResult, TrainingProgress
from setwise.experiments.progress import State, read_state
from setwise.experiments.recombine import Recombination
from setwise.experiments.tasks.task import DATA, Task
from setwise.losses.table import LOSSES
from setwise.models import annealed_temperature


class Training:
    """Configs that agree in all but `MEMBERWISE`, trained together on one device.

    With a path, the state is saved there about every ``save_every`` seconds and at the end, and a
    run that finds it goes on from there to the same results. Neither the device's speed nor the
    saving influence them: what a member draws, its orders, noise and dropout, depends on its own
    seed alone, and not on who is trained beside it. ``data`` is the folder of data sets that are
    files. ``metric`` is the number to compare, of which there are learning curves: one of those of
    the task's measure, by default its own, or ``heldout``, ``train`` or ``loss``.

    On CUDA a step is recorded once and replayed, and compiled first where the network says so. With
    ``plain`` it is neither, for comparison; see `setwise.experiments.cost`. Nor is it with a loss
    that cannot be recorded.

    On a CPU the results depend on the number of ``threads``, which is therefore not that of the
    cores but a setting; a training is only resumed with as many as it began with.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        device: str | torch.device,
        save_to: Path | None = None,
        save_every: float = 300.0,
        plain: bool = False,
        data: Path = DATA,
        metric: str | None = None,
        threads: int = THREADS,
    ) -> None:
        if not configs:
            raise ValueError("configs: expected at least one")
        if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
            raise ValueError(f"threads: expected a whole number, at least 1, got {threads!r}")
        for config in configs:
            if config.shared() != configs[0].shared():
                raise ValueError(
                    f"configs: those of one ensemble may differ in {', '.join(MEMBERWISE)} only; "
                    f"train others apart"
                )
        # Members with the same loss become neighbours and share its computation.
        self.configs = sorted(configs, key=lambda c: (c.loss, c.scenario, c.seed, c.identity))
        # What `run` took, together with the interrupted runs that it went on from.
        self.seconds = 0.0
        self._device = torch.device(device)
        self.threads = threads
        self._save_to, self._save_every = save_to, save_every
        self._schedule = configs[0].schedule
        with fixed_threads(self._device, threads):
            task = configs[0].data.load(data, self._device)
        if task.train < self._schedule.batch:
            raise ValueError(
                f"schedule: a batch of {self._schedule.batch} is more than the {task.train} "
                f"examples to train on"
            )
        with fixed_threads(self._device, threads):
            networks = [build_network(config, task) for config in self.configs]
        share, donors = self._schedule.recombined, self._schedule.donors
        recombine = Recombination(task, share, donors, self._device) if share else None
        self.task = task.to(self._device)
        self.ensemble = Ensemble(networks, self._device, self._schedule.learning_rate)
        self._batch = Batch(self.configs, self.task, recombine)
        self._evaluator = Evaluator(self.ensemble, self.task, self.configs, metric)
        self._names = [config.loss for config in self.configs]
        schedule = self._schedule
        self._latent_temperature = torch.tensor(
            schedule.latent_temperature_start, device=self._device
        )
        self._annealing = Annealing(schedule, self.task)
        self._losses = torch.zeros(len(self.configs), device=self._device)
        self._forward = self._member_losses
        recordable = all(LOSSES[name].capturable for name in self._names)
        on_cuda = self._device.type == "cuda" and not plain and recordable
        if on_cuda and configs[0].network.compiled:
            # Forget earlier ensembles: past a few of them PyTorch would stop compiling, silently.
            torch.compiler.reset()
            self._forward = torch.compile(
                self._member_losses, dynamic=False, options=_compile_options()
            )
        self._step = Repeated(self._one_step, on_cuda)
        self._used = False

    def run(
        self,
        watch: Callable[[TrainingProgress], None] = lambda progress: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[RunResult]:
        """Train to the end; ``watch`` is called at every evaluation.

        ``stop`` is asked after every epoch, where a training can be resumed to the same results;
        if it says so, the state is saved and `StoppedError` raised.
        """
        if self._used:
            raise RuntimeError("this training has been used up; make another with the same configs")
        self._used = True
        with training_context(self._device, self.configs[0].precision, self.threads):
            state = self._resume()
            began = last_saved = time.perf_counter()
            before = state.seconds
            while state.epoch < self._schedule.epochs:
                self._run_epoch(state.epoch)
                state.epoch += 1
                if state.epoch in self._evaluator.epochs:
                    state.history.append(self._evaluator.point(state.epoch, self._losses))
                    state.seconds = before + time.perf_counter() - began
                    watch(self._evaluator.progress(state))
                stopped = stop()
                ended = state.epoch == self._schedule.epochs
                due = time.perf_counter() - last_saved > self._save_every
                if self._save_to and (stopped or ended or due):
                    state.seconds = before + time.perf_counter() - began
                    self._save(state)
                    last_saved = time.perf_counter()
                if stopped:
                    raise StoppedError
            results = self._evaluator.results(state, self._losses)
            self.seconds = before + time.perf_counter() - began
            return results

    def seconds_per_epoch(self, epochs: int) -> float:
        """What an epoch takes, once all is set up; the networks are worth nothing afterwards."""
        self._used = True
        with training_context(self._device, self.configs[0].precision, self.threads):
            for epoch in range(2 * epochs):
                if epoch == epochs:
                    self._losses.sum().item()  # waits for the device
                    began = time.perf_counter()
                self._run_epoch(epoch % self._schedule.epochs)
            self._losses.sum().item()
            return (time.perf_counter() - began) / epochs

    def _run_epoch(self, epoch: int) -> None:
        schedule = self._schedule
        progress = epoch / schedule.epochs
        self._latent_temperature.fill_(
            annealed_temperature(
                progress,
                schedule.latent_temperature_start,
                schedule.latent_temperature_end,
                schedule.latent_temperature_until,
            )
        )
        self._annealing.move(progress)
        left = 1.0 - progress
        cooled = min(1.0, left / schedule.cooldown) if schedule.cooldown else 1.0
        self.ensemble.rate.fill_(schedule.learning_rate * cooled)
        self._losses.zero_()
        self._batch.begin(epoch)
        for step in range(self._batch.steps):
            if progress < schedule.warmup:  # which may end within this epoch
                done = (epoch + (step + 1) / self._batch.steps) / schedule.epochs
                warmed = min(1.0, done / schedule.warmup)
                self.ensemble.rate.fill_(schedule.learning_rate * cooled * warmed)
            self._batch.move(step)
            self._step()

    def _one_step(self) -> None:
        keys = self._batch.noise_keys(self.ensemble.noisy_layers)
        losses = self._forward(*self._batch.draw(), keys)
        self.ensemble.descend(losses.sum())
        self._losses += losses.detach() / self._batch.steps

    def _member_losses(self, inputs: Tensor, targets: Tensor, keys: Tensor) -> Tensor:
        logits = self.ensemble(inputs, self._latent_temperature, keys)
        logits, targets = self._annealing.blurred(logits, targets)
        annealed = self._annealing.options()
        return member_losses(self._names, logits, targets, self.task.features, annealed)

    def _counted_threads(self) -> int | None:
        """As many as results depend on."""
        return self.threads if self._device.type == "cpu" else None

    def _save(self, state: State) -> None:
        assert self._save_to is not None
        meta = {
            "runs": [config.identity for config in self.configs],
            "learned": self.task.measure.learned,
            "threads": self._counted_threads(),
        } | state.as_dict()
        checkpoint.write(self._save_to, self.ensemble.tensors() | {"losses": self._losses}, meta)

    def _resume(self) -> State:
        if self._save_to is None or not os.path.lexists(self._save_to):
            return State()
        tensors, meta = checkpoint.read(self._save_to)
        if meta.get("runs") != [config.identity for config in self.configs]:
            raise ValueError(
                f"{self._save_to}: was saved by other runs; remove it or choose another path"
            )
        if meta.get("learned") != self.task.measure.learned:
            raise ValueError(
                f"{self._save_to}: began with data of which something else had been learned, such "
                f"as another patch autoencoder than the one that lies beside the pictures now; put "
                f"that one back, or remove the checkpoint"
            )
        # One that was saved before threads were counted does not tell.
        began = meta.get("threads", self._counted_threads())
        if (began is None) != (self._counted_threads() is None):
            raise ValueError(
                f"{self._save_to}: began on {'a GPU' if began is None else 'a CPU'}, and would end "
                f"in other results on {self._device.type}; go on there, or remove the checkpoint"
            )
        if began != self._counted_threads():
            raise ValueError(
                f"{self._save_to}: began with {began} threads, and would end in other results with "
                f"{self.threads}; go on with as many, or remove the checkpoint"
            )
        try:
            state = read_state(
                meta,
                self._schedule.epochs,
                self._evaluator.epochs,
                self._evaluator.columns,
                len(self.configs),
            )
            self._run_epoch(0)  # makes the tensors of the optimiser, which are then overwritten
            self._losses.copy_(require_like("losses", tensors.pop("losses", None), self._losses))
            self.ensemble.load(tensors)
        except ValueError as error:
            raise ValueError(
                f"{self._save_to}: {error}; remove it to begin this training anew"
            ) from error
        return state


def build_network(config: Config, task: Task, *, to_train: bool = True) -> nn.Module:
    """The network of a config, its weights drawn from the config's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)  # and no GPU's, as manual_seed would
        return config.network.build(task, to_train=to_train)


def _compile_options() -> dict[str, Any]:
    """Without kernels that are chosen by timing: another choice would round in another way."""
    from torch._inductor import config

    return {"deterministic": True} if hasattr(config, "deterministic") else {}
