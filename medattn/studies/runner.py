"""Running a study: prepare the data once, carry out the runs that are not finished, write the table and the report."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import queue
import signal
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from medattn.studies import store, worker
from medattn.studies.build import build_data, build_model, build_subject
from medattn.studies.controls import check_controls
from medattn.studies.design import describe_design
from medattn.studies.evaluation import lookup_rows
from medattn.studies.plan import Arm, Run, plan_runs
from medattn.studies.progress import StudyProgress, preparation_progress
from medattn.tasks.subject import paired_classes

_events: Any = None  # in a worker process: the queue to the display


def run_study(settings: dict[str, Any], arms: list[Arm], console: Console, command: str = "") -> tuple[Path, list[str]]:
    """Carry out a study; finished runs are skipped, killed ones continue.

    Args:
        settings: the study's whole config as plain containers.
        arms: from ``compose_arms``.
        command: how it was called, for the report.

    Returns:
        (study folder, failures: one line per run that failed).
    """
    torch.set_num_threads(settings["threads"])
    study_dir = Path(settings["output_dir"]) / settings["study"]
    study_dir.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        runs, plan, baselines = _prepare(settings, arms, console)
    plan |= {"warnings": worker.own_warnings(caught), "command": command}
    for message in plan["warnings"]:
        console.print(f"warning: {message}", style="yellow", highlight=False)
    store.write_yaml(study_dir / "config.yaml", settings)
    store.write_json(study_dir / "plan.json", plan)
    failures = _carry_out(study_dir, settings, runs, console)
    store.collect_results(study_dir, runs, baselines)
    plan["controls"] = check_controls([store.read_run(study_dir / run.directory) for run in runs])
    store.write_json(study_dir / "plan.json", plan)
    return study_dir, failures


def _prepare(
    settings: dict[str, Any], arms: list[Arm], console: Console
) -> tuple[list[Run], dict[str, Any], list[dict[str, Any]]]:
    """Every arm built once (so that its mistakes show now), data in the cache, runs planned, baselines scored."""
    subject, notes = build_subject(settings["data"])
    for arm in arms:
        build_model(arm.config, len(subject.class_names) + 1, seed=0)
    with preparation_progress(console) as bar:
        task = bar.add_task("acquiring the subject", total=None)
        data = build_data(subject, settings, lambda done, total: bar.update(task, completed=done, total=total))
    runs = plan_runs(arms, settings["seeds"], subject.fingerprint)
    notes.append(f"fingerprint of the data (SHA-256): {subject.fingerprint}")
    baselines = lookup_rows(data, settings, settings["study"])
    return runs, _plan(settings, arms, runs, notes, data.class_names), baselines


def _plan(
    settings: dict[str, Any], arms: list[Arm], runs: list[Run], notes: list[str], class_names: tuple[str, ...]
) -> dict[str, Any]:
    """What the report needs to know besides the results."""
    sides = {n: pair for pair, members in paired_classes(class_names).items() for n in members}
    evaluations = settings["evaluation"]["acquisitions"]
    created = datetime.datetime.now().astimezone().isoformat("T", "seconds")
    return {
        "study": settings["study"],
        **settings["report"],
        "arms": [_arm_entry(arm, [run for run in runs if run.arm == arm.name]) for arm in arms],
        "baselines": BASELINES,
        "design": describe_design(settings),
        "seeds": settings["seeds"],
        "evaluations": [{"name": name, **item} for name, item in evaluations.items()],
        "classes": [{"label": n, "name": name, "pair": sides.get(n)} for n, name in enumerate(class_names, start=1)],
        "notes": notes,
        "warnings": [],
        "controls": {},
        "environment": {**store.environment(), "created": created},
    }


BASELINES = [
    {
        "name": "lookup",
        "title": "image-free lookup, jittered frame",
        "description": "The likeliest label at each place without seeing a voxel, under the arms' own jitter. Votes "
        "are divided by the square root of each label's total, which scores higher than the most frequent label.",
    },
    {
        "name": "lookup_exact",
        "title": "image-free lookup, exact frame",
        "description": "The most frequent label where positions are exact: what an arm could reach by memory alone.",
    },
]


def _arm_entry(arm: Arm, runs: list[Run]) -> dict[str, Any]:
    return {
        "name": arm.name,
        "title": arm.title,
        "description": arm.description,
        "encoding": arm.config["encoding"]["name"],
        "frame": arm.config["frame"]["name"],
        "spacing_token": arm.config["spacing_token"],
        "config_hash": runs[0].identity,
        "run_dirs": {str(run.seed): str(run.directory) for run in runs},
    }


def _carry_out(study_dir: Path, settings: dict[str, Any], runs: list[Run], console: Console) -> list[str]:
    """Run what is not finished; a failure is recorded and the others go on."""
    todo = [run for run in runs if not store.is_finished(study_dir, run)]
    if len(todo) < len(runs):
        console.print(f"{len(runs) - len(todo)} of {len(runs)} runs are finished already and are kept", highlight=False)
    if not todo:
        return []
    failures: list[str] = []
    totals = {run.key: worker.total_units(run) for run in todo}
    with StudyProgress(console, len(todo), sum(totals.values())) as display:

        def on_progress(key: str, units: int, status: str) -> None:
            display.update(key, totals[key], units, status)

        def on_end(run: Run, error: BaseException | None) -> None:
            if error is None:
                display.finish(run.key, totals[run.key], "finished")
            else:
                failures.append(f"{run.key}: {store.fail_run(study_dir, run, error)['failure']}")
                display.finish(run.key, totals[run.key], f"failed, {failures[-1]}")

        start = _one_by_one if min(settings["workers"], len(todo)) == 1 else _side_by_side
        start(study_dir, settings, todo, on_progress, on_end)
    return failures


OnEnd = Callable[[Run, BaseException | None], None]


def _one_by_one(
    study_dir: Path, settings: dict[str, Any], runs: list[Run], on_progress: worker.OnProgress, on_end: OnEnd
) -> None:
    for run in runs:
        try:
            worker.execute(study_dir, settings["study"], run, settings["threads"], on_progress)
        except Exception as error:
            on_end(run, error)
        else:
            on_end(run, None)


def _side_by_side(
    study_dir: Path, settings: dict[str, Any], runs: list[Run], on_progress: worker.OnProgress, on_end: OnEnd
) -> None:
    """Runs in worker processes; their progress comes back through a queue that a thread empties.

    If a worker dies (out of memory, killed), its pool is lost with all its runs and nothing says whose fault it was:
    they are repeated in pools of their own, from their checkpoints, so that only the one that dies again has failed.
    """
    context = multiprocessing.get_context("spawn")
    events = context.Queue()
    stop = threading.Event()
    pump = threading.Thread(target=_pump, args=(events, on_progress, stop), daemon=True)
    pump.start()
    try:
        lost = _in_pool(settings["workers"], runs, study_dir, settings, events, on_end, retry=True)
        for run in lost:
            _in_pool(1, [run], study_dir, settings, events, on_end, retry=False)
    finally:
        stop.set()
        pump.join()


def _in_pool(
    workers: int, runs: list[Run], study_dir: Path, settings: dict[str, Any], events: Any, on_end: OnEnd, *, retry: bool
) -> list[Run]:
    """Carry out ``runs``; returns those to ``retry`` because a worker died."""
    lost = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_connect, initargs=(events,)) as pool:
        futures: dict[Future[None], Run] = {
            pool.submit(_execute_in_worker, study_dir, settings["study"], run, settings["threads"]): run for run in runs
        }
        try:
            for future in as_completed(futures):
                error = future.exception()
                if retry and isinstance(error, BrokenProcessPool):
                    lost.append(futures[future])
                else:
                    on_end(futures[future], error)
        except BaseException:  # Ctrl-C: do not wait for runs in the middle, they continue from their checkpoints
            for child in multiprocessing.active_children():
                child.terminate()
            raise
    return lost


def _connect(events: Any) -> None:
    """Start of a worker process: know the queue, and end with the study, however that ends."""
    global _events
    _events = events
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed study must not leave workers computing: their results could clash with those of its next start."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _execute_in_worker(study_dir: Path, study: str, run: Run, threads: int) -> None:
    worker.execute(study_dir, study, run, threads, lambda *event: _events.put(event))


def _pump(events: Any, on_progress: worker.OnProgress, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            on_progress(*events.get(timeout=0.2))
        except queue.Empty:
            continue
