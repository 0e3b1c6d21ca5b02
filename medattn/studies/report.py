"""The report of a study, computed from its files: one self-contained HTML file, and a table for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from medattn.files import write_text
from medattn.studies import report_problems
from medattn.studies import report_tables as tables
from medattn.studies.findings import compare, plateau, what_seeds_can_show
from medattn.studies.report_figures import make_figures
from medattn.studies.study_files import Study, read_study
from medattn.studies.summary import absences, class_dice, merged_dice, side_confusion
from medattn.studies.terminal import render_tables

TEMPLATES = Path(__file__).parent / "templates"


def write_report(study_dir: Path) -> Path:
    """Write ``report.html`` and ``figures/`` into a study folder; returns the report's path.

    Missing runs, results and examples are listed in the report.

    Raises:
        FileNotFoundError, ValueError: if the folder has no readable plan (see ``read_study``).
    """
    study = read_study(study_dir)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    path = study_dir / "report.html"
    write_text(path, environment.get_template("report.html.j2").render(report_values(study)))
    return path


def format_results_table(study_dir: Path, width: int | None = None) -> str:
    """Mean merged Dice and left/right confusion of each arm and baseline at each evaluation, as plain text.

    Args:
        width: columns of the text; the terminal's, between 80 and 120, by default.
    """
    study = read_study(study_dir)
    return render_tables(study, merged_dice(study.results), side_confusion(study.results), width)


def report_values(study: Study) -> dict[str, Any]:
    """Everything that the template shows."""
    dice, sides = merged_dice(study.results), side_confusion(study.results)
    comparisons = [compare(study, dice, sides, first, second) for first, second in study.plan.get("comparisons", [])]
    disturbed, costs = tables.cost_table(study, dice)
    looks = len(comparisons) * len(study.evaluations)
    return {
        "study": study,
        "plan": study.plan,
        "evaluations": [{**e, "kind_title": tables.kind_title(e)} for e in study.evaluations],
        "figures": make_figures(study, dice, sides, class_dice(study.results)),
        "finished": len(study.runs) - len(study.unfinished),
        "seeds_sentence": what_seeds_can_show(len(study.seeds), looks),
        "cases": study.results["case"].nunique(),
        "comparisons": comparisons,
        "dice_rows": tables.score_rows(study, dice),
        "side_rows": tables.score_rows(study, sides),
        "disturbed": disturbed,
        "disturbed_rows": costs,
        "difference_rows": tables.difference_rows(study, dice),
        "run_costs": tables.run_costs(study),
        "plateau": plateau(study.runs),
        "absences": absences(study),
        "problems": report_problems.problems(study),
        "warnings": report_problems.run_warnings(study),
        "commits": report_problems.code_versions(study),
    }
