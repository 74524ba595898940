"""What the clients of a trial do. The names and numbers are those of the peer harness.

Ten subscribers want everything that is published, or each of them wants a class of its own.
Publishers work in one of two ways. In a *closed loop* they publish as fast as they can, but never
more than a window ahead of the slowest subscriber, so that nothing piles up: throughput is what is
measured. In an *open loop* they publish at a fixed rate, well below what the system can do: the
delay of each publication is what is measured.
"""

from typing import Final

import attrs

from plait.routing.values import Content

SUBSCRIBERS: Final = 10
WINDOW: Final = 512
"""Publications that all publishers together may be ahead of the slowest subscriber."""
PAYLOAD_BYTES: Final = 200


@attrs.frozen(kw_only=True)
class Workload:
    """One way to use a publish/subscribe system."""

    name: str
    publishers: int = 1
    subscribers: int = SUBSCRIBERS
    rate: float | None = None
    """Publications per second and publisher; without it, as many as go."""
    is_selective: bool = False
    """Whether every publication is wanted by one subscriber only."""

    @property
    def window(self) -> int:
        """How far one publisher may be ahead, in a closed loop."""
        return max(1, WINDOW // self.publishers)

    @property
    def advertisement(self) -> str:
        """What publishers announce."""
        return "kind = 'bench'"

    def subscription(self, index: int) -> str:
        """What a subscriber asks for."""
        everything = "kind = 'bench' AND prio = 1"
        return f"{everything} AND cls = {index}" if self.is_selective else everything

    @property
    def contents(self) -> list[Content]:
        """What publications say of themselves, by turns."""
        classes = self.subscribers if self.is_selective else 1
        return [{"kind": "bench", "prio": 1, "cls": number} for number in range(classes)]


THROUGHPUT: Final = Workload(name="tput")
LATENCY: Final = Workload(name="lat", rate=500.0)

WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        THROUGHPUT,
        LATENCY,
        Workload(name="mtput", publishers=10),
        Workload(name="mlat", publishers=10, rate=50.0),
        Workload(name="sel", is_selective=True),
    )
}
