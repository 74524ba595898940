r"""Crashes: the schedules that are hard, each on links of one millisecond.

Most of them are played many times, with the crash half a millisecond later each time, because what
is on its way at that moment is what matters. The overlay, unless a test says otherwise:

    a - r - m - b - b1        m fails, r is the hub, b and c are its orphans
             \- c - c1
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from broker.client_core import ClientState
from broker.core import BrokerCore
from broker.effects import CloseLink, Effect, OpenLink, SendMessage
from broker.inputs import LinkClosed, LinkFailed, LinkId, LinkOpened, MessagesReceived, TimerFired
from broker.messages import (
    PROTOCOL_VERSION,
    Confirm,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Join,
    Message,
    Neighbourhood,
    NodeKind,
    Summon,
    Welcome,
)
from broker.sim.world import SIMULATED_LIMITS
from faulttol.neighbourhood import Life, TopologyLink
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from tests.conversation import Client, Conversation

MS = 0.001
AT_ANY_TIME = [0.5 * half for half in range(19)]
"""When something fails, in milliseconds: from the call until everybody has confirmed everything."""
A_WHILE_AFTER = [0.0, 1.0, 1.7, 2.5, 3.2, 4.5, 6.0, 8.0, 60.0]
"""When something else fails after that: in the middle of the re-forming."""


class Scene:
    """A subscriber and a publisher at five brokers, all of whom want all there is."""

    def __init__(self, *, delta: int = 1, ordering: str = "pairwise") -> None:
        self.overlay = overlay = Conversation(delta=delta, ordering=ordering)
        overlay.brokers("a", r="a", m="r", b="m", c="m", b1="b", c1="c")
        brokers = ["a", "r", "b", "b1", "c1"]
        self.publishers = [overlay.client(f"p-{name}", at=name) for name in brokers]
        self.subscribers = [overlay.client(f"s-{name}", at=name) for name in brokers]
        for publisher in self.publishers:
            publisher.advertises("TRUE")
        for subscriber in self.subscribers:
            subscriber.subscribes("TRUE")
        overlay.settle()

    def publish(self) -> None:
        for publisher in self.publishers:
            publisher.publishes(x=1)
            publisher.publishes(x=2)

    def troubles(self) -> list[str]:
        """What is wrong in the end, when everybody has published twice more."""
        self.publish()
        self.overlay.settle(5)
        found = self.overlay.troubles()
        for subscriber in self.subscribers:
            if len(subscriber.received) != 4 * len(self.publishers):
                found.append(f"{subscriber.node.name} has {len(subscriber.received)}")
        return found


def scenes(**settings: Any) -> Iterator[tuple[Scene, Conversation]]:
    """Scenes in the middle of the traffic, each half a millisecond further than the one before."""
    for ms in AT_ANY_TIME:
        scene = Scene(**settings)
        scene.publish()
        scene.overlay.settle(ms * MS)
        yield scene, scene.overlay


def a_fork(**settings: Any) -> Conversation:
    """A hub, whoever is going to fail, and three orphans."""
    overlay = Conversation(**settings)
    overlay.brokers("r", m="r", b="m", c="m", d="m")
    return overlay


# --- how the tree closes -----------------------------------------------------------------------


def test_orphans_attach_to_the_parent_of_the_broker_that_failed() -> None:
    overlay = a_fork()
    overlay.crashes("m")
    overlay.settle()

    assert [overlay.parent_of(name) for name in "rbcd"] == [None, "r", "r", "r"]
    assert overlay.broker("r").reforming.reformed == 1
    assert overlay.troubles() == []


def test_if_the_root_fails_the_first_of_its_children_by_name_is_the_new_root() -> None:
    overlay = Conversation()
    overlay.brokers("r", d="r", b="r", c="r", a="b")
    client = overlay.client("client", at="r")
    overlay.crashes("r")
    overlay.settle()

    assert [overlay.parent_of(name) for name in "abcd"] == ["b", None, "b", "b"]
    assert client.core.broker == "b"
    assert overlay.troubles() == []


def test_a_leaf_that_fails_is_missed_by_nobody() -> None:
    overlay = a_fork()
    s = overlay.client("s", at="d")
    s.subscribes("TRUE")
    overlay.client("p", at="b").advertises("TRUE")
    overlay.settle()
    overlay.crashes("d", "s")
    overlay.settle(60)

    assert overlay.troubles() == []
    assert len(overlay.broker("b").interests.subscriptions) == 0


def test_a_crash_at_any_time_loses_nothing_and_leaves_nothing() -> None:
    for scene, overlay in scenes():
        overlay.crashes("m")
        overlay.settle(5)

        assert overlay.parent_of("b") == overlay.parent_of("c") == "r"
        assert scene.troubles() == []


@pytest.mark.parametrize("ordering", ["none", "fifo", "sequencer"])
def test_other_orderings_survive_as_well(ordering: str) -> None:
    for scene, overlay in scenes(ordering=ordering):
        overlay.crashes("m")
        overlay.settle(5)
        scene.publish()
        overlay.settle(5)

        assert overlay.troubles(ordering) == []
        assert {len(subscriber.received) for subscriber in scene.subscribers} == {20}


def test_the_root_fails_at_any_time() -> None:
    for scene, overlay in scenes():
        overlay.crashes("a")
        overlay.settle(5)

        assert overlay.parent_of("r") is None
        assert scene.troubles() == []


def test_the_broker_of_clients_fails_at_any_time() -> None:
    for scene, overlay in scenes():
        overlay.crashes("b1")
        overlay.settle(5)

        assert {client.core.broker for client in (scene.publishers[3], scene.subscribers[3])} == {
            "b"
        }
        assert scene.troubles() == []


def test_two_neighbours_fail_at_the_same_time_with_delta_2() -> None:
    for scene, overlay in scenes(delta=2):
        overlay.crashes("m", "b")
        overlay.settle(5)

        assert overlay.parent_of("b1") == overlay.parent_of("c") == "r"
        assert scene.troubles() == []


# --- the traps ---------------------------------------------------------------------------------


def before_c_has_anything(**wanted: str) -> tuple[Conversation, dict[str, Client]]:
    """P at b publishes 1 and 2, m passes them on, and fails; c alone had lost its connection.

    Each client, named for its broker, wants what it says.
    """
    overlay = a_fork()
    p = overlay.client("p", at="b")
    p.advertises("TRUE")
    clients = {}
    for name, filter_text in wanted.items():
        clients[name] = overlay.client(name, at=name[-1])
        clients[name].subscribes(filter_text)
    overlay.settle()
    p.publishes(x=1)
    p.publishes(x=2)
    overlay.settle(1.5 * MS)
    overlay.loses_connection("m", "c")
    overlay.settle(2.7 * MS)
    for name, client in clients.items():
        assert len(client.received) == (0 if name[-1] == "c" else 1)
    overlay.crashes("m")
    overlay.settle()
    return overlay, clients


def test_a_later_one_of_a_publisher_proves_nothing_to_a_hub_that_did_not_want_the_earlier() -> None:
    """R has had 2 already, when it is given 1 for the first time, for c."""
    overlay, clients = before_c_has_anything(at_c="x = 1", at_r="x = 2")

    assert clients["at_c"].received == ["p:1"]
    assert clients["at_r"].received == ["p:2"]
    assert overlay.troubles() == []


def test_nothing_overtakes_an_earlier_one_of_its_publisher_that_nobody_else_wants() -> None:
    """D has had 2 from m: it is released. If c got it before 1, c would refuse 1."""
    overlay, clients = before_c_has_anything(at_c="x = 1", also_at_c="x = 2", at_d="x = 2")

    assert clients["at_c"].received == ["p:1"]
    assert clients["also_at_c"].received == clients["at_d"].received == ["p:2"]
    assert overlay.troubles() == []


def test_what_its_own_source_has_settled_has_not_been_released() -> None:
    """P's publication waits for nothing at b, and m fails before it gets it; z's meets it at a.

    Were it taken for released, t would have it before z's, and v after it.
    """
    for ms in AT_ANY_TIME:
        overlay = Conversation()
        overlay.brokers("a", r="a", m="r", b="m", c="m")
        p, z = overlay.client("p", at="b"), overlay.client("z", at="a")
        t, v = overlay.client("t", at="c"), overlay.client("v", at="a")
        for publisher in (p, z):
            publisher.advertises("TRUE")
        for subscriber in (t, v):
            subscriber.subscribes("TRUE")
        overlay.settle()
        p.publishes(x=1)
        overlay.settle(1.5 * MS)
        overlay.crashes("m")
        overlay.settle(ms * MS)
        z.publishes(x=2)
        overlay.settle(5)

        assert sorted(t.received) == ["p:1", "z:1"]
        assert overlay.troubles() == []


@pytest.mark.parametrize("then", A_WHILE_AFTER)
def test_what_was_released_stays_so_when_the_first_hub_dies_during_the_merge(then: float) -> None:
    for scene, overlay in scenes(delta=2):
        overlay.crashes("m")
        overlay.settle(then * MS)
        overlay.crashes("r")
        overlay.settle(5)

        assert overlay.parent_of("b") == overlay.parent_of("c") == "a"
        assert scene.troubles() == []


def test_what_the_hub_itself_has_sent_and_nobody_confirmed_is_part_of_the_merge() -> None:
    """D has it, b and c do not, and the publisher is a client of the hub."""
    overlay = a_fork()
    p = overlay.client("p", at="r")
    p.advertises("TRUE")
    subscribers = [overlay.client(f"s-{name}", at=name) for name in "rbcd"]
    for subscriber in subscribers:
        subscriber.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(1.5 * MS)
    overlay.loses_connection("m", "b")
    overlay.loses_connection("m", "c")
    overlay.settle(2.7 * MS)
    assert [len(subscriber.received) for subscriber in subscribers] == [1, 0, 0, 1]
    overlay.crashes("m")
    overlay.settle()

    assert {tuple(subscriber.received) for subscriber in subscribers} == {("p:1",)}
    assert overlay.troubles() == []


def test_what_counts_is_the_order_on_each_link() -> None:
    """M sends to c what b1 and r publish as r orders it, which is not as it came to m."""
    for ms in AT_ANY_TIME:
        for lead in (0.5, 1.5, 2.5):
            scene = Scene()
            scene.publishers[3].publishes(x=1)
            scene.overlay.settle(lead * MS)
            scene.publishers[1].publishes(x=2)
            scene.publishers[4].publishes(x=3)
            scene.overlay.settle(ms * MS)
            scene.overlay.crashes("m")
            scene.overlay.settle(5)

            assert scene.overlay.troubles() == []
            assert [len(subscriber.received) for subscriber in scene.subscribers] == [3] * 5


def test_a_client_that_has_left_had_what_it_had_in_its_order() -> None:
    overlay = Conversation(delta=2)
    overlay.brokers("r", a="r", z="r")
    publishers = [overlay.client(name, at="r") for name in ("first", "then")]
    gone, late = overlay.client("gone", at="a"), overlay.client("late", at="r")
    slow = overlay.client("slow", at="z")
    for publisher in publishers:
        publisher.advertises("TRUE")
    for subscriber in (gone, slow):
        subscriber.subscribes("TRUE")
    late.subscribes("x = 2")
    overlay.settle()
    overlay.freezes("z")  # so that nothing becomes stable
    publishers[0].publishes(x=1)
    overlay.settle(10 * MS)
    late.subscribes("x = 1")
    overlay.settle(10 * MS)
    publishers[1].publishes(x=2)
    overlay.settle(10 * MS)
    gone.leaves()
    overlay.settle(10 * MS)
    overlay.crashes("r", "z")
    overlay.settle(5)

    assert gone.received == ["first:1", "then:1"]
    assert late.received == ["then:1"]


def test_what_has_been_confirmed_to_the_dead_is_confirmed_to_the_hub_again() -> None:
    for ms in AT_ANY_TIME:
        overlay = a_fork()
        p, s = overlay.client("p", at="b"), overlay.client("s", at="c")
        p.advertises("TRUE")
        s.subscribes("TRUE")
        overlay.settle()
        p.publishes(urgent=True, x=1)
        overlay.settle(ms * MS)
        overlay.crashes("m")
        overlay.settle()

        assert p.core.unconfirmed == 0
        assert s.received == ["p:1"]
        assert overlay.troubles() == []


def test_what_is_stable_behind_something_that_is_not_is_confirmed_by_the_hub() -> None:
    """T is slow to confirm what q published first, and m hears of p's only after that."""
    overlay = Conversation()
    overlay.brokers("r", m="r")
    q, p = overlay.client("q", at="m"), overlay.client("p", at="m")
    t, s = overlay.client("t", at="r"), overlay.client("s", at="r")
    for publisher in (q, p):
        publisher.advertises("TRUE")
    t.subscribes("x = 1")
    s.subscribes("x = 2")
    overlay.settle()
    overlay.freezes("t")
    q.publishes(x=1)
    p.publishes(x=2)
    overlay.settle(0.1)
    assert [q.core.unconfirmed, p.core.unconfirmed] == [1, 1]
    overlay.crashes("m")
    overlay.settle(0.1)
    overlay.goes_on("t")
    overlay.settle()

    assert [q.core.unconfirmed, p.core.unconfirmed] == [0, 0]
    assert overlay.troubles() == []


@pytest.mark.parametrize("then", A_WHILE_AFTER)
def test_an_orphan_that_was_adopted_fails_and_its_children_are_its_side(then: float) -> None:
    for scene, overlay in scenes(delta=2):
        overlay.crashes("m")
        overlay.settle(5 * MS)
        scene.publishers[2].publishes(x=3)
        overlay.settle(then * MS)
        overlay.crashes("c")
        overlay.settle(5)

        assert overlay.parent_of("c1") == "r"
        scene.publish()
        overlay.settle(5)
        assert overlay.troubles() == []
        assert {len(subscriber.received) for subscriber in scene.subscribers} == {21}


def test_two_failed_brokers_under_one_hub_are_two_merges() -> None:
    for ms in AT_ANY_TIME:
        overlay = Conversation(delta=2)
        overlay.brokers("r", m="r", n="r", b="m", c="m", d="n", e="n")
        publishers = [overlay.client(f"p-{name}", at=name) for name in "rbcde"]
        subscribers = [overlay.client(f"s-{name}", at=name) for name in "rbcde"]
        for publisher in publishers:
            publisher.advertises("TRUE")
        for subscriber in subscribers:
            subscriber.subscribes("TRUE")
        overlay.settle()
        for publisher in publishers:
            publisher.publishes(x=1)
        overlay.settle(ms * MS)
        overlay.crashes("m", "n")
        overlay.settle(5)

        assert overlay.broker("r").reforming.reformed == 2
        assert overlay.troubles() == []
        assert {len(subscriber.received) for subscriber in subscribers} == {5}


def test_nobody_beyond_the_hub_is_sent_what_was_settled_before_its_subscription_came() -> None:
    """S has p:1 from d, which has failed, and had not heard yet that t wants it as well.

    What comes down meanwhile, q:1, t has got already, and s gets it after p:1.
    """
    shared = 0
    for early, late in itertools.product(AT_ANY_TIME[:8], AT_ANY_TIME):
        overlay = Conversation(delta=1)
        overlay.brokers("r", m="r", d="m", e="r")
        p, q = overlay.client("p", at="d"), overlay.client("q", at="r")
        s, t = overlay.client("s", at="d"), overlay.client("t", at="e")
        p.advertises("x = 1")
        q.advertises("x = 2")
        s.subscribes("TRUE")
        t.subscribes("x = 2")
        overlay.settle()
        t.subscribes("x = 1")
        overlay.settle(early * MS)
        p.publishes(x=1)
        overlay.settle(2.1 * MS)
        overlay.crashes("d")
        overlay.settle(late * MS)
        q.publishes(x=2)
        overlay.settle(5)

        shared += len(set(s.received) & set(t.received))
        assert overlay.troubles() == []
    assert shared


def test_what_a_client_has_from_before_it_subscribed_does_not_say_in_which_order() -> None:
    """S0 got p2:1 and p1:1 from r when it had not been confirmed that it wants them in order.

    S1 got p1:1 first, as d knew nobody who wants both and is beyond r, and is still to have p2:1.
    """
    overlay = Conversation(delta=2)
    overlay.brokers("r", d="r", h="r")
    p1, p2 = overlay.client("p1", at="d"), overlay.client("p2", at="h")
    s0, s1 = overlay.client("s0", at="r"), overlay.client("s1", at="d")
    p1.advertises("TRUE")
    p2.advertises("TRUE")
    s1.subscribes("TRUE")
    overlay.client("u", at="h").subscribes("TRUE", ordered=False)
    overlay.settle()
    s0.subscribes("TRUE")
    p2.publishes(x=2)
    overlay.settle(0.5 * MS)
    p1.publishes(x=1)
    overlay.settle(2.3 * MS)
    overlay.crashes("d")
    overlay.settle(0.4 * MS)
    overlay.crashes("r")
    overlay.settle(5)

    assert s1.received == ["p1:1", "p2:1"]
    assert overlay.troubles() == []


def test_who_has_asked_in_time_is_not_passed_by_for_somebody_who_may_not_have_it_in_order() -> None:
    """The hub, h, has confirmed what s2 asks for when p1:1 comes, which went to s2 before that.

    So s2 does not have p1:1 and p2:1 in the order in which h has settled them, and s0, who got
    p2:1 from d, is to have p1:1.
    """
    overlay = Conversation(delta=1)
    overlay.brokers("a", h="a", d="h")
    p1, p2 = overlay.client("p1", at="a"), overlay.client("p2", at="d")
    s0, s2 = overlay.client("s0", at="d"), overlay.client("s2", at="a")
    p1.advertises("TRUE")
    p2.advertises("TRUE")
    s0.subscribes("TRUE")
    overlay.client("u", at="a").subscribes("TRUE", ordered=False)
    overlay.settle()
    s2.subscribes("TRUE")
    overlay.settle(1.5 * MS)
    p2.publishes(x=2)
    overlay.settle(1.7 * MS)
    p1.publishes(x=1)
    overlay.settle(2.5 * MS)
    overlay.crashes("d")
    overlay.settle(5)

    assert s0.received == ["p2:1", "p1:1"]
    assert s2.received == []
    assert overlay.troubles() == []


@pytest.mark.parametrize("does_hub_fail", [False, True])
def test_who_asks_for_no_order_is_sent_what_others_beyond_the_hub_came_too_late_for(
    *, does_hub_fail: bool
) -> None:
    """S has p:1 from d, which could not send it up before it failed.

    U asked for it in time, and t, who wants it in order, when d could not hear of that any more.
    """
    for late in AT_ANY_TIME:
        overlay = Conversation(delta=2)
        overlay.brokers("r", m="r", d="m", e="r")
        p, q = overlay.client("p", at="d"), overlay.client("q", at="r")
        s, t, u = (overlay.client(name, at=at) for name, at in (("s", "d"), ("t", "e"), ("u", "e")))
        p.advertises("x = 1")
        q.advertises("x = 2")
        s.subscribes("TRUE")
        t.subscribes("x = 2")
        u.subscribes("x = 1", ordered=False)
        overlay.settle()
        overlay.loses_connection("d", "m")
        p.publishes(x=1)
        overlay.settle(2.1 * MS)
        overlay.crashes("d")
        t.subscribes("x = 1")
        overlay.settle(late * MS)
        if does_hub_fail:
            overlay.crashes("m")
        q.publishes(x=2)
        overlay.settle(5)

        assert "p:1" in s.received
        assert "p:1" not in t.received
        assert u.received == ["p:1"]
        assert overlay.troubles() == []


@pytest.mark.parametrize("then", [1.0, 3.0, 6.0])
def test_what_somebody_got_who_asked_while_it_was_under_way_keeps_its_place(then: float) -> None:
    """S and t ask for p:1 when it is settled, and not stable, as z is far away.

    When n fails, the hub may give it to s. Then q:1 comes, and m fails, where t is.
    """
    overlay = Conversation(delta=2)
    overlay.brokers("r", m="r", n="r", b="n", c="b", d="c", e="d")
    p, q = overlay.client("p", at="m"), overlay.client("q", at="r")
    s, t, z = (overlay.client(name, at=at) for name, at in (("s", "n"), ("t", "m"), ("z", "e")))
    p.advertises("x = 1")
    q.advertises("x = 2")
    s.subscribes("x = 2")
    t.subscribes("x = 2")
    z.subscribes("x = 1")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(3 * MS)
    s.subscribes("x = 1")
    t.subscribes("x = 1")
    overlay.settle(8 * MS)
    overlay.crashes("n")
    overlay.settle(then * MS)
    q.publishes(x=2)
    overlay.crashes("m")
    overlay.settle(5)

    assert overlay.troubles() == []
    assert z.received == ["p:1"]
    assert [client.received[-1] for client in (s, t)] == ["q:1", "q:1"]


@pytest.mark.parametrize("then", [3.0, 5.0, 9.0])
def test_nobody_is_given_what_was_published_before_it_asked(then: float) -> None:
    """T asks for p:1 when that has passed by, and gets q:1. The hub knows nobody who has both.

    U has them, behind the hub's parent.
    """
    overlay = Conversation()
    overlay.brokers("r", m="r", n="m")
    p, q = overlay.client("p", at="r"), overlay.client("q", at="r")
    u, s, t = (overlay.client(name, at=at) for name, at in (("u", "r"), ("s", "n"), ("t", "n")))
    p.advertises("x = 1")
    q.advertises("x = 2")
    overlay.settle()
    u.subscribes("TRUE")
    s.subscribes("x = 1")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(2 * MS)
    t.subscribes("TRUE")
    overlay.settle(2 * MS)
    q.publishes(x=2)
    overlay.settle(then * MS)
    overlay.crashes("n")
    overlay.settle(5)

    assert overlay.troubles() == []
    assert u.received == ["p:1", "q:1"]
    assert t.received == ["q:1"]


@pytest.mark.parametrize("then", [0.0, 0.5, 1.0])
def test_what_somebody_far_down_got_the_hub_still_holds(then: float) -> None:
    """T shares nothing with u, so that d released p:1 to it; c held it for s, who does."""
    overlay = Conversation(delta=2)
    overlay.brokers("r", a="r", b="a", g="b", h="g", c="h", d="c", e="d")
    p, q = overlay.client("p", at="e"), overlay.client("q", at="r")
    u, s, t = (overlay.client(name, at=at) for name, at in (("u", "r"), ("s", "c"), ("t", "d")))
    p.advertises("x = 1")
    q.advertises("x = 2")
    overlay.settle()
    u.subscribes("TRUE")
    s.subscribes("TRUE")
    t.subscribes("x = 1")
    overlay.settle()
    p.publishes(x=1)
    q.publishes(x=2)
    overlay.settle(3 * MS)
    overlay.crashes("c")
    overlay.settle(then * MS)
    overlay.crashes("d")
    overlay.settle(5)

    assert overlay.troubles() == []
    assert u.received == s.received == ["q:1", "p:1"]
    assert t.received == ["p:1"]


def test_a_hub_learns_who_has_what_comes_from_an_orphan_and_nobody_above_announces() -> None:
    overlay = Conversation()
    overlay.brokers("r", m="r", b="m")
    p, s, t = (overlay.client(name, at=at) for name, at in (("p", "b"), ("s", "b"), ("t", "r")))
    p.advertises("TRUE")
    s.subscribes("x = 1")
    t.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(1.5 * MS)
    overlay.crashes("m")
    overlay.settle()

    clients = {entry.client for entry in overlay.broker("r").interests.subscriptions}
    assert clients == {"s", "t"}
    assert overlay.troubles() == []


@pytest.mark.parametrize("then", [5.5, 6.0, 6.5, 7.0])
def test_who_is_adopted_has_things_in_another_order_than_the_hub(then: float) -> None:
    """The hub settled p:1 before it heard of q:1, but s and t got q:1 first; s lacks p:1.

    When c, behind which s is, fails after r, it does not count when the hub settled p:1.
    """
    overlay = Conversation(delta=2)
    overlay.brokers("r", a="r", c="r", e="r", d="c")
    p, q = overlay.client("p", at="a"), overlay.client("q", at="e")
    s, t = overlay.client("s", at="d"), overlay.client("t", at="e")
    p.advertises("TRUE")
    q.advertises("TRUE")
    overlay.settle()
    s.subscribes("TRUE")
    t.subscribes("TRUE")
    overlay.settle()
    q.publishes(x=1)
    overlay.settle(1.5 * MS)
    p.publishes(x=2)
    overlay.settle(1 * MS)
    overlay.crashes("r")
    overlay.settle(then * MS)
    overlay.crashes("c")
    overlay.settle(5)

    assert overlay.troubles() == []
    assert s.received == t.received == ["q:1", "p:1"]


@pytest.mark.parametrize("then", [0.0, 1.0, 2.5])
def test_who_asked_first_is_told_by_how_long_ago_it_was(then: float) -> None:
    """S has p:1 and lacks q:1, t the other way round, and only t asked too late for what it lacks.

    Those who could tell, r and m, have failed.
    """
    overlay = Conversation(delta=2)
    overlay.brokers("r", m="r", b="m")
    p, q = overlay.client("p", at="r"), overlay.client("q", at="m")
    s, t = overlay.client("s", at="b"), overlay.client("t", at="r")
    p.advertises("TRUE")
    q.advertises("TRUE")
    overlay.settle()
    s.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.settle(0.5 * MS)
    t.subscribes("TRUE")
    overlay.settle(1 * MS)
    q.publishes(x=2)
    overlay.settle(2 * MS)
    overlay.crashes("m")
    overlay.settle(then * MS)
    overlay.crashes("r")
    overlay.settle(5)

    assert overlay.troubles() == []
    assert s.received == ["p:1", "q:1"]


@pytest.mark.parametrize("then", A_WHILE_AFTER)
def test_a_member_dies_while_the_hub_waits(then: float) -> None:
    for scene, overlay in scenes(delta=2):
        overlay.crashes("m")
        overlay.settle(then * MS)
        overlay.crashes("b")
        overlay.settle(5)

        assert overlay.parent_of("b1") == overlay.parent_of("c") == "r"
        assert scene.troubles() == []


@pytest.mark.parametrize("then", A_WHILE_AFTER)
def test_the_hub_dies_while_it_waits_and_so_does_a_member(then: float) -> None:
    for scene, overlay in scenes(delta=3):
        overlay.crashes("m")
        overlay.settle(then * MS)
        overlay.crashes("r", "b")
        overlay.settle(5)

        assert overlay.parent_of("b1") == overlay.parent_of("c") == "a"
        assert scene.troubles() == []


def test_a_hub_that_steps_down_dials_again_whom_it_had_dialled_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who the hub is changes, to and fro, with what is known of who stands around the failed."""
    overlay = Conversation()
    overlay.brokers("r", b="r", c="r")
    core = overlay.broker("c")
    overlay.freezes("b")
    overlay.crashes("r")
    overlay.settle(0.1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(core.neighbourhood, "hub", lambda region: core.node)
        core.reforming.review()
    assert "r has failed, b to come" in core.unfinished()
    overlay.goes_on("b")
    overlay.settle()

    assert overlay.parent_of("c") == "b"
    assert overlay.troubles() == []


def test_a_hub_sends_away_at_once_who_stands_around_another_gap() -> None:
    """The client of a broker that has moved, and failed before it could say so."""
    overlay = Conversation(delta=2)
    overlay.brokers("r", a="r", m="r", x="r", d="m")
    client = overlay.client("client", at="d")
    overlay.settle()
    known, links = client.core.neighbourhood, overlay.broker("r").neighbourhood
    assert known is not None
    known.remove(NodeId("d"))
    for name in ("d", "r", "a", "m", "x"):
        link = links.link_of(NodeId(name))
        assert link is not None
        known.add(attrs.evolve(link, parent=NodeId("r"), parent_address="r", moves=-1))
    overlay.freezes("x")
    overlay.crashes("r", "d")
    overlay.settle()

    assert "r has failed, x to come" in overlay.broker("a").unfinished()
    assert overlay.broker("m").neighbours.named(client.core.node) is not None
    assert client.core.state is ClientState.READY


@pytest.mark.parametrize("then", A_WHILE_AFTER)
def test_a_hub_steps_down_when_somebody_else_is_the_first_around_a_root(then: float) -> None:
    """When r fails, d is the hub; when x fails as well, a is."""
    overlay = Conversation(delta=2)
    overlay.brokers("r", d="r", x="r", e="r", a="x")
    clients = [overlay.client(f"at-{name}", at=name) for name in "rdxea"]
    for client in clients:
        client.advertises("TRUE")
        client.subscribes("TRUE")
    overlay.settle()
    for client in clients:
        client.publishes(x=1)
    overlay.settle(1.5 * MS)
    overlay.crashes("r")
    overlay.settle(then * MS)
    overlay.crashes("x")
    overlay.settle(2)
    for client in clients:
        client.publishes(x=2)
    overlay.settle(1)

    top = "a" if then < 5 else "d"  # by when all is over
    assert [overlay.parent_of(name) for name in "dea"] == [None if n == top else top for n in "dea"]
    assert [len(client.received) for client in clients] == [10] * 5
    assert overlay.troubles() == []


# --- operations --------------------------------------------------------------------------------


@attrs.define
class Asking:
    """A client behind m that has asked for something, and one beyond r that publishes."""

    overlay: Conversation
    client: Client
    subscription: SubscriptionId
    advertisement: AdvertisementId
    far: Client
    near: Client


def meanwhile_m_crashes(operation: Callable[[Asking], object]) -> Iterator[Asking]:
    """Once for each time; in the end the operation has been answered, and everybody publishes."""
    for ms in AT_ANY_TIME:
        overlay = a_fork()
        far, near = overlay.client("far", at="r"), overlay.client("near", at="d")
        client = overlay.client("client", at="b")
        far.advertises("TRUE")
        near.subscribes("TRUE")
        asking = Asking(
            overlay,
            client,
            client.subscribes("x = 2"),
            client.advertises("x = 2"),
            far,
            near,
        )
        overlay.settle()
        operation(asking)
        overlay.settle(ms * MS)
        overlay.crashes("m")
        overlay.settle()

        assert len(client.answered) == 3
        assert client.refusals == []
        far.publishes(x=1)
        far.publishes(x=2)
        overlay.settle()
        yield asking
        overlay.settle()
        assert overlay.troubles() == []


def test_a_subscription_is_confirmed_across_a_crash() -> None:
    for asking in meanwhile_m_crashes(lambda asking: asking.client.subscribes("x = 1")):
        assert asking.client.received == ["far:1", "far:2"]


def test_the_end_of_a_subscription_is_confirmed_across_a_crash() -> None:
    for asking in meanwhile_m_crashes(
        lambda asking: asking.client.unsubscribes(asking.subscription)
    ):
        assert asking.client.received == []
        for name in "rbcd":
            known = asking.overlay.broker(name).interests.subscriptions
            assert not list(known.of_client(NodeId("client")))


def test_an_advertisement_is_confirmed_across_a_crash() -> None:
    for asking in meanwhile_m_crashes(lambda asking: asking.client.advertises("x = 1")):
        asking.client.publishes(x=1)
        asking.overlay.settle()
        assert asking.near.received == ["far:1", "far:2", "client:1"]


def test_the_end_of_an_advertisement_is_confirmed_across_a_crash() -> None:
    for asking in meanwhile_m_crashes(
        lambda asking: asking.client.unadvertises(asking.advertisement)
    ):
        for name in "rbcd":
            assert len(asking.overlay.broker(name).interests.advertisements) == 1


def test_what_is_not_needed_behind_the_failed_is_needed_behind_an_orphan() -> None:
    """R takes its subscription back from m, under which p has nothing more to say; but q has."""
    for ms in AT_ANY_TIME:
        for lead in (0.5, 1.5, 2.5):
            overlay = a_fork()
            s, p, q = (overlay.client(name, at=at) for name, at in ("sr", "pb", "qb"))
            s.subscribes("TRUE")
            advertisement = p.advertises("TRUE")
            overlay.settle()
            p.unadvertises(advertisement)
            overlay.settle(lead * MS)
            q.advertises("TRUE")
            overlay.settle(ms * MS)
            overlay.crashes("m")
            overlay.settle(5)
            q.publishes(x=1)
            overlay.settle()

            assert s.received == ["q:1"]
            assert overlay.troubles() == []


def test_an_orphan_is_not_told_of_its_own_subscription_that_it_does_not_claim() -> None:
    """It has taken that back from m, which the hub does not know, when p, there, advertises."""
    for ms in range(5):
        overlay = a_fork()
        s, p, q = (overlay.client(name, at=at) for name, at in ("sb", "pb", "qr"))
        s.subscribes("TRUE")
        advertisement = q.advertises("TRUE")
        overlay.settle()
        q.unadvertises(advertisement)
        overlay.settle(0.5 * MS)
        p.advertises("TRUE")
        overlay.settle(ms * MS)
        overlay.loses_connection("m", "r")
        overlay.crashes("m")
        overlay.settle(5)
        p.publishes(x=1)
        overlay.settle()

        assert s.received == ["p:1"]
        assert overlay.troubles() == []


def newcomers_meet_a_crash(seconds: float) -> Iterator[tuple[Conversation, Client]]:
    """A broker joins below b, and a client at m, which fails; they have so long to be there."""
    for ms in AT_ANY_TIME:
        overlay = a_fork()
        overlay.client("p", at="r").advertises("TRUE")
        world = overlay.world
        world.add_broker(NodeId("e"), NodeId("b"), fallbacks=[NodeId("r")])
        newcomer = world.add_client(NodeId("newcomer"), NodeId("m"), NodeId("c"))
        overlay.settle(ms * MS)
        overlay.crashes("m")
        overlay.settle(seconds)
        yield overlay, Client(world, newcomer)


def test_a_join_completes_across_a_crash() -> None:
    for overlay, newcomer in newcomers_meet_a_crash(6):
        assert newcomer.node.is_ready
        assert overlay.broker("e").is_ready
        newcomer.subscribes("TRUE")
        p = Client(overlay.world, overlay.world.nodes[NodeId("p")])
        overlay.settle()
        p.publishes(x=1)
        overlay.settle()
        assert newcomer.received == ["p:1"]
        assert overlay.troubles() == []


def test_who_was_taken_for_the_hub_while_it_joined_is_not_forgotten() -> None:
    """A is the first by name next to m, and has not joined when c asks it; it joins c instead."""
    for ms in AT_ANY_TIME:
        overlay = Conversation()
        overlay.brokers("m", c="m")
        overlay.client("s", at="c").subscribes("TRUE")
        overlay.world.add_broker(NodeId("a"), NodeId("m"), fallbacks=[NodeId("c")])
        overlay.settle(5 * MS)
        overlay.freezes("c")
        overlay.crashes("m")
        overlay.settle(ms * MS)
        overlay.goes_on("c")
        overlay.settle()
        overlay.crashes("a")
        overlay.settle(5)

        assert overlay.troubles() == []


def test_nobody_waits_for_a_heartbeat_because_a_newcomer_begins_anew() -> None:
    for _, newcomer in newcomers_meet_a_crash(1):
        assert newcomer.node.is_ready


def test_a_client_that_leaves_across_a_crash_is_forgotten() -> None:
    for ms in AT_ANY_TIME:
        overlay = a_fork()
        overlay.client("p", at="r").advertises("TRUE")
        client = overlay.client("client", at="b")
        client.subscribes("TRUE")
        overlay.settle()
        client.leaves()
        overlay.settle(ms * MS)
        overlay.crashes("m")
        overlay.settle()

        assert client.core.state is ClientState.CLOSED
        assert client.node.stopped == "left"
        for name in "rbcd":
            assert len(overlay.broker(name).interests.subscriptions) == 0
        assert overlay.troubles() == []


# --- clients -----------------------------------------------------------------------------------


def test_a_client_moves_by_itself_and_the_application_sees_nothing() -> None:
    for ms in AT_ANY_TIME:
        overlay = a_fork()
        p, s = overlay.client("p", at="m"), overlay.client("s", at="m")
        t = overlay.client("t", at="d")
        p.advertises("TRUE")
        s.subscribes("TRUE")
        t.subscribes("TRUE")
        overlay.settle()
        p.publishes(x=1)
        overlay.settle(ms * MS)
        overlay.crashes("m")
        p.publishes(x=2)
        overlay.settle()

        assert [p.core.broker, s.core.broker] == ["r", "r"]
        assert s.received == t.received == ["p:1", "p:2"]
        assert p.refusals == s.refusals == []
        assert s.core.state is ClientState.READY
        assert overlay.troubles() == []


def test_what_was_confirmed_has_been_delivered() -> None:
    confirmed = 0
    for ms in AT_ANY_TIME:
        overlay = a_fork()
        p, s = overlay.client("p", at="b"), overlay.client("s", at="c")
        p.advertises("TRUE")
        s.subscribes("TRUE")
        overlay.settle()
        p.publishes(urgent=True, x=1)
        overlay.settle(ms * MS)
        if p.core.unconfirmed == 0:
            confirmed += 1
            assert s.received == ["p:1"]
        overlay.crashes("m", "p")
        overlay.settle()

        # Its publisher is gone, so that nobody else sends it again.
        assert s.received in ([], ["p:1"])
        assert s.received == ["p:1"] or ms < 1
    assert confirmed


def test_a_client_and_its_broker_fail_together() -> None:
    overlay = a_fork()
    p, s = overlay.client("p", at="m"), overlay.client("s", at="m")
    t = overlay.client("t", at="d")
    p.advertises("TRUE")
    s.subscribes("TRUE")
    t.subscribes("TRUE")
    overlay.settle()
    overlay.crashes("m", "s")
    p.publishes(x=1)
    overlay.settle(60)

    assert t.received == ["p:1"]
    assert overlay.troubles() == []


def test_a_client_that_begins_anew_elsewhere_keeps_what_it_asks_for_there() -> None:
    """What the hub withdraws, which waits for s, is what s had asked for in its old place."""
    overlay = Conversation()
    overlay.brokers("r", m="r", x="r", y="x", a="y")
    p = overlay.client("p", at="r")
    s = Client(overlay.world, overlay.world.add_client(NodeId("s"), NodeId("m"), NodeId("a")))
    overlay.settle()
    p.advertises("TRUE")
    s.subscribes("TRUE")
    overlay.settle()
    overlay.world.take_off_the_net(NodeId("s"), NodeId("m"), 0.2)
    overlay.crashes("m")
    overlay.settle(60)
    assert s.core.broker == "a"
    p.publishes(x=1)
    overlay.settle()

    assert s.received == ["p:1"]
    assert overlay.troubles() == []


# --- who comes back ----------------------------------------------------------------------------


def test_a_frozen_broker_that_wakes_up_is_fenced_and_comes_back() -> None:
    for scene, overlay in scenes():
        overlay.freezes("m")
        overlay.settle(90)
        assert overlay.parent_of("b") == overlay.parent_of("c") == "r"
        overlay.goes_on("m")
        overlay.settle(30)

        assert overlay.broker("m").incarnation == 2
        assert overlay.broker("m").status()["state"] == "operational"
        assert scene.troubles() == []


HEARTBEAT_S = SIMULATED_LIMITS.heartbeat_interval_s
AT_ANY_TIME_BETWEEN_HEARTBEATS = [HEARTBEAT_S * eighth / 8 for eighth in range(8)]


@pytest.mark.parametrize("broker", ["a", "r", "b1"], ids=["root", "inner", "edge"])
def test_a_frozen_broker_whose_connections_are_accepted_is_not_taken_for_alive(broker: str) -> None:
    """Its clients may notice before the hub does, which visits it then, and is not answered."""
    for phase in AT_ANY_TIME_BETWEEN_HEARTBEATS:
        scene = Scene()
        scene.overlay.settle(phase)
        scene.publish()
        scene.overlay.settle(2 * MS)
        scene.overlay.freezes(broker)
        scene.overlay.settle(90)
        scene.overlay.goes_on(broker)
        scene.overlay.settle(30)

        assert scene.overlay.broker(broker).incarnation == 2
        assert scene.troubles() == []


def test_whoever_has_waited_for_another_frozen_broker_is_waited_for_by_the_hub() -> None:
    """The clients of b take m for the hub at first: they need twice the time to come to r."""
    for phase in AT_ANY_TIME_BETWEEN_HEARTBEATS:
        scene = Scene(delta=2)
        scene.overlay.settle(phase)
        scene.publish()
        scene.overlay.settle(2 * MS)
        for broker in "mb":
            scene.overlay.freezes(broker)
        scene.overlay.settle(90)
        for broker in "mb":
            scene.overlay.goes_on(broker)
        scene.overlay.settle(30)

        assert scene.troubles() == []


@pytest.mark.parametrize("seconds", [21, 25, 30, 40])
@pytest.mark.parametrize("brokers", ["ra", "rm"], ids=["top", "branch"])
def test_two_frozen_neighbours_go_on_while_somebody_takes_one_of_them_for_the_hub(
    brokers: str, seconds: float
) -> None:
    """It is not the hub that it was, but somebody who looks for a place, or has one elsewhere."""
    scene = Scene(delta=2)
    scene.publish()
    scene.overlay.settle(2 * MS)
    for broker in brokers:
        scene.overlay.freezes(broker)
    scene.overlay.settle(seconds)
    for broker in brokers:
        scene.overlay.goes_on(broker)
    scene.overlay.settle(60)

    assert [scene.overlay.broker(name).incarnation for name in brokers] == [2, 2]
    assert scene.troubles() == []


def test_a_hub_that_is_frozen_itself_is_given_up_by_those_who_wait_for_its_welcome() -> None:
    for scene, overlay in scenes(delta=2):
        overlay.freezes("r")
        overlay.settle(MS)
        overlay.crashes("m")
        overlay.settle(90)
        overlay.goes_on("r")
        overlay.settle(30)

        assert overlay.parent_of("b") == overlay.parent_of("c") == "a"
        assert scene.troubles() == []


def test_whoever_lives_where_another_one_did_does_not_vouch_for_it() -> None:
    """C has crashed and is back before its parent has heard of either."""
    overlay = a_fork()
    r = overlay.broker("r")
    overlay.world.freeze(NodeId("m"))
    overlay.crashes("c")
    overlay.settle(MS)
    overlay.restarts("c")
    overlay.settle(MS)
    overlay.goes_on("m")
    overlay.settle(30)

    assert overlay.broker("c").incarnation == 2
    assert r.neighbourhood.has_failed(Life(NodeId("c"), 1))
    assert overlay.troubles() == []


def test_a_broker_that_is_frozen_for_a_moment_is_not_missed() -> None:
    for scene, overlay in scenes():
        overlay.freezes("m")
        overlay.settle(4)
        overlay.goes_on("m")
        overlay.settle(5)

        assert overlay.broker("m").incarnation == 1
        assert overlay.parent_of("b") == "m"
        assert scene.troubles() == []


@pytest.mark.parametrize("then", A_WHILE_AFTER)
def test_a_restarted_broker_recovers_and_serves(then: float) -> None:
    scene = Scene()
    overlay = scene.overlay
    scene.publish()
    overlay.settle(2.5 * MS)
    overlay.crashes("m")
    overlay.settle(then * MS)
    overlay.restarts("m")
    overlay.settle(5)

    assert overlay.broker("m").incarnation == 2
    assert overlay.broker("m").status()["state"] == "operational"
    s = overlay.client("s", at="m")
    s.subscribes("TRUE")
    overlay.settle()
    assert scene.troubles() == []
    assert len(s.received) == 10


@pytest.mark.parametrize("then", A_WHILE_AFTER)
def test_a_hub_that_has_been_restarted_is_the_hub_no_more(then: float) -> None:
    for scene, overlay in scenes(delta=2):
        overlay.crashes("m")
        overlay.settle(then * MS)
        overlay.crashes("r")
        overlay.restarts("r")
        overlay.settle(5)

        # Whoever was below it when it failed is given back.
        assert {overlay.parent_of("b"), overlay.parent_of("c")} <= {"a", "r"}
        assert overlay.parent_of("r") == "a"
        assert scene.troubles() == []


def a_joining_broker() -> tuple[BrokerCore, LinkId, OperationId]:
    """A broker that is back and joins at the root r, as b has; b has noticed that r has failed."""
    links = [
        TopologyLink(child=child, parent=parent, kind="broker", incarnation=1, address=child)
        for child, parent in ((NodeId("r"), NodeId("r")), (NodeId("b"), NodeId("r")))
    ]
    core = BrokerCore(NodeId("a"), 2, address="a", remembered=links)
    core.start(0.0)
    dialled, orphan = LinkId(1), LinkId(2)
    core.step(0.0, LinkOpened(dialled, "r"))
    effects = core.step(0.0, MessagesReceived(dialled, [welcome_of("r")]))
    (join,) = (message for message in said(effects) if isinstance(message, Join))
    core.step(0.0, MessagesReceived(dialled, [Neighbourhood(links=tuple(links))]))
    core.step(0.0, LinkOpened(orphan))
    hello = Hello(
        version=PROTOCOL_VERSION,
        node=NodeId("b"),
        kind=NodeKind.BROKER,
        incarnation=1,
        address="b",
        peer="r",
        peer_incarnation=1,
        received=0,
        failed=(Life(NodeId("r"), 1),),
        expected=2,
    )
    assert said(core.step(0.0, MessagesReceived(orphan, [hello]))) == []
    return core, dialled, join.operation


def welcome_of(node: str) -> Welcome:
    return Welcome(
        node=NodeId(node),
        incarnation=1,
        ordering="pairwise",
        policy="filter",
        delta=1,
        detection="fast",
        heartbeat_interval_ms=500,
        heartbeat_timeout_ms=3000,
        resumed=False,
        received=0,
    )


def said(effects: list[Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, SendMessage)]


def test_who_joined_where_somebody_failed_is_the_hub_if_its_join_was_confirmed() -> None:
    core, dialled, operation = a_joining_broker()
    effects = core.step(0.1, MessagesReceived(dialled, [Confirm(operation=operation)]))

    assert [message.adopts for message in said(effects) if isinstance(message, Welcome)] == [True]


def test_who_joined_where_somebody_failed_is_not_the_hub_if_its_join_was_not_confirmed() -> None:
    core, dialled, _ = a_joining_broker()
    core.step(0.1, LinkClosed(dialled, "crashed"))
    core.step(0.2, TimerFired())
    effects = core.step(0.3, LinkFailed("r", "connection refused"))

    assert [message.code for message in said(effects) if isinstance(message, Goodbye)] == [
        GoodbyeCode.STRANDED
    ]


def test_a_broker_that_dialled_twice_greets_once() -> None:
    """Or it would be told that its name is taken, by itself."""
    core = BrokerCore(NodeId("a"), 1, address="a", join="r")
    core.start(0.0)
    first, second, third = map(LinkId, (1, 2, 3))
    assert [type(message) for message in said(core.step(0.0, LinkOpened(first, "r")))] == [Hello]
    assert said(core.step(0.0, LinkOpened(second, "r"))) == []
    core.step(0.1, MessagesReceived(first, [welcome_of("r")]))
    assert said(core.step(0.1, LinkOpened(third, "r"))) == []


def test_clients_of_a_broker_that_is_back_at_once_keep_their_sessions() -> None:
    for scene, overlay in scenes():
        overlay.freezes("b")
        overlay.crashes("b1")
        overlay.settle(6 * MS)
        overlay.restarts("b1")
        overlay.goes_on("b")  # it hears of clients that have to move before b1 has joined again
        overlay.settle(5)

        assert scene.troubles() == []


def test_a_broker_that_became_the_root_joins_nobody_whom_it_had_dialled_before() -> None:
    """The former root is back and may have joined below it already."""
    core = BrokerCore(NodeId("m"), 1, address="m", join="r")
    core.start(0.0)
    parent, late = LinkId(1), LinkId(3)
    core.step(0.0, LinkOpened(parent, "r"))
    (join,) = (
        message
        for message in said(core.step(0.0, MessagesReceived(parent, [welcome_of("r")])))
        if isinstance(message, Join)
    )
    root = TopologyLink(
        child=NodeId("r"), parent=NodeId("r"), kind="broker", incarnation=1, address="r"
    )
    is_told: list[Message] = [Neighbourhood(links=(root,)), Confirm(operation=join.operation)]
    core.step(0.0, MessagesReceived(parent, is_told))
    core.step(0.1, LinkClosed(parent, "crashed"))
    core.step(0.2, TimerFired())
    core.step(0.2, LinkFailed("r", "connection refused"))
    assert core.neighbours.parent is None

    assert said(core.step(0.3, LinkOpened(late, "r"))) == []


def test_a_broker_that_joins_elsewhere_asks_nobody_else_any_more() -> None:
    core = BrokerCore(NodeId("m"), 1, address="m", join="r")
    core.start(0.0)
    parent, asked, stranger, joined = map(LinkId, (1, 2, 3, 4))
    core.step(0.0, LinkOpened(parent, "r"))
    core.step(0.0, MessagesReceived(parent, [welcome_of("r")]))
    core.step(0.1, LinkClosed(parent, "crashed"))
    core.step(0.15, TimerFired())
    core.step(0.15, LinkFailed("r", "connection refused"))
    core.step(0.2, TimerFired())
    core.step(0.2, LinkOpened(asked, "r"))
    core.step(0.2, LinkOpened(stranger))
    summon = Summon(hub=NodeId("x"), failed=(Life(NodeId("r"), 1),), address="x")
    effects = core.step(0.2, MessagesReceived(stranger, [summon]))
    assert asked in [effect.link for effect in effects if isinstance(effect, CloseLink)]

    core.step(0.2, LinkOpened(joined, "x"))
    core.step(0.2, MessagesReceived(joined, [welcome_of("x")]))
    assert not [e for e in core.step(1.0, TimerFired()) if isinstance(e, OpenLink)]


def test_a_former_root_that_becomes_it_again_looks_no_further() -> None:
    links = [
        TopologyLink(child=child, parent=NodeId("r"), kind="broker", incarnation=1, address=child)
        for child in map(NodeId, "rbc")
    ]
    core = BrokerCore(NodeId("r"), 2, address="r", remembered=links)
    effects = core.start(0.0)
    opened = 0
    for half in range(1, 120):  # whoever it asks is there, and never has an answer
        now = 0.5 * half
        for dialled in [e.address for e in effects if isinstance(e, OpenLink)]:
            opened += 1
            core.step(now, LinkOpened(LinkId(opened), dialled))
        core.step(now, MessagesReceived(LinkId(opened), [Heartbeat()]))
        effects = core.step(now, TimerFired())

    assert core.status()["state"] == "operational"


def test_what_was_withdrawn_in_a_session_that_is_lost_is_not_withdrawn_in_the_next() -> None:
    overlay = Conversation(delta=0)
    overlay.brokers("r", a="r", b="a")
    p = Client(overlay.world, overlay.world.add_client(NodeId("p"), NodeId("b"), NodeId("r")))
    overlay.settle()
    advertisement = p.advertises("TRUE")
    overlay.settle()
    p.publishes(x=1)
    overlay.freezes("a")  # to the root the advertisement still lies behind it
    overlay.crashes("b")
    p.unadvertises(advertisement)
    overlay.settle()
    overlay.goes_on("a")
    overlay.settle()

    assert p.core.broker == "r"
    assert p.core.state is ClientState.READY
    assert len(p.answered) == 2


def test_a_restarted_root_comes_back_below_the_new_one() -> None:
    overlay = a_fork()
    overlay.crashes("r")
    overlay.settle()
    overlay.restarts("r")
    overlay.settle(5)

    assert overlay.parent_of("m") is None
    assert overlay.parent_of("r") == "m"
    assert overlay.troubles() == []


# --- more than δ -------------------------------------------------------------------------------


def a_line_is_cut(ms: float) -> tuple[Conversation, Client, Client, Client]:
    """A - b - c - d: b and c fail, which is more than one; s stands at a, p and t at d."""
    overlay = Conversation()
    overlay.brokers("a", b="a", c="b", d="c")
    p, s, t = (overlay.client(name, at=at) for name, at in zip("pst", "dad", strict=True))
    p.advertises("TRUE")
    for subscriber in (s, t):
        subscriber.subscribes("TRUE")
    overlay.settle()
    p.publishes(x=1)
    p.publishes(x=2)
    overlay.settle(ms * MS)
    overlay.crashes("b", "c")
    return overlay, p, s, t


def test_beyond_delta_both_sides_go_on_and_nothing_is_out_of_order() -> None:
    for ms in AT_ANY_TIME:
        overlay, p, s, t = a_line_is_cut(ms)
        overlay.settle(5)
        p.publishes(x=3)
        overlay.settle(200)

        assert t.received == ["p:1", "p:2", "p:3"]
        assert s.received == ["p:1", "p:2"][: len(s.received)]
        assert overlay.judge("pairwise").is_clean


def test_beyond_delta_what_is_lost_is_named() -> None:
    overlay, _, s, _ = a_line_is_cut(1.5)
    overlay.settle(5)
    skipped = {record["seq"] for record in overlay.world.records() if record["kind"] == "skipped"}

    assert s.received == []
    assert skipped == {1, 2}


def test_beyond_delta_the_tree_heals_when_the_brokers_are_back() -> None:
    for ms in AT_ANY_TIME:
        overlay, p, s, t = a_line_is_cut(ms)
        overlay.settle(5)
        overlay.restarts("b")
        overlay.restarts("c")
        overlay.settle(120)
        before = len(s.received)
        p.publishes(x=3)
        overlay.settle(5)

        assert s.received[before:] == ["p:3"]
        assert t.received == ["p:1", "p:2", "p:3"]
        assert overlay.judge("pairwise").is_clean
        assert [overlay.broker(name).unfinished() for name in "abcd"] == [[], [], [], []]


def test_beyond_delta_a_branch_that_its_hub_gives_up_joins_that_hub_anew() -> None:
    """C has attached to r when r hears that n has failed, too, and that it is too much."""
    for ms in AT_ANY_TIME:
        overlay = Conversation()
        overlay.brokers("a", r="a", m="r", c="m", n="m")
        p, s = overlay.client("p", at="a"), overlay.client("s", at="c")
        p.advertises("TRUE")
        s.subscribes("TRUE")
        overlay.settle()
        p.publishes(x=1)
        overlay.settle(ms * MS)
        overlay.crashes("m", "n")
        overlay.settle(30)
        p.publishes(x=2)
        overlay.settle(5)

        assert overlay.parent_of("c") == "r"
        assert s.received[-1:] == ["p:2"]
        assert overlay.judge("pairwise").is_clean
        assert [overlay.broker(name).unfinished() for name in "arc"] == [[], [], []]
        assert overlay.broker("c").status()["state"] == "operational"


def test_what_lay_below_a_branch_that_joins_elsewhere_is_heard_of_from_there() -> None:
    """A hears of it from r before it gives up b, behind which it was."""
    overlay = Conversation()
    overlay.brokers("r", a="r", b="a", c="b")
    overlay.world.add_broker(NodeId("t"), NodeId("c"), fallbacks=[NodeId("r")])
    overlay.settle()
    p, s = overlay.client("p", at="t"), overlay.client("s", at="a")
    p.advertises("TRUE")
    s.subscribes("TRUE")
    overlay.settle()
    overlay.crashes("b", "c")
    overlay.settle(60)
    p.publishes(x=1)
    overlay.settle(5)

    assert overlay.parent_of("t") == "r"
    assert s.received == ["p:1"]


def test_a_branch_says_since_when_it_is_cut_off_though_nobody_hung_up() -> None:
    overlay = Conversation()
    overlay.brokers("r", a="r", b="a", c="b", t="c")
    frozen_at = overlay.world.now
    for name in "bc":
        overlay.freezes(name)
    overlay.settle(120)

    (told,) = [r for r in overlay.world.records() if r["kind"] == "recovering" and r["node"] == "t"]
    assert told["at"] - told["millis"] / 1000 > frozen_at


def the_top_is_cut_off(**fallbacks: str) -> tuple[Conversation, Client, Client]:
    """D - x - a - y: a and x fail. E2 - e - d hang together, p publishes at y, s stands at e2."""
    overlay = Conversation()
    tree = {"a": None, "x": "a", "y": "a", "d": "x", "e": "d", "e2": "e"}
    for name, join_point in tree.items():
        overlay.world.add_broker(
            NodeId(name),
            NodeId(join_point) if join_point else None,
            fallbacks=[NodeId(fallback) for fallback in fallbacks.get(name, "").split()],
        )
        overlay.settle()
    p, s = overlay.client("p", at="y"), overlay.client("s", at="e2")
    p.advertises("TRUE")
    s.subscribes("TRUE")
    overlay.settle()
    overlay.crashes("a", "x")
    overlay.settle(60)
    return overlay, p, s


@pytest.mark.parametrize(
    "fallbacks", [{"y": "e2"}, {"d": "y"}, {"y": "e2", "d": "y"}, {"d": "e2 e y"}], ids=repr
)
def test_branches_that_are_cut_off_come_together_if_one_of_them_knows_anybody_of_the_other(
    fallbacks: dict[str, str],
) -> None:
    """Y is told to ask at the top, which is d; and d, which asks first, is asked to let y in."""
    overlay, p, s = the_top_is_cut_off(**fallbacks)
    p.publishes(x=1)
    overlay.settle(5)

    assert overlay.parent_of("y") == "d"
    assert overlay.parent_of("d") is None
    assert s.received == ["p:1"]
    assert overlay.troubles() == []


def test_everybody_knows_the_top_of_the_branch() -> None:
    """Whoever asks at its lower end need not climb it broker by broker."""
    overlay, _, _ = the_top_is_cut_off(y="e2")
    greetings = [line.split() for line in overlay.world.trace if ": Hello" in line]

    assert [words[3] for words in greetings if words[1] == "y"] == ["a:", "e2:", "d:"]


def test_a_branch_does_not_ask_first_where_it_knows_that_nobody_lives() -> None:
    overlay = Conversation()
    overlay.brokers("a", r="a", m="r", n="m")
    overlay.world.add_broker(NodeId("d"), NodeId("n"), fallbacks=[NodeId("a")])
    overlay.settle()
    overlay.crashes("m", "n")
    overlay.settle(30 * MS)

    assert overlay.parent_of("d") == "a"


@pytest.mark.parametrize("fallback", ["e", "e2"])
def test_a_branch_does_not_join_itself(fallback: str) -> None:
    overlay, _, s = the_top_is_cut_off(d=fallback)
    q = overlay.client("q", at="d")
    q.advertises("TRUE")
    overlay.settle()
    q.publishes(x=1)
    overlay.settle(5)

    assert overlay.parent_of("d") is None
    assert s.received == ["q:1"]
    assert overlay.broker("d").status()["state"] == "cut off"


def test_crash_after_crash_leaves_nothing_behind() -> None:
    """Ten brokers fail one after the other under load, and what is left is as small as before."""
    overlay = Conversation()
    overlay.brokers("a")
    names = [f"m{number}" for number in range(10)]
    p, s = overlay.client("p", at="a"), overlay.client("s", at="a")
    p.advertises("TRUE")
    s.subscribes("TRUE")
    for name in names:
        overlay.world.add_broker(NodeId(name), NodeId("a"))
        overlay.settle()
        overlay.world.add_broker(NodeId(f"below-{name}"), NodeId(name))
        overlay.settle()
        t = overlay.client(f"t-{name}", at=f"below-{name}")
        t.subscribes("TRUE")
        overlay.settle()
        p.publishes(x=1)
        overlay.settle(2.5 * MS)
        overlay.crashes(name)
        overlay.settle()
        t.leaves()
        overlay.settle()
        overlay.world.stop(overlay.world.nodes[NodeId(f"below-{name}")])
        overlay.settle()

    root = overlay.broker("a")
    assert len(s.received) == 10
    assert overlay.troubles() == []
    assert list(root.neighbours.below) == ["p", "s"]
    assert len(root.interests.subscriptions) == 1
    assert root.publications.unstable == 0
    assert len(root.neighbourhood) == 2


def test_an_orphan_that_was_adopted_and_fails_is_not_told_instead_of_the_one_that_is_back() -> None:
    for ms in range(0, 30, 3):
        overlay = Conversation()
        overlay.brokers("r", u1="r", u2="r", m="r", b="m", b1="b")
        p = overlay.client("p", at="r")
        p.advertises("TRUE")
        overlay.client("s", at="b1").subscribes("TRUE")
        for number in (1, 2):
            slow = overlay.client(f"t-{number}", at=f"u{number}")
            slow.subscribes(f"x = {number}")
            overlay.settle()
            overlay.freezes(slow.node.name)
        p.publishes(x=1)
        overlay.settle(15 * MS)
        overlay.crashes("m")
        overlay.settle()
        overlay.crashes("b")
        overlay.settle()
        overlay.restarts("b")
        overlay.settle()
        overlay.client("s-b", at="b").subscribes("TRUE")
        overlay.settle()
        p.publishes(x=2)
        overlay.settle()
        overlay.goes_on("t-2")
        overlay.settle(ms * MS)
        overlay.goes_on(
            "t-1"
        )  # stable here only now, and b, which had it once, is not there to know
        overlay.settle(5)

        assert overlay.troubles() == []
