"""Conversations: real cores joined in the simulator, without randomness, for tests to talk to.

overlay = Conversation()
overlay.brokers("b1", b2="b1")
alice = overlay.client("alice", at="b2")
alice.subscribes("price > 10")
bob = overlay.client("bob", at="b1")
bob.advertises("TRUE")
bob.publishes(price=12)
overlay.settle()

assert alice.received == ["bob:1"]
"""

from typing import Any

from broker.client_core import ClientCore, ClientState
from broker.core import BrokerCore
from broker.effects import Delivery, Refusal
from broker.inputs import LinkId, LinkOpened, MessagesReceived
from broker.limits import Limits
from broker.messages import Message
from broker.sim.adapters import TodaysCores
from broker.sim.nodes import Node
from broker.sim.runs import NEVER_TOO_MANY
from broker.sim.world import SIMULATED_LIMITS, World
from faulttol.guarantees import Report, check
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from routing.values import Value

LINK_DELAY_S = 0.001
FIRST_STRANGER = 1_000_000
"""Above the links that the world numbers."""


class Client:
    """A client, told what to do in the present tense."""

    def __init__(self, world: World, node: Node) -> None:
        self._world = world
        self.node = node
        assert isinstance(node.core, ClientCore)
        self.core = node.core
        self.deliveries: list[Delivery] = []
        self.refusals: list[Refusal] = []
        self.answered: list[OperationId] = []
        node.on_delivery = self.deliveries.append

    @property
    def received(self) -> list[str]:
        """What was delivered, in order, as publisher:seq."""
        return [f"{delivery.publisher}:{delivery.seq}" for delivery in self.deliveries]

    def subscribes(self, filter_text: str, *, ordered: bool = True) -> SubscriptionId:
        subscription, operation = self.core.subscribe(self._world.now, filter_text, ordered=ordered)
        self._expect(operation)
        return subscription

    def unsubscribes(self, subscription: SubscriptionId) -> None:
        self._expect(self.core.unsubscribe(self._world.now, subscription))

    def advertises(self, filter_text: str) -> AdvertisementId:
        advertisement, operation = self.core.advertise(self._world.now, filter_text)
        self._expect(operation)
        return advertisement

    def unadvertises(self, advertisement: AdvertisementId) -> None:
        self._expect(self.core.unadvertise(self._world.now, advertisement))

    def publishes(
        self, body: bytes = b"", *, urgent: bool = False, ordered: bool = True, **content: Value
    ) -> int:
        seq = self.core.publish(self._world.now, content, body, urgent=urgent, ordered=ordered)
        self._world.carry_out_calls(self.node)
        return seq

    def leaves(self) -> None:
        self.core.leave(self._world.now)
        self._world.carry_out_calls(self.node)

    def _expect(self, operation: OperationId) -> None:
        def outcome(refusal: Refusal | None) -> None:
            self.answered.append(operation)
            if refusal is not None:
                self.refusals.append(refusal)

        self.node.outcomes[operation] = outcome
        self._world.carry_out_calls(self.node)


class Conversation:
    """An overlay whose links all take a millisecond, and in which nothing is left to chance."""

    def __init__(
        self, *, limits: Limits = SIMULATED_LIMITS, world: World | None = None, **settings: Any
    ) -> None:
        self.world = world or World(
            0,
            limits=limits,
            delay_s=(LINK_DELAY_S, LINK_DELAY_S),
            jitter=0.0,
            cores=TodaysCores(),
            is_traced=True,
        )
        self._settings = settings
        self._strangers = 0

    def brokers(self, root: str, **join_points: str) -> None:
        """Start the root, and every other broker at its join point; wait until all are there."""
        self.world.add_broker(NodeId(root), None, **self._settings)
        for name, join_point in join_points.items():
            self.world.add_broker(NodeId(name), NodeId(join_point), **self._settings)
            self.settle()

    def client(self, name: str, *, at: str, incarnation: int = 1) -> Client:
        """Start a client and wait until it has joined."""
        node = self.world.add_client(NodeId(name), NodeId(at), incarnation=incarnation)
        self.settle()
        return Client(self.world, node)

    def broker(self, name: str) -> BrokerCore:
        core = self.world.nodes[NodeId(name)].core
        assert isinstance(core, BrokerCore)
        return core

    def settle(self, seconds: float = 1.0) -> None:
        """Let everything happen that is due; a second is an age for links of a millisecond."""
        self.world.run(until=self.world.now + seconds)

    # --- what happens to nodes -----------------------------------------------------------------

    def crashes(self, *names: str) -> None:
        """Kill nodes, all at the same moment."""
        for name in names:
            self.world.crash(NodeId(name))

    def restarts(self, name: str) -> None:
        """Start a broker again with what is on its disk."""
        self.world.restart(NodeId(name))

    def freezes(self, name: str) -> None:
        self.world.freeze(NodeId(name))

    def goes_on(self, name: str) -> None:
        """Let a frozen node go on."""
        self.world.unfreeze(NodeId(name))

    def loses_connection(self, one: str, other: str) -> None:
        assert self.world.break_link(NodeId(one), NodeId(other))

    def is_told_from_above(self, name: str, *messages: Message) -> None:
        """Let a broker hear this, as if its parent had said it."""
        parent = self.broker(name).neighbours.parent
        assert parent is not None
        assert parent.link is not None
        heard = MessagesReceived(parent.link, list(messages))
        self.world._tell(self.world.nodes[NodeId(name)], heard)

    def is_told_by_stranger(self, name: str, *messages: Message) -> LinkId:
        """Let a broker hear this over a new connection; what it answers goes nowhere."""
        node = self.world.nodes[NodeId(name)]
        self._strangers += 1
        link = LinkId(FIRST_STRANGER + self._strangers)
        self.world._tell(node, LinkOpened(link))
        self.world._tell(node, MessagesReceived(link, list(messages)))
        return link

    # --- what came of it -------------------------------------------------------------------------

    def parent_of(self, name: str) -> str | None:
        parent = self.broker(name).neighbours.parent
        return None if parent is None else parent.node

    @property
    def _patience(self) -> float:
        return self.world.limits.resume_timeout_s

    def judge(self, ordering: str = "fifo") -> Report:
        return check(self.world.records(), ordering=ordering, delta=1, patience=self._patience)

    def troubles(self, ordering: str = "pairwise") -> list[str]:
        """Guarantees that did not hold, whoever failed, and what has not come to an end."""
        report = check(
            self.world.records(), ordering=ordering, delta=NEVER_TOO_MANY, patience=self._patience
        )
        found = [str(violation) for violation in report.violations]
        for node in self.world.nodes.values():
            core = node.core
            if node.stopped is not None:
                continue
            if isinstance(core, BrokerCore):
                found.extend(f"{node.name}: {text}" for text in core.unfinished())
            elif core.unconfirmed or core.kept or core.state is not ClientState.READY:
                found.append(f"{node.name} is {core.state}, {core.unconfirmed} unconfirmed")
        return found
