"""What tests of the audit share: run directories, and verdicts that can be compared."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plait.faulttol.audit.verdict import WITNESSES_MAX, RunVerdict
from plait.faulttol.history import Manifest, Record, write_run


def write(directory: Path, records: Iterable[Record], ordering: str = "pairwise") -> None:
    manifest = Manifest(
        run="run",
        topology=None,
        ordering=ordering,
        delta=1,
        seed=None,
        started=0.0,
        simulated=True,
    )
    write_run(directory, manifest, records)


def comparable(verdict: RunVerdict) -> Mapping[str, Any]:
    """Leave out what is free: the order of witnesses, and which of many are shown."""
    witnesses = sorted(map(str, verdict.witnesses))
    is_capped = any(count > WITNESSES_MAX for count in verdict.violations.values())
    return {
        "directory": verdict.directory,
        "run": verdict.run,
        "guarantees": verdict.guarantees,
        "violations": verdict.violations,
        "witnesses": len(witnesses) if is_capped else witnesses,
        "excused": verdict.excused,
        "figures": verdict.figures,
        "damage": verdict.damage,
        "events": verdict.events,
        "latency": verdict.latency,
        "hold": verdict.hold,
    }


def in_files(records: Iterable[Record]) -> list[Record]:
    """Bring records into the order in which their files are read."""
    return sorted(records, key=lambda record: (record["node"], record["incarnation"]))


def recounted(records: Sequence[Record]) -> list[Record]:
    """Number everything anew but publications, so that the history is sound."""
    n, position = Counter[tuple[str, int]](), Counter[str]()
    result = []
    for record in in_files(records):
        life = record["node"], record["incarnation"]
        n[life] += 1
        counted = record | {"n": n[life]}
        if record["kind"] == "delivered":
            position[record["subscriber"]] += 1
            counted["position"] = position[record["subscriber"]]
        result.append(counted)
    return result
