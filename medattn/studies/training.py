"""Training one run: every step a function of (config, seed, step), so that a killed run continues bit for bit."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from monai.losses import DiceCELoss
from torch import Tensor

from medattn.files import replacing
from medattn.models import SegmentationModel
from medattn.studies.build import Config
from medattn.tasks.sampling import CropSampler, Example, generator_for, training_batch
from medattn.tasks.subject import Scan

LOSS_POINTS = 100  # points kept of each loss curve


def learning_rate(step: int, train: Config) -> float:
    """Linear warm-up to ``learning_rate``, then a cosine down to ``final_lr_fraction`` of it at the last step."""
    peak, warmup, total = train["learning_rate"], train["warmup_steps"], train["steps"]
    if step < warmup:
        return float(peak * (step + 1) / warmup)
    progress = (step - warmup) / max(total - 1 - warmup, 1)
    floor = train["final_lr_fraction"]
    return float(peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2))


def batch_loss(model: SegmentationModel, batch: Sequence[Example], criterion: Callable[..., Tensor]) -> Tensor:
    """Dice plus cross-entropy over the voxels of the whole batch taken as one set, so crops may differ in size."""
    scores = model(
        [example.image for example in batch],
        [example.told for example in batch],
        references=[example.reference for example in batch],
        origins_mm=[example.origin_mm for example in batch],
    )
    flat = torch.cat([score.flatten(1) for score in scores], dim=1)
    truth = torch.cat([example.labels.flatten() for example in batch])
    return criterion(flat[None], truth[None, None])


@dataclass
class Progress:
    """What a checkpoint holds besides weights and optimizer: plain values only."""

    step: int = 0
    seconds: float = 0.0
    data_digest: str = ""
    loss: list[list[float]] = field(default_factory=list)


def train(
    model: SegmentationModel,
    sampler: CropSampler,
    scans: Sequence[Scan],
    config: Config,
    seed: int,
    checkpoint: Path,
    on_step: Callable[[int, float], None],
) -> Progress:
    """Train ``model`` in place from where ``checkpoint`` left off, or from the start.

    Raises:
        FloatingPointError: if the loss is not finite.
    """
    settings = config["train"]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.0, weight_decay=settings["weight_decay"], betas=tuple(settings["betas"])
    )
    criterion = DiceCELoss(softmax=True, to_onehot_y=True, include_background=False)
    progress = _resume(checkpoint, model, optimizer)
    model.train()
    started = time.perf_counter() - progress.seconds
    while progress.step < settings["steps"]:
        batch = training_batch(sampler, scans, settings["batch_size"], seed, progress.step)
        loss = _update(model, optimizer, criterion, batch, progress.step, settings, seed)
        progress.data_digest = _digest(progress.data_digest, batch)
        _record(progress, loss, settings["steps"])
        progress.step += 1
        progress.seconds = time.perf_counter() - started
        on_step(progress.step, loss)
        if progress.step % settings["checkpoint_every"] == 0:
            _save(checkpoint, model, optimizer, progress)
    return progress


def _update(
    model: SegmentationModel,
    optimizer: torch.optim.Optimizer,
    criterion: Callable[..., Tensor],
    batch: Sequence[Example],
    step: int,
    settings: Config,
    seed: int,
) -> float:
    torch.manual_seed(generator_for("dropout", seed, step).initial_seed())
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, settings)
    loss = batch_loss(model, batch, criterion)
    if not bool(torch.isfinite(loss)):
        raise FloatingPointError(f"the loss is {loss.item()} at step {step}: lower train.learning_rate")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
    optimizer.step()
    return float(loss.detach())


def _digest(before: str, batch: Sequence[Example]) -> str:
    """Chain of what was shown: equal for two arms exactly if they saw the same voxels and labels in the same order."""
    digest = hashlib.sha256(before.encode())
    for example in batch:
        digest.update(example.labels.to(torch.uint8).contiguous().numpy().tobytes())
        digest.update(example.image.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _record(progress: Progress, loss: float, steps: int) -> None:
    if progress.step % max(steps // LOSS_POINTS, 1) == 0 or progress.step == steps - 1:
        progress.loss.append([progress.step, loss])


def _save(path: Path, model: SegmentationModel, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "progress": asdict(progress)}
    with replacing(path) as temporary:
        torch.save(state, temporary)


def _resume(path: Path, model: SegmentationModel, optimizer: torch.optim.Optimizer) -> Progress:
    if not path.is_file():
        return Progress()
    state: dict[str, Any] = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(**state["progress"])
