"""What processes and clients say about themselves, or that they say nothing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

StatusReport = dict[str, Any]
"""What `Host.status` returns: of one process, and of the brokers that it plays."""


NOBODY_LISTENS: Final = "nobody listens there"
HAS_CRASHED: Final = "it has crashed"


@attrs.frozen
class Unreachable:
    """A process that some other one knows, and that does not answer."""

    name: str
    address: str
    reason: str

    @property
    def role(self) -> str:
        """Whether there is no such process, or one that may only be slow."""
        return "dead" if self.reason in (NOBODY_LISTENS, HAS_CRASHED) else "suspected"


@attrs.frozen
class ClientReport:
    """What a client of a run is doing."""

    name: str
    state: str
    broker: str
    """Where it is, or was last."""
    subscriptions: int
    unconfirmed: int
    """Publications of its own."""


Report = StatusReport | Unreachable | ClientReport


def in_words(report: Report) -> tuple[str, str, str]:
    """Return who it is about, in which state that is, and what else people may want to know."""
    match report:
        case Unreachable(name, reason=reason):
            return name, report.role, reason
        case ClientReport(name, state, broker, subscriptions, unconfirmed):
            what = f"at {broker}, {subscriptions} subscriptions, {unconfirmed} unconfirmed"
            return name, state, what
    what = (
        f"{report['subscriptions']} subscriptions, {report['advertisements']} advertisements, "
        f"{report['unstable']} unstable"
    )
    played = [broker["broker"] for broker in report["brokers"]]
    if played != [report["host"]]:
        what = f"plays {', '.join(played) or 'nothing'}; {what}"
    return report["host"], report["state"], what


def name_of(report: StatusReport | Unreachable) -> str:
    """Which process it is about."""
    return report.name if isinstance(report, Unreachable) else str(report["host"])


def role_of(report: StatusReport | Unreachable) -> str:
    """What a process is to its site: active, standby, suspected or dead."""
    if isinstance(report, Unreachable):
        return report.role
    return "active" if report["brokers"] else "standby"


def answers(reports: Sequence[StatusReport | Unreachable]) -> list[StatusReport]:
    """The reports of those who answer."""
    return [report for report in reports if not isinstance(report, Unreachable)]


def players(reports: Sequence[StatusReport | Unreachable]) -> Mapping[str, StatusReport]:
    """Who plays each broker, as they say themselves; of two the one of the later term."""
    found: dict[str, tuple[int, StatusReport]] = {}
    for report in answers(reports):
        for broker in report["brokers"]:
            known = found.get(broker["broker"])
            if known is None or known[0] < broker["term"]:
                found[broker["broker"]] = (broker["term"], report)
    return {broker: report for broker, (_, report) in found.items()}


def weaknesses(reports: Sequence[StatusReport | Unreachable]) -> Iterator[str]:
    """Why one more failure might not be survived now; nothing if it would be."""
    present = answers(reports)
    if any(report["delta"] == 0 for report in present):
        yield "δ is 0"
    elif len(present) == 1:
        yield "there is no other process to go on"
    played = players(reports)
    known = {seat["broker"] for report in present for seat in report["seats"] if not seat["left"]}
    for broker in sorted(known - played.keys()):
        yield f"nobody plays {broker}"
    for report in present:
        if report["vulnerable"]:
            yield f"not all around know yet what {report['host']} has taken up, or it is about to"
