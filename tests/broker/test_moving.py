r"""Planned moves: whatever is under way, whoever fails, nothing is lost, doubled or out of order.

Each link takes a millisecond. The overlay, in which p moves c and two clients behind t:

    a - p - c - c1
         \- t - t1
"""

from collections.abc import Iterator

import pytest

from broker.client_core import ClientState
from broker.messages import NodeKind
from broker.neighbours import Below
from routing.ids import NodeId
from tests.conversation import Client, Conversation

MS = 0.001
AT_ANY_TIME = [*range(0, 12, 2), *range(12, 60, 12), *range(60, 80, 2), 100]
"""When something fails, in milliseconds: from the beginning of a move until after its end."""
BROKERS = ("a", "p", "t", "c", "t1", "c1")


class Scene:
    """A subscriber and a publisher at every broker, all of whom want all there is."""

    def __init__(self, *, ordering: str = "pairwise") -> None:
        self.overlay = overlay = Conversation(ordering=ordering)
        overlay.brokers("a", p="a", t="p", c="p", t1="t", c1="c")
        self.publishers = [overlay.client(f"p-{name}", at=name) for name in BROKERS]
        self.subscribers = [overlay.client(f"s-{name}", at=name) for name in BROKERS]
        for publisher in self.publishers:
            publisher.advertises("TRUE")
        for subscriber in self.subscribers:
            subscriber.subscribes("TRUE")
        overlay.settle()

    def begin(self) -> bool:
        """Move a broker and two clients, in the middle of the traffic."""
        self.publish()
        children = (NodeId("c"), NodeId("p-p"), NodeId("s-p"))
        return self.overlay.world.move(NodeId("p"), NodeId("t"), *children)

    def publish(self) -> None:
        for number, publisher in enumerate(self.publishers):
            if publisher.core.state is ClientState.READY:
                publisher.publishes(x=number)

    def carry_on(self, ms: float) -> None:
        """Let time pass, in which everybody goes on publishing."""
        self.overlay.settle(ms / 2 * MS)
        self.publish()
        self.overlay.settle(ms / 2 * MS)

    def troubles(self) -> list[str]:
        """What is wrong in the end, when everybody has published once more."""
        self.overlay.settle(5)
        self.publish()
        self.overlay.settle(5)
        found = self.overlay.troubles(self.overlay.broker("t").publications.ordering.name)
        counts = {len(subscriber.received) for subscriber in self.subscribers}
        return found if len(counts) == 1 else [*found, f"received {counts}"]


def scenes() -> Iterator[tuple[Scene, Conversation]]:
    """Scenes at any moment of a move."""
    for ms in AT_ANY_TIME:
        scene = Scene()
        assert scene.begin()
        scene.carry_on(ms + 0.5)
        yield scene, scene.overlay


def test_before_anybody_pauses_the_taker_is_told_what_it_will_have_to_know() -> None:
    """As of any subscription, a portion at a time, of which the next waits for the one before."""
    overlay = Conversation()
    overlay.brokers("p", t="p")
    reader = overlay.client("reader", at="p")
    for x in range(5):
        reader.subscribes(f"x = {x}")
    ticker = overlay.client("ticker", at="p")
    ticker.advertises("TRUE")
    overlay.settle()
    overlay.world.trace.clear()

    assert overlay.world.move(NodeId("p"), NodeId("t"), NodeId("ticker"))
    overlay.settle()

    between = [line.split()[1:5] for line in overlay.world.trace]
    told = ["Subscribe", "Subscribe", "Confirm", "Confirm"]
    words = [word for *ends, word in between if ends in (["p", "->", "t:"], ["t", "->", "p:"])]
    assert words[:11] == [*told, *told, "Subscribe", "Confirm", "Pause"]
    assert len(overlay.broker("t").interests.subscriptions) == 5
    ticker.publishes(x=3)
    overlay.settle()
    assert reader.received == ["ticker:1"]


@pytest.mark.parametrize("ordering", ["none", "fifo", "pairwise", "sequencer"])
def test_a_move_in_the_middle_of_the_traffic_is_not_noticed(ordering: str) -> None:
    scene = Scene(ordering=ordering)
    assert scene.begin()
    for _ in range(40):
        scene.carry_on(5)

    assert scene.overlay.parent_of("c") == "t"
    assert scene.overlay.broker("p").moving.completed == 3
    clients = [scene.publishers[1].core, scene.subscribers[1].core]
    assert [client.broker for client in clients] == ["t", "t"]
    assert scene.troubles() == []


def test_who_is_below_hears_of_the_move_even_if_nobody_tells_anything_else_that_is_new() -> None:
    """Or it would look for a hub where there is none, should what was moved fail."""
    overlay = Conversation()
    overlay.brokers("p", t="p", c="p")
    clients = [overlay.client(f"at-{name}", at=name) for name in ("t", "c")]
    assert overlay.world.move(NodeId("p"), NodeId("t"), NodeId("c"))
    overlay.settle()

    known = [client.core.neighbourhood for client in clients]
    assert [told and told.parent_of(NodeId("c")) for told in known] == ["t", "t"]


def test_a_client_that_takes_somebody_else_for_the_hub_is_told_before_anything_is_looked_into() -> (
    None
):
    """From r it has not heard that a is further away now, and a would wait for an answer of r."""
    overlay = Conversation()
    overlay.brokers("r", a="r", m="r")
    client = overlay.client("client", at="r")
    assert overlay.world.move(NodeId("r"), NodeId("m"), NodeId("a"))
    overlay.settle()
    limits = overlay.world.limits
    overlay.freezes("r")
    overlay.settle(limits.heartbeat_timeout_s + limits.heartbeat_interval_s + 1)

    assert client.core.broker == "m"
    assert not client.core.has_lost_session


def test_a_greeting_that_was_left_behind_is_not_the_child_that_is_moved() -> None:
    """It had asked the taker as well where to join, and had joined before that answered."""
    scene = Scene()
    greeting = Below(node=NodeId("c"), incarnation=1, link=None, kind=NodeKind.BROKER, address="c")
    scene.overlay.broker("t").neighbours.put(greeting)
    assert scene.begin()
    scene.overlay.settle()

    assert scene.overlay.parent_of("c") == "t"
    assert scene.troubles() == []


def test_what_was_moved_is_a_child_as_any_other_when_the_taker_fails_later() -> None:
    scene = Scene()
    assert scene.begin()
    scene.overlay.settle(5)
    scene.publish()
    scene.overlay.settle(2 * MS)
    scene.overlay.crashes("t")
    scene.overlay.settle(5)

    assert {scene.overlay.parent_of(name) for name in ("c", "t1")} == {"p"}
    assert scene.troubles() == []


@pytest.mark.parametrize("victim", ["a", "p", "t", "c", "t1", "c1"])
def test_a_crash_at_any_time_of_a_move_loses_nothing_and_leaves_nothing(victim: str) -> None:
    for scene, overlay in scenes():
        overlay.crashes(victim)
        scene.carry_on(20)

        assert scene.troubles() == []


@pytest.mark.parametrize("pair", [("p", "t"), ("p", "c"), ("p", "s-p"), ("a", "p"), ("t", "t1")])
def test_a_connection_that_is_lost_at_any_time_of_a_move_is_made_again(
    pair: tuple[str, str],
) -> None:
    for scene, overlay in scenes():
        overlay.world.break_link(NodeId(pair[0]), NodeId(pair[1]))
        scene.carry_on(20)

        assert scene.troubles() == []


def test_operations_under_way_are_answered() -> None:
    for ms in AT_ANY_TIME:
        scene = Scene()
        overlay = scene.overlay
        assert scene.begin()
        overlay.settle(ms * MS)
        asking = [scene.subscribers[BROKERS.index(name)] for name in ("a", "p", "t", "c1")]
        for client in asking:
            _ask_for_more(client)
        overlay.settle(5)

        assert [len(client.answered) for client in asking] == [4] * 4
        assert scene.troubles() == []


def _ask_for_more(client: Client) -> None:
    client.unsubscribes(client.subscribes("x > 100"))
    client.advertises("x > 100")


@pytest.mark.parametrize("wants_at_taker", [True, False])
def test_what_the_taker_confirms_for_itself_is_not_confirmed_for_who_is_moved(
    *, wants_at_taker: bool
) -> None:
    """R knows of the subscriber behind c only when c has confirmed the advertisement.

    What t has confirmed of it comes to r when that lets nothing in, behind the subscription of a
    client of t; or it comes when t has taken c over.
    """
    for half_ms in range(12):
        overlay = Conversation()
        overlay.brokers("r", t="r", t1="t", t2="t1", c="r", d="c", e="d", f="e")
        publisher, subscriber = overlay.client("p", at="r"), overlay.client("s", at="f")
        subscriber.subscribes("TRUE")
        if wants_at_taker:
            overlay.client("u", at="t").subscribes("TRUE")
        overlay.settle()
        publisher.advertises("TRUE")
        overlay.settle(half_ms / 2 * MS)
        assert overlay.world.move(NodeId("r"), NodeId("t"), NodeId("c"))
        while not publisher.answered:
            overlay.settle(MS / 2)
        publisher.publishes(x=1)
        overlay.settle(5)

        assert overlay.parent_of("c") == "t"
        assert subscriber.received == ["p:1"]


def test_what_waits_outside_is_let_in_before_a_broker_is_moved_itself() -> None:
    """C does not hear of a subscription while f does not answer, to which it hands g over.

    P hands it over to t together with the subscriber, and has told it of that.
    """
    overlay = Conversation(delta=2)
    overlay.brokers("p", t="p", c="p", f="c", g="c")
    publisher, subscriber = overlay.client("publisher", at="g"), overlay.client("s", at="p")
    subscriber.subscribes("TRUE")
    overlay.settle()
    publisher.advertises("TRUE")
    overlay.settle(0.5 * MS)
    assert overlay.world.move(NodeId("c"), NodeId("f"), NodeId("g"))
    overlay.settle(2.5 * MS)
    overlay.freezes("f")
    overlay.settle(5 * MS)
    assert overlay.world.move(NodeId("p"), NodeId("t"), NodeId("c"), NodeId("s"))
    overlay.settle(20 * MS)
    overlay.goes_on("f")
    overlay.settle()
    publisher.publishes(x=1)
    overlay.settle(5)

    assert [overlay.parent_of(name) for name in ("c", "g")] == ["t", "f"]
    assert subscriber.received == ["publisher:1"]


def test_a_taker_that_hands_over_somebody_itself_by_then_answers_for_each_child() -> None:
    """T closes a gap, so that it does not pause any more, and begins a move of its own.

    What r tells of s must not be parked there, behind what r tells of q.
    """
    overlay = Conversation()
    overlay.brokers("r", t="r", u="t", x="t")
    publisher, subscriber = overlay.client("p", at="t"), overlay.client("s", at="r")
    overlay.client("q", at="r")
    slow = overlay.client("slow", at="t")
    publisher.advertises("TRUE")
    subscriber.subscribes("x = 1")
    slow.subscribes("x = 2")
    overlay.settle()
    overlay.freezes("q")
    assert overlay.world.move(NodeId("r"), NodeId("t"), NodeId("s"), NodeId("q"))
    overlay.settle(5 * MS)
    overlay.crashes("x")
    overlay.settle(20 * MS)
    assert overlay.world.move(NodeId("t"), NodeId("u"), NodeId("slow"))
    overlay.settle(2.5 * MS)
    publisher.publishes(x=2)
    overlay.settle(1.5 * MS)
    overlay.freezes("slow")
    overlay.goes_on("q")
    overlay.settle(20 * MS)
    overlay.goes_on("slow")
    overlay.settle()
    publisher.publishes(x=1)
    overlay.settle(5)

    assert subscriber.received == ["p:2"]
    assert overlay.broker("t").statistics().protocol_errors == 0
    assert overlay.troubles() == []


@pytest.mark.parametrize("child", ["c", "client"])
def test_who_was_moved_and_does_not_know_it_is_not_lost_where_it_goes_instead(child: str) -> None:
    """Giver and taker fail before the child has heard of it; a has heard from the taker."""
    overlay = Conversation(delta=2)
    overlay.brokers("r", a="r", p="a", t="p", c="p")
    client = overlay.client("client", at="p")
    assert overlay.world.move(NodeId("p"), NodeId("t"), NodeId(child))
    overlay.settle(2.5 * MS)
    overlay.freezes(child)
    overlay.settle(MS)
    overlay.crashes("p")
    overlay.settle(0.2)
    overlay.crashes("t")
    overlay.goes_on(child)
    overlay.settle(5)

    link = overlay.broker("a").neighbourhood.link_of(NodeId(child))
    assert link is not None
    assert link.parent == "a"
    assert not client.core.has_lost_session


@pytest.mark.parametrize("subscriber_at", ["c", "d"])
def test_who_comes_to_the_hub_of_what_its_broker_was_part_of_is_sent_to_its_own(
    subscriber_at: str,
) -> None:
    """C is handed over to t and fails with the giver; those behind c have heard of no move.

    They go to r, in whose stead t is in the place of c, and r hears of that only from t.
    """
    overlay = Conversation(delta=2)
    overlay.brokers("r", p="r", t="p", c="p", d="c")
    subscriber, publisher = overlay.client("s", at=subscriber_at), overlay.client("pub", at="t")
    subscriber.subscribes("TRUE")
    publisher.advertises("TRUE")
    overlay.settle()
    assert overlay.world.move(NodeId("p"), NodeId("t"), NodeId("c"))
    while "c" not in overlay.broker("t").neighbours.below:
        overlay.settle(MS / 2)
    overlay.crashes("c", "p")
    overlay.freezes("t")
    publisher.publishes(x=1)
    overlay.settle(0.1)
    overlay.goes_on("t")
    overlay.settle(5)

    assert subscriber.received == ["pub:1"]
    assert overlay.troubles() == []


def test_who_is_moved_had_subscribers_before_the_taker_knew_of_them() -> None:
    """P publishes, while its connection is lost, before t is told of s; c fails before it comes."""
    overlay = Conversation(delta=2)
    overlay.brokers("r", a="r", t="a", c="a")
    publisher, subscriber = overlay.client("p", at="c"), overlay.client("s", at="r")
    publisher.advertises("TRUE")
    subscriber.subscribes("TRUE")
    overlay.settle()
    overlay.loses_connection("p", "c")
    publisher.publishes(x=1)
    assert overlay.world.move(NodeId("a"), NodeId("t"), NodeId("c"))
    while overlay.parent_of("c") != "t":
        overlay.settle(MS / 2)
    overlay.crashes("c")
    overlay.settle(5)

    assert subscriber.received == ["p:1"]


def test_who_was_moved_and_does_not_know_it_learns_who_stands_around_the_taker() -> None:
    """B takes c over, and then the place of r, so that s is a client of b when b fails, too."""
    overlay = Conversation(delta=2)
    overlay.brokers("r", b="r", c="r", d="r")
    subscriber, publisher = overlay.client("s", at="r"), overlay.client("p", at="d")
    subscriber.subscribes("TRUE")
    publisher.advertises("TRUE")
    overlay.settle()
    assert overlay.world.move(NodeId("r"), NodeId("b"), NodeId("c"))
    while "c" not in overlay.broker("b").neighbours.below:
        overlay.settle(MS / 2)
    overlay.freezes("c")
    overlay.crashes("r")
    overlay.settle(0.2)
    overlay.freezes("s")
    overlay.crashes("b")
    overlay.goes_on("c")
    overlay.settle(0.2)
    overlay.goes_on("s")
    overlay.settle(5)
    publisher.publishes(x=1)
    overlay.settle(5)

    assert subscriber.received == ["p:1"]
    assert not subscriber.core.has_lost_session


def test_a_client_that_was_moved_knows_where_it_is_whatever_it_was_told_meanwhile() -> None:
    """P tells of a broker that has joined, when the client is prepared and t has paused."""
    overlay = Conversation(delta=2)
    overlay.brokers("r", p="r", t="p")
    client = overlay.client("client", at="p")
    overlay.freezes("t")
    assert overlay.world.move(NodeId("p"), NodeId("t"), NodeId("client"))
    overlay.settle(5 * MS)
    overlay.world.add_broker(NodeId("late"), NodeId("p"), delta=2)
    overlay.settle(5 * MS)
    overlay.crashes("late")
    overlay.settle(20 * MS)
    overlay.goes_on("t")
    overlay.settle()

    own = client.core._known_neighbourhood().link_of(NodeId("client"))
    assert own is not None
    assert (client.core.broker, own.parent) == ("t", "t")


def test_what_a_taker_confirms_does_not_count_as_unconfirmed_at_the_giver() -> None:
    """S asks, and is handed over to t, beyond which all publishers are: nobody asks p again.

    T fails, so that s and u go to p, and then u, which has pub:1 for s.
    """
    overlay = Conversation(delta=2)
    overlay.brokers("p", t="p", u="t")
    publisher, subscriber = overlay.client("pub", at="u"), overlay.client("s", at="p")
    publisher.advertises("TRUE")
    overlay.settle()
    overlay.freezes("u")
    subscriber.subscribes("TRUE")
    overlay.settle(5 * MS)
    assert overlay.world.move(NodeId("p"), NodeId("t"), NodeId("s"))
    overlay.settle(20 * MS)
    overlay.goes_on("u")
    while not subscriber.answered:
        overlay.settle(MS)
    assert subscriber.core.broker == overlay.broker("t").node
    overlay.crashes("t")
    overlay.settle(1)
    overlay.loses_connection("u", "p")
    publisher.publishes(x=1)
    overlay.settle(1.5 * MS)
    overlay.crashes("u")
    overlay.settle(5)

    assert subscriber.received == ["pub:1"]


def test_what_is_being_installed_for_who_is_moved_is_not_taken_to_be_installed() -> None:
    """A has not confirmed the advertisement to b, which hands its client over to t, and both fail.

    If r took it to be known everywhere, it would take the subscriber, of which a knew, to be known
    to t.
    """
    overlay = Conversation(delta=2)
    overlay.brokers("r", a="r", b="a", t="b")
    subscriber, publisher = overlay.client("s", at="r"), overlay.client("p", at="b")
    subscriber.subscribes("TRUE")
    overlay.client("q", at="a").advertises("TRUE")
    overlay.settle()
    overlay.freezes("a")
    publisher.advertises("TRUE")
    overlay.settle(1.5 * MS)
    assert overlay.world.move(NodeId("b"), NodeId("t"), NodeId("p"))
    overlay.settle(2.5 * MS)
    overlay.freezes("p")
    overlay.settle(10 * MS)
    overlay.crashes("a", "b")
    overlay.settle(1)
    overlay.goes_on("p")
    while not publisher.answered:
        overlay.settle(MS)
    publisher.publishes(x=1)
    overlay.settle(5)

    assert publisher.core.broker == overlay.broker("t").node
    assert subscriber.received == ["p:1"]


def test_while_others_are_slow_nothing_is_moved_and_everything_flows_again() -> None:
    scene = Scene()
    scene.overlay.freezes("s-a")
    assert scene.begin()
    scene.overlay.settle(3)

    assert scene.overlay.parent_of("c") == "p"
    scene.overlay.goes_on("s-a")
    assert scene.troubles() == []


def test_who_takes_a_broker_over_knows_what_its_client_does_not_know_to_be_stable() -> None:
    """C fails before it has told p that p:1 is stable; t, where p:1 never was, is not to send it.

    It would come to u, who has subscribed since, after q:1.
    """
    again = 0
    for ms in range(40):
        overlay = Conversation()
        overlay.brokers("r", t="r", c="r")
        p, q = overlay.client("p", at="c"), overlay.client("q", at="r")
        s, u = overlay.client("s", at="r"), overlay.client("u", at="t")
        p.advertises("TRUE")
        q.advertises("TRUE")
        s.subscribes("TRUE")
        overlay.settle()
        p.publishes(x=1)
        overlay.settle(3 * MS)
        u.subscribes("TRUE")
        overlay.settle(4 * MS)
        q.publishes(x=2)
        assert overlay.world.move(NodeId("r"), NodeId("t"), NodeId("c"))
        overlay.settle(ms * MS)
        again += p.core.unconfirmed and overlay.parent_of("c") == "t"
        overlay.crashes("c")
        overlay.settle(5)

        assert overlay.troubles() == []
        assert u.received == ["q:1"]
    assert again


def test_a_move_that_makes_no_sense_is_not_begun() -> None:
    scene = Scene()
    world = scene.overlay.world

    assert not world.move(NodeId("p"), NodeId("t"), NodeId("t"))
    assert not world.move(NodeId("p"), NodeId("s-p"), NodeId("c"))
    assert not world.move(NodeId("p"), NodeId("t"), NodeId("c1"))
    assert not world.move(NodeId("p"), NodeId("t"))


def test_a_taker_that_has_not_joined_yet_when_the_giver_fails_has_nobody() -> None:
    begun = 0
    for ms in (8.1, 8.6, 9.1, 9.6):
        scene = Scene()
        overlay = scene.overlay
        overlay.world.add_broker(NodeId("late"), NodeId("p"))  # it knows nobody else
        overlay.settle(ms * MS)
        children = (NodeId("c"), NodeId("p-p"), NodeId("s-p"))
        begun += overlay.world.move(NodeId("p"), NodeId("late"), *children)
        overlay.settle(0.6 * MS)
        overlay.crashes("p")
        overlay.settle(10)

        assert overlay.parent_of("c") == scene.subscribers[1].core.broker == "a"
        assert scene.troubles() == []
    assert begun


# --- what is given back to a broker that had failed ----------------------------------------


def test_a_broker_that_is_back_gets_back_who_was_below_it() -> None:
    for ms in (0.5, 3.5, 7.5, 60.5):
        scene = Scene()
        overlay = scene.overlay
        scene.publish()
        overlay.settle(ms * MS)
        overlay.crashes("p")
        overlay.settle(2)
        scene.publish()
        overlay.restarts("p")
        for _ in range(100):
            scene.carry_on(40)

        assert [overlay.parent_of(name) for name in ("p", "t", "c")] == ["a", "p", "p"]
        assert scene.publishers[1].core.broker == scene.subscribers[1].core.broker == "p"
        assert scene.troubles() == []


def test_a_root_that_is_back_stays_below_who_took_its_place_with_what_it_had() -> None:
    overlay = Conversation()
    overlay.brokers("r", b="r", c="r", d="r", b1="b")
    client = overlay.client("client", at="r")
    client.advertises("TRUE")
    overlay.settle()
    overlay.crashes("r")
    overlay.settle(5)
    overlay.restarts("r")
    overlay.settle(5)

    parents = [overlay.parent_of(name) for name in ("b", "r", "c", "d", "b1")]
    assert parents == [None, "b", "r", "r", "b"]
    assert client.core.broker == "r"
    assert overlay.troubles() == []
