"""The results table for the terminal."""

from __future__ import annotations

import io
import math
import shutil

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from medattn.studies.findings import what_seeds_can_show
from medattn.studies.report_tables import NOTHING
from medattn.studies.study_files import Study
from medattn.studies.summary import Scores

NARROWEST, ROOMY, WIDEST = 80, 100, 120


def render_tables(study: Study, dice: Scores, sides: Scores, width: int | None = None) -> str:
    """Merged Dice and left/right confusion, means over seeds, as text; nothing is marked as best."""
    columns = width or min(max(shutil.get_terminal_size((WIDEST, 24)).columns, NARROWEST), WIDEST)
    console = Console(file=io.StringIO(), width=columns, color_system=None, highlight=False)
    tables = [_table(study, scores, roomy=columns >= ROOMY) for scores in (dice, sides)]
    with console.capture() as capture:
        console.print(Group(*tables, Text(_notes(study))))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _table(study: Study, scores: Scores, roomy: bool) -> Table:
    table = Table(
        title=f"{scores.title}, mean over seeds",
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        padding=(0, 1 if roomy else 0, 0, 0),
    )
    table.add_column("arm", overflow="fold")
    for evaluation in study.evaluations:
        table.add_column(evaluation["name"], justify="right", overflow="fold")
    for entries in (study.arms, study.baselines):
        for entry in entries:
            means = [scores.mean(entry["name"], e["name"]) for e in study.evaluations]
            texts = (NOTHING if math.isnan(mean) else f"{mean:.2f}" for mean in means)
            table.add_row(entry["name"], *texts)
        table.add_section()
    return table


def _notes(study: Study) -> str:
    """How many runs finished, whose means are of fewer seeds, and what so many seeds can show."""
    looks = len(study.plan.get("comparisons", [])) * len(study.evaluations)
    lacking = [f"{run.arm} seed {run.seed}" for run in study.unfinished]
    without = f" Not finished: {', '.join(lacking)}." if lacking else ""
    finished = len(study.runs) - len(lacking)
    return f"{finished} of {len(study.runs)} runs finished.{without} {what_seeds_can_show(len(study.seeds), looks)}"
