"""Do the arms of a study differ in nothing but what they claim? Checked on what the runs recorded."""

from __future__ import annotations

from typing import Any


def check_controls(records: list[dict[str, Any]]) -> dict[str, str]:
    """Statement -> "yes", "no" or what was found, over the finished runs' ``run.json``."""
    finished = [record for record in records if record.get("status") == "finished"]
    if not finished:
        return {"finished runs": "none, nothing to check"}
    parameters = {record["arm"]: record["parameters"] for record in finished}
    shared = {record["arm"]: record["parameters"] - record["parameters_position"] for record in finished}
    return {
        "same initial weights of the shared parts, seed by seed": _equal_by_seed(finished, "initial_weights"),
        "same training data in the same order, seed by seed": _equal_by_seed(finished, "data_digest"),
        "same code (git commit) and packages": _same_code(finished),
        "same number of steps": _all_equal([record["steps"] for record in finished]),
        "same number of parameters but for position": _all_equal(list(shared.values())),
        "same number of parameters in all": _all_equal(list(parameters.values()), parameters),
    }


def _equal_by_seed(records: list[dict[str, Any]], key: str) -> str:
    seeds = sorted({record["seed"] for record in records})
    differing = [s for s in seeds if len({r[key] for r in records if r["seed"] == s}) > 1]
    return f"no: seeds {differing} differ" if differing else f"yes ({len(records)} runs, {len(seeds)} seeds)"


def _same_code(records: list[dict[str, Any]]) -> str:
    commits = sorted({record["git_commit"] for record in records})
    versions = {tuple(sorted(record["versions"].items())) for record in records}
    if len(commits) > 1:
        return f"no: runs were made at {', '.join(commits)}"
    return f"yes ({commits[0]})" if len(versions) == 1 else "no: package versions differ, see each run.json"


def _all_equal(values: list[int], by_arm: dict[str, int] | None = None) -> str:
    if len(set(values)) == 1:
        return f"yes ({values[0]:,})"
    return "no: " + ", ".join(f"{arm} {n:,}" for arm, n in by_arm.items()) if by_arm else "no"
