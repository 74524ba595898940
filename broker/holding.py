"""Why publications are held: behind what, for whose sake, and for how long."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import attrs

from plait.routing.ids import NodeId
from plait.routing.orderings import Arriving, Cause, Ordering

WHY: Final[Mapping[str, str]] = {
    Cause.PUBLISHER: "same publisher",
    Cause.SUBSCRIBERS: "subscribers in common",
}


class Holdable(Arriving, Protocol):
    """What has to be known of a publication to explain why it is held."""

    since: float
    """When it arrived."""
    publication: Any


Arrival = TypeVar("Arrival", bound=Holdable)


@attrs.define
class Holds:
    """How often, and for how long altogether, publications were held for one cause."""

    count: int = 0
    seconds: float = 0.0


class HoldTimes:
    """What has been held here and is not any more, by cause."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.by_cause: dict[Cause, Holds] = {cause: Holds() for cause in Cause}
        self._acknowledged_at: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        """When the parent settled what is held behind others since then."""

    def note_acknowledged(self, arrival: Holdable, now: float) -> None:
        """The parent has settled a publication: from now on it is held behind others, if at all."""
        self._add(Cause.PARENT, now - arrival.since)
        self._acknowledged_at[arrival] = now

    def note_released(self, settled: Sequence[Holdable], now: float) -> None:
        """The parent has settled the first of these; the others were held behind those before."""
        publishers: set[NodeId] = set()
        for arrival in settled:
            blocked_since = self._acknowledged_at.pop(arrival, arrival.since)
            if publishers:
                is_same = arrival.publisher in publishers
                self._add(Cause.PUBLISHER if is_same else Cause.SUBSCRIBERS, now - blocked_since)
            publishers.add(arrival.publisher)

    def _add(self, cause: Cause, seconds: float) -> None:
        holds = self.by_cause[cause]
        holds.count += 1
        holds.seconds += seconds


def explain_held(
    ordering: Ordering[Arrival],
    waits_for: Callable[[Arrival], str | None],
    now: float,
    *,
    most: int,
    lacks: Callable[[Arrival], str | None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Say of each of the first that are held where it stands, as JSON.

    `waits_for` is the broker whose acknowledgement it waits for, if it waits for one itself; what
    is `behind` others cannot be settled before they are, for the cause given with each. What it
    `lacks` has to come before it, and is not here yet.
    """
    return [
        {
            **_name_of(arrival),
            "seconds": round(now - arrival.since, 6),
            "waits_for": waits_for(arrival),
            "lacks": lacks(arrival),
            "behind": [
                {
                    **_name_of(blocker),
                    "cause": cause.value,
                    "waits_for": waits_for(blocker),
                }
                for blocker, cause in ordering.blockers(arrival)
            ],
        }
        for arrival, _ in zip(ordering.held, range(most), strict=False)
    ]


def _name_of(arrival: Holdable) -> dict[str, Any]:
    return {"publisher": arrival.publisher, "number": arrival.publication.seq}


def describe_held(held: Mapping[str, Any]) -> str:
    """The same of one publication, in words."""
    reasons = []
    if held["waits_for"]:
        reasons.append(f"until {held['waits_for']} has settled it")
    if held.get("lacks"):
        reasons.append(f"until {held['lacks']}")
    if held["behind"]:
        blockers = (
            f"{blocker['publisher']}:{blocker['number']} ({WHY[blocker['cause']]})"
            for blocker in held["behind"]
        )
        reasons.append(f"behind {', '.join(blockers)}")
    if not reasons:
        reasons.append("until what goes before it is here")
    return f"holds {held['publisher']}:{held['number']} {' and '.join(reasons)}"
