"""What a study promised and lacks, what was warned of, and what code made it."""

from __future__ import annotations

from medattn.studies.study_files import RunFile, Study, read_slice


def problems(study: Study) -> list[str]:
    """Everything that the plan promises and the folder lacks, one sentence each."""
    found = [_unfinished(study, run) for run in study.unfinished]
    found += _missing_rows(study) + _missing_examples(study)
    if study.left_out:
        found.append(f"{study.left_out} rows of results.csv belong to no finished run of this plan and were left out.")
    if not study.config_text:
        found.append("config.yaml is missing, so the settings cannot be shown.")
    return found


def _name(study: Study, run: RunFile) -> str:
    return f"{study.titles[run.arm]}, seed {run.seed}"


def _unfinished(study: Study, run: RunFile) -> str:
    if run.status == "missing":
        return f"{_name(study, run)}: missing; there is no run.json in {run.directory}."
    trace = run.record.get("failure_file")
    reason = run.record.get("failure") or "No reason was recorded."
    return f"{_name(study, run)}: {run.status}. {reason}" + (f" Traceback: {trace}." if trace else "")


def _missing_rows(study: Study) -> list[str]:
    """Finished runs and baselines that ``results.csv`` lacks, wholly or at some evaluations."""
    table = study.results
    present = set(zip(table["arm"], table["seed"], table["evaluation"], strict=True))
    scored = {(arm, evaluation) for arm, _, evaluation in present}
    found = []
    for run in (run for run in study.runs if run.status == "finished"):
        lacking = [e["title"] for e in study.evaluations if (run.arm, run.seed, e["name"]) not in present]
        if lacking:
            found.append(f"{_name(study, run)}: finished, but results.csv has no row of {_listed(study, lacking)}.")
    for entry in study.baselines:
        lacking = [e["title"] for e in study.evaluations if (entry["name"], e["name"]) not in scored]
        if lacking:
            found.append(f"{entry['title']}: results.csv has no row of {_listed(study, lacking)}.")
    return found


def _missing_examples(study: Study) -> list[str]:
    """Finished runs of the shown seed that kept no usable example of some evaluation."""
    found = []
    for run in study.runs:
        if run.seed == example_seed(study) and run.status == "finished":
            lacking = [e["title"] for e in study.evaluations if read_slice(study.folder, run, e["name"]) is None]
            if lacking:
                found.append(f"{_name(study, run)}: no example slice of {_listed(study, lacking)}.")
    return found


def _listed(study: Study, titles: list[str]) -> str:
    return "any evaluation" if len(titles) == len(study.evaluations) else "; ".join(titles)


def example_seed(study: Study) -> int:
    """The seed whose slices are shown: the first."""
    return study.seeds[0]


def run_warnings(study: Study) -> list[str]:
    """Warnings of the study, then those of its runs with the runs that raised them."""
    by_message: dict[str, list[str]] = {}
    for run in study.runs:
        for message in run.record.get("warnings", []):
            by_message.setdefault(message, []).append(f"{study.titles[run.arm]}, seed {run.seed}")
    return [*study.plan.get("warnings", []), *(f"{m} ({'; '.join(runs)})" for m, runs in by_message.items())]


def code_versions(study: Study) -> list[str]:
    """The commits that the runs were made with, the plan's first."""
    planned = study.plan.get("environment", {}).get("git_commit")
    commits = [planned, *(run.record.get("git_commit") for run in study.runs)]
    return list(dict.fromkeys(commit for commit in commits if commit))
