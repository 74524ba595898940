"""Judges one run, on whichever machine has its rows.

Most runs are clean, and that can be seen of all deliveries at once (`Evidence.suspects`). What
cannot be seen to be clean goes to the judge, `faulttol.guarantees`, who gives the verdict and the
words. The screening may suspect the innocent, but must never acquit the guilty: then the verdicts
are those of the judge, at a fraction of the time.
"""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs
import pandas as pd

from faulttol.audit.evidence import Evidence, UnsuitableEvidenceError
from faulttol.audit.verdict import RunVerdict
from faulttol.errors import HistoryError
from faulttol.guarantees import GUARANTEES, Report, check, check_run
from faulttol.history import read_manifest, read_run

VERDICT: Final = "verdict string"


def judge(rows: pd.DataFrame) -> pd.DataFrame:
    """Judge the run that all these rows are of; what `job` has Spark call for each run."""
    directory = Path(unquote(urlsplit(rows["directory"].iloc[0]).path))
    return pd.DataFrame({"verdict": [_verdict(directory, rows).to_json()]})


def judge_in_full(directory: Path) -> RunVerdict:
    """Read a run once more, line by line, and have the judge look at all of it."""
    directory = directory.resolve()
    history = read_run(directory)
    return RunVerdict.of(
        directory,
        history.manifest.ordering if history.manifest else "none",
        check_run(history),
        tuple(str(problem) for problem in history.problems if not problem.is_tolerated),
    )


def _verdict(directory: Path, rows: pd.DataFrame) -> RunVerdict:
    try:
        manifest = read_manifest(directory)
        evidence = Evidence.from_rows(rows, manifest.run)
    except (HistoryError, UnsuitableEvidenceError):
        return judge_in_full(directory)
    guarantees = GUARANTEES[manifest.ordering]
    suspects = evidence.suspects(guarantees)
    if suspects.any():
        report = check(
            evidence.records_about(suspects), ordering=manifest.ordering, delta=manifest.delta
        )
        report = attrs.evolve(
            report,
            # The evidence was found sound; the gaps that the judge saw are what was left out.
            violations=tuple(found for found in report.violations if found.guarantee != "record"),
            figures=evidence.figures(),
        )
    else:
        report = Report(
            run=manifest.run,
            guarantees=guarantees,
            violations=(),
            excused={},
            figures=evidence.figures(),
        )
    return RunVerdict.of(directory, manifest.ordering, report)
