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

NARROWEST, WIDEST = 80, 120


def render_tables(study: Study, dice: Scores, sides: Scores, width: int | None = None) -> str:
    """Merged Dice and left/right confusion, means over seeds, as text; nothing is marked as best."""
    columns = width or min(max(shutil.get_terminal_size((WIDEST, 24)).columns, NARROWEST), WIDEST)
    console = Console(file=io.StringIO(), width=columns, color_system=None, highlight=False)
    finished = len(study.runs) - len(study.unfinished)
    seeds = f"mean of {len(study.seeds)} seed{'s' if len(study.seeds) != 1 else ''}"
    notes = Text(f"{finished} of {len(study.runs)} runs finished. {what_seeds_can_show(len(study.seeds), _looks(study))}")
    tables = [_table(study, scores, seeds) for scores in (dice, sides)]
    with console.capture() as capture:
        console.print(Group(*tables, notes))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _looks(study: Study) -> int:
    return len(study.plan.get("comparisons", [])) * len(study.evaluations)


def _table(study: Study, scores: Scores, seeds: str) -> Table:
    table = Table(title=f"{scores.title}, {seeds}", title_justify="left", title_style="", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("arm")
    for evaluation in study.evaluations:
        table.add_column(evaluation["name"], justify="right")
    for entry in (*study.arms, *study.baselines):
        if entry == (study.baselines or [None])[0]:
            table.add_section()
        means = [scores.mean(entry["name"], e["name"]) for e in study.evaluations]
        table.add_row(entry["title"], *(NOTHING if math.isnan(mean) else f"{mean:.2f}" for mean in means))
    return table
