"""``python -m tests.fuzz FORMAT``: damage small volumes in many ways, and see that readers refuse them or are right.

Each case is repeatable from its format, seed and number. The exit code is 1 if there is any finding: a crash, a hang of
over 5 s, an error that is not ``VolumeError``, memory far beyond what was allowed, anything printed or warned of by a
library, the patient's name, or a volume that is not what an independent reading of the files gives.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.case import FORMATS
from tests.fuzz.runner import Report, run

_COLUMNS = ("refused", "right", "hang", "crash", "wrong", "memory", "foreign error")
_MOST_IMPLAUSIBLE = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("format", choices=[*FORMATS, "all"])
    parser.add_argument("--cases", type=int, default=2000, help="how many per format (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the files of each finding there")
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.cases)
    reports = []
    for name in FORMATS if options.format == "all" else [options.format]:
        reports.append(run(name, options.seed, numbers, jobs=options.jobs, keep=options.keep))
        _print(reports[-1])
    print(_table(reports))
    return int(any(report.findings or report.bad_samples for report in reports))


def _print(report: Report) -> None:
    print(*report.told(), sep="\n")
    odd = [result for result in report.results if result.outcome.implausible]
    for result in odd[:_MOST_IMPLAUSIBLE]:
        print(f"implausible, but read (case {result.number}): {result.outcome.implausible}")
    print(f"{report.format}: {len(report.results)} cases in {report.seconds:.0f} s", flush=True)


def _table(reports: Sequence[Report]) -> str:
    """A Markdown table of what came of the cases."""
    columns = ("format", "cases", *_COLUMNS, "other findings", "longest (s)", "most memory (MiB)")
    lines = [columns, ["---"] * len(columns)]
    for report in reports:
        counts = report.counts()
        told = [counts[kind] for kind in _COLUMNS]
        others = len(report.results) - sum(told)
        most = f"{report.most('seconds'):.2f}", f"{report.most('growth_bytes') / (1 << 20):.0f}"
        lines.append([report.format, *map(str, (len(report.results), *told, others)), *most])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
