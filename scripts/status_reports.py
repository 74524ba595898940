"""What brokers and clients say about themselves, or that they say nothing."""

from typing import Any, Final

import attrs

StatusReport = dict[str, Any]
"""What `BrokerCore.status` returns."""


NOBODY_LISTENS: Final = "nobody listens there"
HAS_CRASHED: Final = "it has crashed"


@attrs.frozen
class Unreachable:
    """A broker that some neighbour knows, and that does not answer."""

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
    return (
        report["node"],
        report["state"],
        f"{report['subscriptions']} subscriptions, {report['advertisements']} advertisements, "
        f"{report['unstable']} unstable",
    )


def name_of(report: StatusReport | Unreachable) -> str:
    """Which broker it is about."""
    return report.name if isinstance(report, Unreachable) else str(report["node"])


def role_of(report: StatusReport | Unreachable) -> str:
    """What a broker is to its site: active, standby, suspected or dead."""
    if isinstance(report, Unreachable):
        return report.role
    return "standby" if report["standby"] else "active"
