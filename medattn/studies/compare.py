"""``scripts/compare.py``: a configured study from start to report."""

from __future__ import annotations

import shlex

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from medattn.studies.checks import check_settings
from medattn.studies.plan import compose_arms, study_settings
from medattn.studies.report import format_results_table, write_report
from medattn.studies.runner import run_study
from medattn.volumes import FetchError

USER_ERRORS = (ValueError, OSError, FetchError, HydraException, OmegaConfBaseException)


def compare(config: DictConfig) -> int:
    """Run the study that ``config`` composes; returns the exit code, 1 if a run failed."""
    console = Console()
    settings = study_settings(config)
    check_settings(settings)
    arms = compose_arms(config)
    command = shlex.join(["python", "scripts/compare.py", *HydraConfig.get().overrides.task])
    study_dir, failures = run_study(settings, arms, console, command)
    report = write_report(study_dir)
    console.print(format_results_table(study_dir), highlight=False, markup=False, soft_wrap=True)
    for failure in failures:
        console.print(f"failed: {failure}", style="red", highlight=False)
    if failures:
        console.print("run the same command again to repeat the failed runs", highlight=False)
    console.print(f"results: {study_dir / 'results.csv'}\nreport:  {report}", highlight=False, soft_wrap=True)
    return 1 if failures else 0


def main(config: DictConfig) -> int:
    """``compare`` for the command line: what the user can mend is one line on stderr and exit code 2; Ctrl-C is 130."""
    try:
        return compare(config)
    except USER_ERRORS as error:
        Console(stderr=True).print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; run the same command again to continue", style="yellow")
        return 130
