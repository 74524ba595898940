"""The shortest schedules on which the published algorithms go wrong, and what is right on each.

Delays are 1 unless a schedule says otherwise; publications are named after their topics.
"""

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from plait.routing.topics.protocol import Address, Label, ManagerOf
from plait.routing.topics.tagging import CORRECTED, Correction
from tests.routing.topics.world import World


@attrs.frozen
class Slow:
    """What takes longer."""

    kind: str
    source: str
    to: str
    delay: float
    label: str | None = None

    def applies(self, kind: str, source: Address, to: Address, label: Label | None) -> bool:
        """Whether this is about such a message."""
        return (
            self.kind == kind
            and self.source in ("*", _name(source))
            and self.to in ("*", _name(to))
            and self.label in (None, label)
        )


def _name(address: Address) -> str:
    if isinstance(address, ManagerOf):
        return f"T{address.topic}"
    return address if isinstance(address, str) else "C"


@attrs.frozen(kw_only=True)
class Schedule:
    """Who has what at first, what is done when, and what comes of it."""

    claim: str
    mode: str
    """Of the published algorithm that goes wrong."""
    order: str
    table: Mapping[str, str]
    script: tuple[tuple[float, str, str, str] | tuple[float, str, str, str, str], ...]
    slow: tuple[Slow, ...] = ()
    published: tuple[str, ...]
    """What is wrong then."""
    tagged: Mapping[str, str] = attrs.field(factory=dict)
    """What is tagged by the corrected one, which tells everybody at once."""
    total: Mapping[str, str] = attrs.field(factory=dict)
    """What those get for whom it matters, under the one that waits."""

    def play(self, mode: str, corrections: Collection[Correction] = CORRECTED) -> World:
        """Play it to its end."""

        def delay(kind: str, source: Address, to: Address, label: Label | None) -> float:
            slow = (each for each in self.slow if each.applies(kind, source, to, label))
            return next((each.delay for each in slow), 1.0)

        world = World(mode, self.order, self.table, delay, corrections)
        for at, who, what, *rest in self.script:
            world.at(at, getattr(world, what), who, *rest)
        world.run()
        return world


def _notified(to: str, label: str, delay: float) -> Slow:
    return Slow("Notify", "*", to, delay, label)


SCHEDULES: Final = {
    "T1": Schedule(
        claim="a stamp that is larger on any topic passes for later",
        mode="tagging",
        order="123",
        table={"r": "12", "s": "23", "t": "123"},
        script=(
            (0, "p1", "publish", "k", "1"),
            (10, "p1", "publish", "i", "2"),
            (20, "p2", "publish", "j", "3"),
        ),
        slow=(_notified("t", "k", 500), _notified("t", "i", 300)),
        published=("i and j at s and t",),
        tagged={"t": "i"},
        total={"t": "k i j"},
    ),
    "T2": Schedule(
        claim="a subscription sets the clock back",
        mode="tagging",
        order="123",
        table={"s": "12", "t": "12"},
        script=(
            (0, "s", "subscribe", "3"),
            (10, "p1", "publish", "e1", "1"),
            (20, "p2", "publish", "e2", "2"),
        ),
        slow=(Slow("Completed", "*", "s", 40), _notified("s", "e1", 100)),
        published=("e2 and e1 at s and t",),
        tagged={"s": "e1"},
        total={"s": "e1 e2", "t": "e1 e2"},
    ),
    "T3": Schedule(
        claim="who leaves a topic takes along what ordered it",
        mode="tagging",
        order="12",
        table={"s": "12", "t": "12"},
        script=(
            (0, "p1", "publish", "e1", "1"),
            (10, "s", "unsubscribe", "1"),
            (20, "p2", "publish", "e2", "2"),
        ),
        slow=(_notified("t", "e1", 100),),
        published=("e1 and e2 at s and t",),
        tagged={"t": "e1"},
        total={"s": "e1 e2", "t": "e1 e2"},
    ),
    "T4": Schedule(
        claim="what was published before a subscription is not ordered with what comes after it",
        mode="tagging",
        order="12",
        table={"s": "2", "t": "12"},
        script=(
            (0, "p2", "publish", "e2", "2"),
            (10, "s", "subscribe", "1"),
            (20, "p1", "publish", "e1", "1"),
        ),
        slow=(_notified("t", "e2", 100),),
        published=("e2 and e1 at s and t",),
        tagged={"t": "e2"},
        total={"s": "e2 e1", "t": "e2 e1"},
    ),
    "T5": Schedule(
        claim="what is told of leaving a topic arrives after what is told of coming back",
        mode="tagging",
        order="123",
        table={"s": "123", "t": "12"},
        script=(
            (0, "s", "unsubscribe", "1"),
            (1, "s", "subscribe", "1"),
            (30, "p1", "publish", "e1", "1"),
            (35, "p2", "publish", "e2", "2"),
        ),
        slow=(Slow("UpdateSubscription", "s", "T2", 9), _notified("s", "e1", 50)),
        published=("e2 and e1 at s and t",),
        tagged={"s": "e1"},
        total={"s": "e1 e2", "t": "e1 e2"},
    ),
    "T7": Schedule(
        claim="who has one topic after the other shares both, and nobody knows",
        mode="tagging",
        order="12",
        table={"s": "2", "t": "12"},
        script=(
            (0, "p2", "publish", "e2", "2"),
            (10, "s", "unsubscribe", "2"),
            (12, "s", "subscribe", "1"),
            (30, "p1", "publish", "e1", "1"),
        ),
        slow=(_notified("t", "e2", 100),),
        published=("e2 and e1 at s and t",),
        tagged={"t": "e2"},
        total={"s": "e2 e1", "t": "e2 e1"},
    ),
    "B1": Schedule(
        claim="two ways lead to one manager, and a stamp overtakes another one",
        mode="buffering",
        order="1234",
        table={"s": "134", "t": "134", "u": "123", "v": "123"},
        script=(
            (0, "p1", "publish", "e3", "3"),
            (0.5, "p2", "publish", "e4", "4"),
            (10, "p3", "publish", "e1", "1"),
        ),
        slow=(Slow("Fill", "T2", "T1", 50, "e3"),),
        published=tuple(f"{name} waits" for name in "stuv"),
        total={"s": "e1 e3 e4", "t": "e1 e3 e4", "u": "e1 e3", "v": "e1 e3"},
    ),
    "B2": Schedule(
        claim="one manager knows that somebody has left, and the other one does not",
        mode="buffering",
        order="12",
        table={"s": "12", "t": "12"},
        script=(
            (0, "s", "unsubscribe", "2"),
            (0, "p1", "publish", "e1", "1"),
            (0, "p2", "publish", "e2", "2"),
        ),
        slow=(
            Slow("UpdateSubscription", "s", "T2", 20),
            Slow("UpdateSubscription", "s", "T1", 1.5),
            Slow("Fill", "*", "*", 0.4, "e2"),
            Slow("Create", "p1", "T1", 5, "e1"),
            _notified("t", "e2", 60),
        ),
        published=("t waits with ['e2']",),
        total={"s": "e1", "t": "e2 e1"},
    ),
    "B3": Schedule(
        claim="a subscription passes over what is on its way",
        mode="buffering",
        order="12",
        table={"s": "1", "t": "1"},
        script=((0, "p1", "publish", "e1", "1"), (3, "s", "subscribe", "2")),
        slow=(_notified("s", "e1", 60),),
        published=("s waits with ['e1']",),
        total={"s": "e1"},
    ),
    "B4": Schedule(
        claim="the news of a subscription passes over what is on its way",
        mode="buffering",
        order="12",
        table={"s": "1", "t": "12"},
        script=((0, "p1", "publish", "e1", "1"), (3, "s", "subscribe", "2")),
        slow=(_notified("t", "e1", 60),),
        published=("t waits with ['e1']",),
        total={"t": "e1"},
    ),
    "B5": Schedule(
        claim="who leaves a topic takes along what the other one waits for",
        mode="buffering",
        order="12",
        table={"s": "12", "t": "12"},
        script=(
            (0, "p1", "publish", "e1", "1"),
            (10, "s", "unsubscribe", "1"),
            (20, "p2", "publish", "e2", "2"),
        ),
        slow=(_notified("t", "e1", 100),),
        published=("t waits with ['e1']",),
        total={"s": "e1 e2", "t": "e1 e2"},
    ),
    "B6": Schedule(
        claim="topics that are shared in a circle are put into no order",
        mode="buffering",
        order="12345",
        table={"u": "1345", "a": "15", "b": "35", "c": "34", "d": "124", "e": "24"},
        script=(
            (0, "p1", "publish", "e4", "4"),
            (10, "p2", "publish", "e3", "3"),
            (12, "p3", "publish", "e5", "5"),
            (30, "p2", "publish", "e1", "1"),
        ),
        slow=(Slow("Fill", "T2", "T1", 80, "e4"),),
        published=("u waits",),
        total={"u": "e1 e4 e3 e5", "a": "e1 e5", "d": "e1 e4"},
    ),
}
