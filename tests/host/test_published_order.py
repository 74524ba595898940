"""The algorithm as published: what it gets right, and the schedules that it gets wrong.

All links take a millisecond. P and s are at broker a, Q and t at broker b, both subscribers want
everything, and ids of P sort before ids of Q.
"""

from collections.abc import Mapping

import pytest

from tests.host.worlds import MS, Conversation

PUBLISHED = ("published", "published-progressive", "published-whole-queue")


class TwoBrokers:
    """P and s at one end of a link, q and t at the other."""

    def __init__(self, ordering: str) -> None:
        self.overlay = Conversation(ordering=ordering)
        self.overlay.brokers("a", b="a")
        self.clients = {
            name: self.overlay.client(name, at)
            for name, at in (("s", "a"), ("t", "b"), ("p", "a"), ("q", "b"))
        }
        for name in "pq":
            self.clients[name].advertises("TRUE")
        for name in "st":
            self.clients[name].subscribes("TRUE")
        self.overlay.settle()

    def play(self, schedule: Mapping[float, str]) -> "TwoBrokers":
        """Let clients publish at these milliseconds."""
        now = 0.0
        for at, names in schedule.items():
            self.overlay.settle((at - now) * MS)
            now = at
            for name in names:
                self.clients[name].publishes(x=1)
        return self

    def finish(self) -> dict[str, list[str]]:
        """Wait until all is over; returns what each subscriber received."""
        self.overlay.settle()
        assert self.overlay.unfinished() == []
        assert [self.overlay.held_at(name) for name in "ab"] == [[], []]
        return {name: self.clients[name].received for name in "st"}

    def disagreements(self) -> list[str]:
        return self.overlay.violations("pairwise")


# What goes right


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_two_that_race_are_sorted_at_both_ends(ordering: str) -> None:
    brokers = TwoBrokers(ordering).play({0: "qp"})

    assert brokers.finish() == {"s": ["p:1", "q:1"], "t": ["p:1", "q:1"]}


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_a_publication_is_held_before_a_client_where_it_is_published(ordering: str) -> None:
    brokers = TwoBrokers(ordering).play({0: "p"})
    brokers.overlay.settle(1.5 * MS)

    assert brokers.overlay.held_at("a") == ["p:1"]
    assert brokers.overlay.held_at("b") == [], "the far side need not wait"
    brokers.finish()


def test_a_whole_queue_waits_for_all_that_is_in_it() -> None:
    """At b, q:1 is acknowledged and first, and p:1 is not."""
    for ordering, behind in (("published-whole-queue", ["p:1"]), ("published", [])):
        brokers = TwoBrokers(ordering).play({0: "pq"})
        brokers.overlay.settle(2.5 * MS)
        queue = brokers.overlay.machine("b").publications.ordering
        q, p = queue.held

        assert [a.publisher + ":1" for a, _ in queue.blockers(q)] == behind
        assert [a.publisher + ":1" for a, _ in queue.blockers(p)] == ["q:1"]


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_what_cannot_conflict_costs_what_fifo_costs(ordering: str) -> None:
    carried = []
    for name in ("fifo", ordering):
        overlay = Conversation(ordering=name)
        overlay.brokers("a", b="a")
        p, s, t = (overlay.client(client, at) for client, at in ("pa", "sa", "tb"))
        p.advertises("TRUE")
        s.subscribes("TRUE")
        t.subscribes("TRUE")
        overlay.settle()
        before = overlay.world.messages_carried
        p.publishes(x=1)
        overlay.settle(2.5 * MS)
        assert s.received == ["p:1"], "at once"
        overlay.settle()
        carried.append(overlay.world.messages_carried - before)

    assert carried[0] == carried[1]


# What goes wrong

BEFORE_THE_ACKNOWLEDGEMENT = {0: "pq", 1.5: "p"}
"""P's second publication joins the queue of s before the first is acknowledged, and reaches b after
q:1 is: sorted among the others there, behind them here."""

TWO_IN_A_ROW = {0: "pq", 0.5: "q"}
"""Q publishes twice before p:1 comes to b: q:1 goes to t alone, as soon as it is acknowledged, and
p:1 is behind q:2 then. At a both of them come before p:1 is acknowledged."""


def test_the_whole_queue_is_sorted_among_others_at_one_end_only() -> None:
    brokers = TwoBrokers("published-whole-queue").play(BEFORE_THE_ACKNOWLEDGEMENT)

    assert brokers.finish() == {"s": ["p:1", "p:2", "q:1"], "t": ["p:1", "q:1", "p:2"]}
    assert len(brokers.disagreements()) == 1


@pytest.mark.parametrize("ordering", ["published", "published-progressive"])
def test_progressive_release_goes_right_there(ordering: str) -> None:
    """The queue of s is p:1, q:1, p:2, and p:2 is not acknowledged yet when the others are."""
    brokers = TwoBrokers(ordering).play(BEFORE_THE_ACKNOWLEDGEMENT)

    assert brokers.finish() == {"s": ["p:1", "q:1", "p:2"], "t": ["p:1", "q:1", "p:2"]}
    assert brokers.disagreements() == []


@pytest.mark.parametrize("ordering", ["published", "published-progressive"])
def test_progressive_release_goes_wrong_with_three_others(ordering: str) -> None:
    brokers = TwoBrokers(ordering).play(TWO_IN_A_ROW)

    assert brokers.finish() == {"s": ["p:1", "q:1", "q:2"], "t": ["q:1", "p:1", "q:2"]}
    assert len(brokers.disagreements()) == 1


def test_the_whole_queue_goes_right_there() -> None:
    brokers = TwoBrokers("published-whole-queue").play(TWO_IN_A_ROW)

    assert brokers.finish() == {"s": ["p:1", "q:1", "q:2"], "t": ["p:1", "q:1", "q:2"]}


@pytest.mark.parametrize("schedule", [BEFORE_THE_ACKNOWLEDGEMENT, TWO_IN_A_ROW])
def test_pairwise_gets_the_same_schedules_right(schedule: Mapping[float, str]) -> None:
    brokers = TwoBrokers("pairwise").play(schedule)
    received = brokers.finish()

    assert len(received["s"]) == 3
    assert received["s"] == received["t"]
    assert brokers.disagreements() == []


# Who waits, and who does not


@pytest.mark.parametrize(
    ("ordering", "waits"), [("published", True), ("published-progressive", False)]
)
def test_fast_detection_makes_everybody_behind_a_hop_wait(ordering: str, waits: bool) -> None:
    """P is at b and the other publisher at c: a hears that somebody has to wait, or who has to."""
    overlay = Conversation(ordering=ordering)
    overlay.brokers("a", b="a", c="b")
    places = {"s": "a", "odd": "a", "t": "c", "p": "b", "q": "c"}
    clients = {name: overlay.client(name, at) for name, at in places.items()}
    clients["p"].advertises("TRUE")
    clients["q"].advertises("x = 2 OR x = 4")
    clients["s"].subscribes("x >= 1")
    clients["odd"].subscribes("x = 1 OR x = 3")
    clients["t"].subscribes("x > 0")
    overlay.settle()
    clients["p"].publishes(x=1)
    overlay.settle(3.5 * MS)

    assert clients["s"].received == [], "on its way: to c, back to b, and on to a"
    assert clients["odd"].received == ([] if waits else ["p:1"])
    overlay.settle()
    assert clients["s"].received == clients["odd"].received == ["p:1"]


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_two_branches_that_ask_each_other_are_both_answered(ordering: str) -> None:
    """Algorithm 4 to the letter has each of them wait for the other, see `routing/published.py`."""
    overlay = Conversation(ordering=ordering)
    overlay.brokers("b", a="b", c="b")
    places = {"s": "a", "t": "c", "q": "a", "r": "c", "p": "b"}
    clients = {name: overlay.client(name, at) for name, at in places.items()}
    for name in "pqr":
        clients[name].advertises("TRUE")
    for name in "st":
        clients[name].subscribes("TRUE")
    overlay.settle()
    for name in "pqr":
        clients[name].publishes(x=1)
    overlay.settle()

    assert clients["s"].received == clients["t"].received == ["p:1", "q:1", "r:1"]
    assert overlay.unfinished() == []


# What the publication does not speak of


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_a_connection_lost_at_any_moment_leaves_nothing_held(ordering: str) -> None:
    for moment in range(12):
        brokers = TwoBrokers(ordering).play({0: "pq"})
        brokers.overlay.settle(moment * MS / 2)
        brokers.overlay.loses_connection("b", "a")
        received = brokers.finish()

        assert sorted(received["s"]) == sorted(received["t"]) == ["p:1", "q:1"]
        assert brokers.overlay.violations("fifo") == []


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_a_client_that_leaves_while_something_is_held_for_it_holds_nobody_up(ordering: str) -> None:
    brokers = TwoBrokers(ordering).play({0: "p"})
    brokers.overlay.settle(0.5 * MS)
    brokers.clients["s"].leaves()
    received = brokers.finish()

    assert received["t"] == ["p:1"]


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_who_hears_what_it_publishes_hears_it_in_order(ordering: str) -> None:
    overlay = Conversation(ordering=ordering)
    overlay.brokers("a", b="a")
    one, other = overlay.client("one", "a"), overlay.client("other", "b")
    for client in (one, other):
        client.advertises("TRUE")
        client.subscribes("TRUE")
    overlay.settle()
    one.publishes(x=1)
    other.publishes(x=2)
    overlay.settle()

    assert one.received == other.received == ["one:1", "other:1"]


@pytest.mark.parametrize("ordering", PUBLISHED)
def test_an_answer_to_a_call_does_not_overtake_what_is_held(ordering: str) -> None:
    brokers = TwoBrokers(ordering).play({0: "p"})
    s = brokers.clients["s"]
    brokers.overlay.settle(0.5 * MS)
    s.subscribes("x = 1")
    answered = len(s.answered)
    brokers.overlay.settle(2 * MS)
    assert len(s.answered) == answered
    brokers.finish()

    assert len(s.answered) == answered + 1
    assert s.received == ["p:1"]
