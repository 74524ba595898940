"""What the audit says about one run."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import attrs

from faulttol.guarantees import Report, Violation

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

    @property
    def is_clean(self) -> bool:
        """Whether every guarantee holds, as far as the history can be read."""
        return not self.violations and not self.damage

    @classmethod
    def of(
        cls, directory: Path, ordering: str, report: Report, damage: tuple[str, ...] = ()
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
        )

    def to_json(self) -> str:
        """Write it as text, which is how it travels."""
        return json.dumps(attrs.asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        fields["guarantees"] = tuple(fields["guarantees"])
        fields["damage"] = tuple(fields["damage"])
        fields["witnesses"] = tuple(
            Violation(**witness | {"records": tuple(witness["records"])})
            for witness in fields["witnesses"]
        )
        return cls(**fields)
