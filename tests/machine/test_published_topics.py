"""Both documents as published, on brokers: where they fail, and that what is here does not.

Of the twelve schedules of `tests/routing/topics/schedules.py` eight can happen in a tree of brokers
with links that keep an order. The other four cannot: there whatever is told because of something
comes behind that, everywhere. In T2 what completes a subscription would come after a publication
that was stamped because of what came behind it at the same manager; in T3 and T7 somebody has a
publication, and then makes a stamp that reaches another one before it; in T5 an update comes after
what its sender said later.
"""

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import pytest

from plait.broker.holding import describe_held, explain_held
from plait.broker.machine.errands import Errands
from plait.broker.machine.machine import Batch
from plait.broker.messages import Begun, Publish, Stamped, Subscribe, Unsubscribe
from plait.routing.ids import NodeId, OperationId, SubscriptionId
from plait.routing.topics.position import Clock, Position
from plait.routing.topics.protocol import Topic
from tests.machine.timed import Timed

HUB: Final = NodeId("hub")
FAST: Final = 1.0
SETTLED: Final = 10_000.0
"""By then all have joined and subscribed."""


@attrs.frozen(kw_only=True)
class Schedule:
    """Who is where, what happens when, and what is wrong in the end as published."""

    claim: str
    ordering: str
    sites: Mapping[str, tuple[float, float]]
    """Brokers below the hub: how long it takes to there, and from there."""
    clients: Mapping[str, tuple[str, str]]
    """Where each is, and which topics it has, a letter each."""
    managers: Mapping[str, str] = attrs.field(factory=dict)
    """Of topics that are not managed at the hub, where."""
    script: Sequence[tuple[float, str, str, str]]
    inverted: bool = False
    lacking: str = ""
    """The clients that wait for ever."""


LEFT_SLOW: Final = {"L": (50.0, 50.0), "R": (FAST, FAST)}

SCHEDULES: Final = {
    "T1": Schedule(
        claim="a stamp that is larger on any topic passes for later",
        ordering="tno-published-2011",
        sites={"far": (200.0, 200.0), **LEFT_SLOW},
        clients={
            "k": ("far", ""),
            "i": ("L", ""),
            "j": ("R", ""),
            "r": ("R", "12"),
            "s": ("L", "23"),
            "t": ("R", "123"),
        },
        script=((0, "k", "publish", "1"), (210, "i", "publish", "2"), (280, "j", "publish", "3")),
        inverted=True,
    ),
    "T4": Schedule(
        claim="what was published before a subscription is not ordered with what comes after it",
        ordering="tno-published-2011",
        sites=LEFT_SLOW,
        clients={"s": ("L", "2"), "p2": ("L", ""), "t": ("R", "12"), "p1": ("R", "")},
        script=((0, "p2", "publish", "2"), (10, "s", "subscribe", "1"), (80, "p1", "publish", "1")),
        inverted=True,
    ),
    "B1": Schedule(
        claim="two ways lead to one manager, and a stamp overtakes another one",
        ordering="tno-published-2015",
        sites={"M": (FAST, 50.0), "R": (FAST, FAST)},
        clients={
            **dict.fromkeys("st", ("R", "134")),
            **dict.fromkeys("uv", ("R", "123")),
            **{f"p{n}": ("R", "") for n in range(3)},
        },
        managers={"2": "M"},
        script=((0, "p0", "publish", "3"), (4, "p1", "publish", "4"), (14, "p2", "publish", "1")),
        lacking="st",
    ),
    "B2": Schedule(
        claim="one manager knows that somebody has left, and the other one does not",
        ordering="tno-published-2015",
        sites={"M": (20.0, 20.0), "R": (FAST, FAST)},
        clients={"s": ("R", "12"), "t": ("R", "12"), "p1": ("R", ""), "p2": ("M", "")},
        managers={"2": "M"},
        script=(
            (0, "p2", "publish", "2"),
            (20.5, "s", "unsubscribe", "2"),
            (26, "p1", "publish", "1"),
        ),
        lacking="t",
    ),
    "B3": Schedule(
        claim="a subscription passes over what is on its way",
        ordering="tno-published-2015",
        sites=LEFT_SLOW,
        clients={"s": ("R", "1"), "t": ("R", "1"), "p1": ("L", "")},
        script=((0, "p1", "publish", "1"), (60, "s", "subscribe", "2")),
        lacking="s",
    ),
    "B4": Schedule(
        claim="the news of a subscription passes over what is on its way",
        ordering="tno-published-2015",
        sites=LEFT_SLOW,
        clients={"s": ("R", "1"), "t": ("R", "12"), "p1": ("L", "")},
        script=((0, "p1", "publish", "1"), (60, "s", "subscribe", "2")),
        lacking="t",
    ),
    "B5": Schedule(
        claim="who leaves a topic takes along what the other one waits for",
        ordering="tno-published-2015",
        sites=LEFT_SLOW,
        clients={"s": ("R", "12"), "t": ("R", "12"), "p1": ("L", ""), "p2": ("R", "")},
        script=(
            (0, "p1", "publish", "1"),
            (60, "s", "unsubscribe", "1"),
            (70, "p2", "publish", "2"),
        ),
        lacking="t",
    ),
    "B6": Schedule(
        claim="topics that are shared in a circle are put into no order",
        ordering="tno-published-2015",
        sites={"M": (FAST, 80.0), "R": (FAST, FAST)},
        clients={
            "u": ("R", "1345"),
            "a": ("R", "15"),
            "b": ("R", "35"),
            "c": ("R", "34"),
            "d": ("R", "124"),
            "e": ("R", "24"),
            **{f"p{n}": ("R", "") for n in range(4)},
        },
        managers={"2": "M"},
        script=(
            (0, "p0", "publish", "4"),
            (10, "p1", "publish", "3"),
            (14, "p2", "publish", "5"),
            (30, "p3", "publish", "1"),
        ),
        lacking="u",
    ),
}


class Stage(Timed):
    """A hub, brokers below it, and links that take as long as a schedule says."""

    def __init__(self, ordering: str, schedule: Schedule, until: float = math.inf) -> None:
        self.until = until
        self.links = {
            **{(HUB, NodeId(site)): there for site, (there, _) in schedule.sites.items()},
            **{(NodeId(site), HUB): back for site, (_, back) in schedule.sites.items()},
        }
        self.told: dict[NodeId, list[str]] = {}
        """In order, as far as a subscriber knows."""
        self.tagged: list[str] = []
        self.clocks: dict[NodeId, Clock] = {}
        self.is_judged_by_clock = ordering in ("tno", "tno-tagged")
        super().__init__(ordering, cores=0, edges=0)
        self._add(HUB, None)
        for site in schedule.sites:
            self._add(NodeId(site), HUB)
        self.run()
        for name, (site, topics) in schedule.clients.items():
            client = NodeId(name)
            self.join(client, NodeId(site))
            self.told[client], self.clocks[client] = [], Clock()
            self.advertise(client)
            for topic in topics:
                self.follow(client, topic)
            self.run()
        for at, name, what, topic in schedule.script:
            do: Any = {"publish": self.publish, "subscribe": self.follow, "unsubscribe": self.leave}
            self.at(SETTLED + at, do[what], NodeId(name), topic)
        assert self.now < SETTLED
        self.run()

    def run(self) -> None:
        while self._queue and self._queue[0][0] <= self.until:
            self.now, _, action, arguments = heapq.heappop(self._queue)
            action(*arguments)

    def _send(self, sender: NodeId, to: NodeId, batch: Batch) -> None:
        self.at(self.now + self.links.get((sender, to), 0.0), self._receive, sender, to, batch)

    def follow(self, client: NodeId, topic: str) -> None:
        request = Subscribe(
            operation=OperationId(f"{client}#{topic}"),
            subscription=SubscriptionId(f"{client}/{topic}"),
            client=client,
            filter=f"topic = '{topic}'",
            ordered=True,
            path=(client,),
        )
        self._ask(client, request)

    def leave(self, client: NodeId, topic: str) -> None:
        subscription = SubscriptionId(f"{client}/{topic}")
        self._ask(
            client, Unsubscribe(operation=OperationId(f"{client}#l"), subscription=subscription)
        )

    def _deliver(self, client: NodeId, batch: Batch) -> None:
        stamp: Stamped | None = None
        for message in batch.messages:
            if isinstance(message, Stamped):
                stamp = message
            elif isinstance(message, Begun):
                self.clocks[client].begin(message.numbers)
            elif isinstance(message, Publish):
                assert stamp is not None
                topic = Topic(message.content.decode(errors="replace")[-1])
                self._judge(client, message.publisher, topic, stamp.position, stamp.is_late)

    def _judge(
        self, client: NodeId, publisher: str, topic: Topic, position: Position, is_late: bool
    ) -> None:
        if self.is_judged_by_clock:
            is_late = not self.clocks[client].takes_in_order(topic, position)
        if is_late:
            self.tagged.append(f"{topic} at {client}")
        else:
            self.told[client].append(f"{publisher}:{topic}")

    def inversions(self) -> list[str]:
        """What two were told of in different orders."""
        return [
            f"{e} and {f} at {one} and {other}"
            for (one, first), (other, second) in itertools.combinations(self.told.items(), 2)
            for e, f in itertools.combinations([each for each in first if each in second], 2)
            if second.index(e) > second.index(f)
        ]

    def holding(self) -> set[str]:
        """The clients for whom something is held although all has come to rest."""
        return {
            client
            for machine in self.machines.values()
            for arrival in machine.publications.ordering.held
            for client in machine.publications.ordering.places(arrival)  # type: ignore[attr-defined]
        }


@pytest.fixture(autouse=True)
def _places(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Managers are where a schedule says, and not where a hash does."""
    managers = SCHEDULES[request.node.callspec.params["name"]].managers

    def choose(errands: Errands, topic: Topic) -> NodeId:
        return NodeId(managers.get(topic, HUB)) if errands.node == HUB else errands.node

    monkeypatch.setattr(Errands, "_choose", choose)


EACH = pytest.mark.parametrize("name", SCHEDULES)


@EACH
def test_as_published_it_goes_wrong(name: str) -> None:
    schedule = SCHEDULES[name]

    stage = Stage(schedule.ordering, schedule)

    assert bool(stage.inversions()) == schedule.inverted
    assert set(schedule.lacking) <= stage.holding()


@pytest.mark.parametrize("name", ["T1"])
def test_what_is_held_is_explained_by_numbers_of_topics(name: str) -> None:
    schedule = SCHEDULES[name]
    stage = Stage("tno@hash", schedule, until=SETTLED + 300)

    held = [
        describe_held({"seconds": 0, **each})
        for machine in stage.machines.values()
        for each in explain_held(
            machine.publications.ordering,
            machine.publications.waits_for,
            0.0,
            most=9,
            lacks=machine.publications.lacks,
        )
    ]

    assert held == [
        "holds k:1 until the manager of '1' has settled it",
        "holds i:1 until the manager of '2' has settled it",
        "holds j:1 until t has number 1 of topic '1' and number 1 of topic '2'",
    ]


@EACH
@pytest.mark.parametrize("ordering", ["tno", "tno@root", "tno@hash", "tno-tagged"])
def test_what_is_mended_passes(name: str, ordering: str) -> None:
    stage = Stage(ordering, SCHEDULES[name])

    assert stage.inversions() == []
    assert not any(machine.publications.ordering.held for machine in stage.machines.values())
    assert ordering == "tno-tagged" or not stage.tagged
