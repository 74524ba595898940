"""What clients and monitors may do at a host that has rules, also when these change."""

from collections.abc import Sequence
from typing import Any

from plait.broker.effects import ReportRevoked, SendMessage
from plait.broker.inputs import LinkId, LinkOpened, MessagesReceived, RulesChanged
from plait.broker.messages import (
    PROTOCOL_VERSION,
    Goodbye,
    GoodbyeCode,
    Hello,
    NodeKind,
    RefusalCode,
    Relocate,
    Relocated,
    StatusReply,
    StatusRequest,
    Subscribe,
)
from plait.broker.principals import Caller, Principal
from plait.broker.sim.nodes import Node
from plait.routing.ids import NodeId, OperationId, SubscriptionId
from plait.routing.rules_text import read_rules
from tests.host.worlds import Client, Lively

RULES = """
allow * publish x < 100
allow * subscribe x < 50
allow alice subscribe x < 100
deny bob subscribe x = 7
allow olga monitor
allow olga operate broker = 'b1'
"""


class Guarded(Lively):
    """An overlay with rules, in which a client is the principal of its name."""

    def __init__(self, rules: str = RULES, **settings: Any) -> None:
        super().__init__(rules=read_rules(rules), **settings)
        self.revoked: dict[str, list[str]] = {}
        self.world.on_effects = self._look

    def _look(self, node: Node, effects: Sequence[Any]) -> None:
        for effect in effects:
            if isinstance(effect, ReportRevoked):
                self.revoked.setdefault(node.name, []).append(effect.name)

    def client(self, name: str, *at: str, incarnation: int = 1) -> Client:
        self.world.callers[NodeId(name)] = Caller(principal=Principal(name))
        return super().client(name, *at, incarnation=incarnation)

    def rules(self, text: str) -> None:
        """Give all hosts these rules."""
        changed = RulesChanged(read_rules(text))
        for node in self.world.hosts:
            self.world._tell(node, changed)

    def monitor(self, name: str, *messages: Any) -> list[Any]:
        """What a host answers to somebody who greets as a monitor, and then says this."""
        host, now = self.host("b1"), self.world.now
        link = LinkId(999)
        hello = Hello(
            version=PROTOCOL_VERSION,
            node=NodeId(name),
            kind=NodeKind.MONITOR,
            incarnation=1,
            host=NodeId(name),
        )
        effects = host.step(now, LinkOpened(link, caller=Caller(principal=Principal(name))))
        effects += host.step(now, MessagesReceived(link, [hello]))
        for message in messages:
            effects += host.step(now, MessagesReceived(link, [message]))
        sent = [effect for effect in effects if isinstance(effect, SendMessage)]
        return [effect.message for effect in sent if effect.links == (link,)]


def three_brokers(rules: str = RULES, **settings: Any) -> Guarded:
    overlay = Guarded(rules, **settings)
    overlay.brokers("b1", b2="b1", b3="b2")
    return overlay


def refused(client: Client) -> list[RefusalCode]:
    return [refusal.code for refusal in client.refusals]


class TestRequests:
    def test_what_no_rule_allows_is_refused_and_nothing_remains_of_it(self) -> None:
        overlay = three_brokers()
        nyse, bob = overlay.client("nyse", "b1"), overlay.client("bob", "b3")
        alice = overlay.client("alice", "b2")

        nyse.advertises("x < 1000")
        alice.subscribes("x < 100")
        bob.subscribes("x < 100")
        allowed = bob.subscribes("x < 5 AND y = 1")
        overlay.passes(1)

        assert refused(nyse) == refused(bob) == [RefusalCode.NOT_ALLOWED]
        assert not alice.refusals
        assert len(bob.answered) == 2
        assert overlay.host("b3").known_interests() == [allowed]
        assert not overlay.troubles()

    def test_a_deny_counts_more_than_an_allow(self) -> None:
        overlay = three_brokers()
        bob, carl = overlay.client("bob", "b1"), overlay.client("carl", "b1")

        for client in (bob, carl):
            client.subscribes("x < 10")
            client.subscribes("x > 20 AND x < 30")
        overlay.passes(1)

        assert refused(bob) == [RefusalCode.NOT_ALLOWED]
        assert not carl.refusals

    def test_who_has_not_proven_anything_is_anonymous(self) -> None:
        overlay = three_brokers("allow anonymous subscribe x = 1")
        stranger = Lively.client(overlay, "stranger", "b1")

        stranger.subscribes("x = 1")
        stranger.subscribes("x = 2")
        overlay.passes(1)

        assert refused(stranger) == [RefusalCode.NOT_ALLOWED]

    def test_without_rules_everybody_may_do_everything(self) -> None:
        overlay = Lively()
        overlay.brokers("b1")
        client = overlay.client("anybody", "b1")

        client.subscribes("TRUE")
        overlay.passes(1)

        assert not client.refusals

    def test_who_takes_a_broker_up_refuses_what_was_refused(self) -> None:
        """The client has not heard of it when the broker fails: what it asked for is not there."""
        overlay = three_brokers()
        bob = overlay.client("bob", "b3")
        overlay.client("carl", "b2")
        bob.subscribes("x < 100")
        overlay.passes(0.012)  # the broker has taken it, and its answer is on its way

        overlay.crashes("b3")
        overlay.passes(30)

        assert overlay.players("b3") != []
        assert refused(bob) == [RefusalCode.NOT_ALLOWED]
        assert overlay.machine("b3").interests.subscriptions.count_of_client(NodeId("bob")) == 0
        assert not overlay.cores.comparison.found

    def test_a_log_that_waits_for_a_client_to_hear_is_forgotten_then(self) -> None:
        overlay = three_brokers()
        bob = overlay.client("bob", "b3")

        bob.subscribes("x < 100")
        overlay.passes(5)

        assert len(overlay.machine("b3").steps.log.entries) < 3


class TestChanges:
    def test_what_is_not_allowed_any_more_is_withdrawn_and_its_client_told(self) -> None:
        overlay = three_brokers("allow * publish\nallow * subscribe")
        nyse, alice = overlay.client("nyse", "b1"), overlay.client("alice", "b3")
        nyse.advertises("x < 1000")
        kept, lost = alice.subscribes("x < 10"), alice.subscribes("x < 100")
        overlay.passes(1)
        nyse.publishes(x=5)
        overlay.passes(1)

        overlay.rules("allow * publish\nallow * subscribe x < 10")
        overlay.passes(1)
        nyse.publishes(x=50)
        nyse.publishes(x=5)
        overlay.passes(1)

        assert overlay.revoked == {"alice": [lost]}
        assert alice.received == ["nyse:1", "nyse:3"]
        assert alice.deliveries[-1].subscriptions == (kept,)
        assert not overlay.troubles()

    def test_an_advertisement_is_withdrawn_as_well(self) -> None:
        overlay = three_brokers("allow * publish\nallow * subscribe")
        nyse = overlay.client("nyse", "b2")
        name = nyse.advertises("x < 1000")
        overlay.passes(1)

        overlay.rules("allow * publish x < 10")
        overlay.passes(3)

        assert overlay.revoked == {"nyse": [name]}
        assert overlay.host("b1").known_interests() == []
        assert not overlay.troubles()

    def test_who_does_not_withdraw_it_is_dropped(self) -> None:
        overlay = three_brokers("allow * subscribe")
        alice = overlay.client("alice", "b3")
        alice.subscribes("x < 100")
        overlay.passes(1)
        interests = alice.core.interests
        interests.revoke = lambda *_, **__: None  # type: ignore[method-assign]

        overlay.rules("allow * subscribe x < 10")
        overlay.passes(5)

        assert overlay.host("b3").parts.clients.isolated == 1
        assert overlay.host("b3").known_interests() == []
        assert alice.node.stopped is not None
        assert "is not allowed any more, and was not withdrawn" in alice.node.stopped

    def test_where_other_rules_are_a_client_is_held_to_those(self) -> None:
        overlay = three_brokers("allow * subscribe")
        alice = overlay.client("alice", "b3", "b2", "b1")
        subscription = alice.subscribes("x < 100")
        overlay.passes(1)
        others = RulesChanged(read_rules("allow * subscribe x < 10"))
        for name in ("b1", "b2"):
            overlay.world._tell(overlay.world.nodes[NodeId(name)], others)

        overlay.crashes("b3")
        overlay.passes(40)

        assert overlay.revoked == {"alice": [subscription]}

    def test_thousands_of_subscriptions_are_looked_at_in_portions(self) -> None:
        overlay = Guarded("allow * subscribe")
        overlay.brokers("b1")
        alice = overlay.client("alice", "b1")
        for number in range(1000):
            alice.subscribes(f"x = {number}")
        overlay.passes(2)

        overlay.rules("deny * subscribe x < 500\nallow * subscribe")
        overlay.passes(0.025)
        soon = len(overlay.revoked.get("alice", ()))
        overlay.passes(2)

        assert 0 < soon < 500
        assert len(overlay.revoked["alice"]) == 500


class TestMonitors:
    def test_who_may_monitor_is_answered_and_others_are_not(self) -> None:
        overlay = three_brokers()

        answers = overlay.monitor("olga", StatusRequest())
        [refusal] = overlay.monitor("peter")

        assert any(isinstance(answer, StatusReply) for answer in answers)
        assert isinstance(refusal, Goodbye)
        assert (refusal.code, refusal.reason) == (
            GoodbyeCode.REFUSED,
            "peter may not monitor b1",
        )

    def test_only_who_may_operate_has_a_broker_moved(self) -> None:
        overlay = three_brokers()

        [allowed] = [
            answer
            for answer in overlay.monitor("olga", Relocate(broker=NodeId("b1"), host=NodeId("b2")))
            if isinstance(answer, Relocated)
        ]
        [denied] = [
            answer
            for answer in three_brokers().monitor(
                "olga", Relocate(broker=NodeId("b2"), host=NodeId("b3"))
            )
            if isinstance(answer, Relocated)
        ]

        assert allowed.reason == ""
        assert denied.reason == "olga may not operate b2"

    def test_a_monitor_that_may_no_longer_is_told_so(self) -> None:
        overlay = three_brokers()
        overlay.monitor("olga")

        effects = overlay.host("b1").step(overlay.world.now, RulesChanged(read_rules("")))

        messages: list[Any] = [e.message for e in effects if isinstance(e, SendMessage)]
        farewells = [message for message in messages if isinstance(message, Goodbye)]
        assert [farewell.reason for farewell in farewells] == ["olga may not monitor b1"]


def test_the_rule_is_told_to_whoever_runs_the_broker_only() -> None:
    overlay = three_brokers()
    bob = overlay.client("bob", "b1")

    bob.subscribes("x = 7")
    overlay.passes(1)

    assert [refusal.reason for refusal in bob.refusals] == ["bob may not subscribe to x = 7"]
    assert any("line 5: deny bob subscribe x = 7" in line for line in overlay.world.trace)


def test_a_request_that_is_said_again_is_judged_again() -> None:
    """A client that was dropped, and never withdrew it, does not get it by asking once more."""
    overlay = three_brokers("allow * subscribe x < 10")
    bob = overlay.client("bob", "b3")
    asked = Subscribe(
        operation=OperationId("bob#1.77"),
        subscription=SubscriptionId("bob/77"),
        client=NodeId("bob"),
        filter="x < 100",
        ordered=True,
        path=(NodeId("bob"),),
    )

    for _ in range(2):
        bob.core.stream.request(asked)
        overlay.world.carry_out_calls(bob.node)
        overlay.passes(1)

    assert overlay.host("b3").known_interests() == []
