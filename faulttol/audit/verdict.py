"""What the audit says about one run."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs

from plait.faulttol.audit.times import Times
from plait.faulttol.guarantees import Report, Violation

WITNESSES_MAX: Final = 20
"""Per run and guarantee. Whoever wants more of the same has the run itself."""


@attrs.frozen(kw_only=True)
class RunVerdict:
    """A report, small enough to be sent home by whoever judged a run of any size."""

    directory: str
    run: str
    ordering: str
    guarantees: tuple[str, ...]
    violations: Mapping[str, int]
    """How often each broken guarantee was broken; all of it, not only what has a witness."""
    witnesses: tuple[Violation, ...]
    """At most `WITNESSES_MAX` of each guarantee."""
    excused: Mapping[str, int]
    figures: Mapping[str, int]
    damage: tuple[str, ...]
    """What could not be read, each with its place."""
    events: Mapping[str, int]
    """What happened to nodes, and what was given up: how many records of each such kind."""
    latency: Times
    """From each publication to each of its deliveries."""
    hold: Times
    """From each publication to its confirmation; as long as that, nodes have to keep it."""

    @property
    def is_clean(self) -> bool:
        """Whether every guarantee holds, as far as the history can be read."""
        return not self.violations and not self.damage

    @classmethod
    def of(
        cls,
        directory: Path,
        ordering: str,
        report: Report,
        *,
        events: Mapping[str, int],
        latency: Times,
        hold: Times,
        damage: tuple[str, ...] = (),
    ) -> Self:
        """Condense a report."""
        violations: Counter[str] = Counter()
        witnesses = []
        for violation in report.violations:
            violations[violation.guarantee] += 1
            if violations[violation.guarantee] <= WITNESSES_MAX:
                witnesses.append(violation)
        return cls(
            directory=str(directory),
            run=report.run,
            ordering=ordering,
            guarantees=report.guarantees,
            violations=dict(violations),
            witnesses=tuple(witnesses),
            excused={str(excuse): count for excuse, count in report.excused.items()},
            figures=dict(report.figures),
            damage=damage,
            events=events,
            latency=latency,
            hold=hold,
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        fields = attrs.asdict(self) | {"is_clean": self.is_clean}
        return fields | {"latency": self.latency.as_json(), "hold": self.hold.as_json()}
