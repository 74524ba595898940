"""What happens in a random run: which overlay, who asks, who publishes, who comes and goes.

Everything is drawn from the world's random numbers. Contents are small on purpose: with ten values
of one attribute and a handful of topics, filters overlap, cover and miss each other all the time.
"""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final

import attrs

from plait.broker.effects import Refusal
from plait.broker.errors import NotAdvertisedError
from plait.broker.sim.faults import NO_TROUBLES, Faults, Troubles
from plait.broker.sim.liars import Liar
from plait.broker.sim.nodes import Node
from plait.broker.sim.world import World
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.orderings import ORDERINGS_OF_TOPICS
from plait.routing.values import Value
from plait.topologies.builders import line, random_tree, star
from plait.topologies.overlay import Overlay

AWAY_S: Final = 12.0
"""Longer than `SIMULATED_LIMITS.resume_timeout_s`, which is looked at once per tick."""
STRETCHES: Final = (1.0, 4.0, 16.0)
"""How much longer a run is where faults take their time: some of all happens at once, or hardly."""
SHAPES: Final = ("random", "chain", "star")
"""Of overlays."""
TOPICS: Final = ("/news", "/news/sport", "/news/stocks", "/weather")


@attrs.frozen(kw_only=True)
class Workload:
    """How much of everything; the defaults make a run of some fifty milliseconds."""

    brokers: int = 7
    shape: str = "random"
    """One of `SHAPES`."""
    publishers: int = 4
    subscribers: int = 4
    publications: int = 8
    """Of each publisher, at most."""
    breaks: int = 2
    """Connections that are cut, at most."""
    absences: float = 0.05
    """How likely it is that one client is away for so long that its session is lost."""
    crashes: int = 0
    """Brokers that are killed, at most; never more than δ before the tree is whole again."""
    recoveries: int = 0
    """Of these, those that are started again, at most."""
    freezes: int = 0
    """Times that a broker stops where it is and goes on later, at most; counted as failures."""
    standbys: int = 0
    """Brokers for which another one stands by, at most."""
    moves: int = 0
    """Times that a host hands a broker over to another one, at most."""
    client_crashes: int = 0
    """Clients that are killed, at most; most come back in another life."""
    liars: int = 0
    """Hosts that lie now and then, at most; what clients owe each other beyond them is not judged.
    At least one of the others does not lie."""
    troubles: Troubles = NO_TROUBLES
    is_limited: bool = True
    """Whether no more than δ brokers fail before the tree is whole again."""
    duration_s: float = 0.6
    """Virtual time in which everything begins; it ends when it has ended."""

    @property
    def fails_brokers(self) -> bool:
        """Whether brokers fail, or are taken for failed."""
        troubles = self.troubles
        return bool(
            self.crashes or self.freezes or troubles.cuts or troubles.twins or troubles.pairs
        )

    @property
    def has_failures(self) -> bool:
        """Whether somebody may fail, or be taken for failed, so that others wait for it."""
        return bool(
            self.crashes or self.freezes or self.client_crashes or self.troubles != NO_TROUBLES
        )

    @property
    def is_timed(self) -> bool:
        """Whether anything happens that shows only by heartbeats."""
        return self.freezes > 0 or self.troubles.are_timed


def random_filter(random: Random, *, width: int) -> str:
    """A filter on the values 0 to 9 of `x`, on a topic, or on both."""
    low = random.randrange(10)
    choice = random.random()
    if choice < 0.6:
        return f"x BETWEEN {low} AND {min(9, low + random.randrange(width))}"
    if choice < 0.8:
        return f"topic = '{random.choice(TOPICS)}'"
    if choice < 0.9:
        return f"x >= {low} AND topic LIKE '/news%'"
    return f"x <> {low} OR topic IS NULL" if choice < 0.95 else "TRUE"


def random_content(random: Random) -> Mapping[str, Value]:
    """A content that some filter of `random_filter` matches, and many do not."""
    content: dict[str, Value] = {"x": random.randrange(10)}
    if random.random() < 0.5:
        content["topic"] = random.choice(TOPICS)
    return content


def random_topics(random: Random, *, width: int) -> str:
    """A filter on topics, as all have to be where topics are ordered."""
    topics = random.sample(TOPICS, random.randint(1, min(width, len(TOPICS))))
    names = ", ".join(f"'{topic}'" for topic in topics)
    narrowed = f" AND x >= {random.randrange(10)}" if random.random() < 0.2 else ""
    return f"topic IN ({names}){narrowed}"


def random_content_on_topic(random: Random) -> Mapping[str, Value]:
    """A content that some filter of `random_topics` matches."""
    return {"x": random.randrange(10), "topic": random.choice(TOPICS)}


@attrs.frozen
class Matter:
    """What is published, and what is wanted of it."""

    filter: Callable[..., str]
    content: Callable[[Random], Mapping[str, Value]]


def matter_of(ordering: str) -> Matter:
    """What may be published under an ordering."""
    if ordering in ORDERINGS_OF_TOPICS:
        return Matter(random_topics, random_content_on_topic)
    return Matter(random_filter, random_content)


class _Actor:
    """A client with a mind of its own. Whatever it asks for is counted until it is answered."""

    def __init__(self, run: "RandomRun", node: Node) -> None:
        self.run = run
        self.world = run.world
        self.random = run.random
        self.node = node
        assert node.client is not None
        self.client = node.client
        self.calls = node.client.calls
        self.unanswered = 0

    @property
    def is_open(self) -> bool:
        """Whether there is anything left to ask this client."""
        return self.client.is_open

    @property
    def now(self) -> float:
        """What its own clock shows."""
        return self.world.time_of(self.node)

    def later(self, delay: float, action: Callable[..., object], *arguments: Any) -> None:
        """Do something a while from now, if it is there by then to do it."""
        self.world.after(delay, self.world.act, self.node, action, *arguments)

    def pause(self) -> float:
        """How long until the next thing it does."""
        return self.random.uniform(0, self.run.duration_s / 8)

    def expect(self, operation: OperationId, then: Callable[[], None] | None = None) -> None:
        """Note a call, and what to do when it has returned."""
        self.unanswered += 1

        def outcome(refusal: Refusal | None) -> None:
            self.unanswered -= 1
            is_expected = refusal is None or bool(self.world.liars)
            assert is_expected, f"{self.node.name} was refused: {refusal}"
            if refusal is None and then is not None:
                then()

        self.node.outcomes[operation] = outcome
        self.world.carry_out_calls(self.node)

    def begin(self) -> None:
        """Do the first thing; called when the client has joined."""
        raise NotImplementedError

    def die(self) -> None:
        """Be killed."""
        self.run.client_dies(self)

    def leave(self) -> None:
        """Take its leave, once everything it asked for has been confirmed."""
        if self.unanswered or self.client.unconfirmed or not self.client.is_connected:
            self.later(0.05, self.leave)
        elif self.is_open:
            self.calls.leave(self.now)
            self.world.carry_out_calls(self.node)


class _Publisher(_Actor):
    """Advertises once or twice and publishes within that; some leave."""

    remaining = 1
    """Drawn when it has joined."""
    is_dying = False

    def begin(self) -> None:
        """Advertise; publishing begins when that is confirmed."""
        self.remaining = self.random.randint(1, self.run.workload.publications)
        for _ in range(self.random.randint(1, 2)):
            filter_text = self.run.matter.filter(self.random, width=10)
            advertisement, operation = self.calls.advertise(self.now, filter_text)
            self.expect(operation, partial(self._begin_under, advertisement))

    def _begin_under(self, advertisement: AdvertisementId) -> None:
        self.later(self.pause(), self._publish)
        if self.random.random() < 0.1:
            self.later(4 * self.pause(), self._unadvertise, advertisement)

    def _publish(self) -> None:
        if not self.is_open:
            return
        if self.is_dying and self.run.may_fail(at_least=1):
            self._publish_and_die()
            return
        for _ in range(self.random.choice((1, 1, 1, 3))):
            if self.remaining:
                self.remaining -= 1
                if self._hand_over(self.random):
                    self.world.carry_out_calls(self.node)
        if self.remaining:
            self.later(self.pause(), self._publish)
        elif self.random.random() < 0.3:
            self.leave()

    def _hand_over(self, chance: Random) -> bool:
        for _ in range(10):
            content = self.run.matter.content(chance)
            body = chance.choice((b"", b"body"))
            mood = chance.random()
            # What lies outside the advertisement is refused on the spot; try another one.
            with contextlib.suppress(NotAdvertisedError):
                self.calls.publish(self.now, content, body, urgent=mood < 0.2, ordered=mood < 0.9)
                return True
        return False

    def die(self) -> None:
        """Be killed when it publishes next, or now if it is not going to."""
        if self.remaining and self.is_open:
            self.is_dying = True
        else:
            super().die()

    def _publish_and_die(self) -> None:
        """Publish several at once, and be killed before all of it has gone."""
        chance = self.world.chance("clients")
        for _ in range(chance.randint(2, 6)):
            self._hand_over(chance)
        self.world.carry_out_calls(self.node)
        work_s = self.run.workload.troubles.step_cost_ms / 1000
        if work_s:  # nothing has gone yet
            self.world.after(chance.uniform(0, 10 * work_s), self.run.client_dies, self)
        else:
            self.run.client_dies(self)

    def _unadvertise(self, advertisement: AdvertisementId) -> None:
        if self.is_open:
            self.expect(self.calls.unadvertise(self.now, advertisement))


class _Subscriber(_Actor):
    """Subscribes one to three times; some subscriptions end early, some subscribers leave."""

    def begin(self) -> None:
        """Spread the subscriptions over the run."""
        for _ in range(self.random.randint(1, 3)):
            self.later(2 * self.pause(), self._subscribe)
        mood = self.random.random()
        self.is_strict = mood < 0.8
        if mood < 0.15:
            self.later(8 * self.pause(), self.leave)

    def _subscribe(self) -> None:
        if not self.is_open:
            return
        filter_text = self.run.matter.filter(self.random, width=6)
        # Those who are not strict care about the order of topics, and of nothing else.
        subscription, operation = self.calls.subscribe(
            self.now, filter_text, ordered=self.is_strict or "topic" in filter_text
        )
        self.expect(operation, lambda: self._maybe_end(subscription))

    def _maybe_end(self, subscription: SubscriptionId) -> None:
        if self.random.random() < 0.3:
            self.later(4 * self.pause(), self._unsubscribe, subscription)

    def _unsubscribe(self, subscription: SubscriptionId) -> None:
        if self.is_open:
            self.expect(self.calls.unsubscribe(self.now, subscription))


class RandomRun:
    """One random run: the actors, and the calendar on which they begin."""

    def __init__(
        self,
        world: World,
        workload: Workload,
        *,
        ordering: str,
        delta: int,
        policy: str,
        detection: str,
        managers: str,
    ) -> None:
        """Put everything on the world's calendar; `World.run` does the rest."""
        self.world = world
        self.workload = workload
        self.matter = matter_of(ordering)
        self.random = world.random
        self.overlay = _overlay(workload, self.random)
        self.delta = delta
        self.recoveries_left = workload.recoveries
        self.actors: list[_Actor] = []
        self._failed_until: list[float] = []
        """Until when clients that were killed count as failures, one each."""
        self.faults = Faults(
            world, workload.troubles, may_fail=self._may_lose_a_host, kill=self._kill_broker
        )
        duration = self.duration_s = workload.duration_s
        if workload.troubles.are_timed:
            duration = self.duration_s = duration * world.chance("duration").choice(STRETCHES)
        settings = {
            "ordering": ordering,
            "delta": delta,
            "policy": policy,
            "detection": detection,
            "managers": managers,
        }
        for name in self.overlay.brokers:
            # Most brokers are there from the beginning, some join while the others are at work.
            is_late = name != self.overlay.root and self.random.random() < 0.2
            world.at(
                self.random.uniform(0, duration) if is_late else 0.0,
                self._start_broker,
                NodeId(name),
                settings,
            )
        sites = self.overlay.brokers
        for name in self.random.sample(sites, min(workload.standbys, len(sites))):
            world.at(0.01 + duration / 8 * self.random.random(), self._stand_by, name, settings)
        cast: list[tuple[str, type[_Actor]]] = [
            *((f"p{number}", _Publisher) for number in range(workload.publishers)),
            *((f"s{number}", _Subscriber) for number in range(workload.subscribers)),
        ]
        for name, actor in cast:
            broker = NodeId(self.random.choice(self.overlay.brokers))
            world.at(self.random.uniform(0, duration), self._start, NodeId(name), actor, broker)
        for _ in range(self.random.randint(0, workload.breaks)):
            world.at(self.random.uniform(0, 2 * duration), self._break)
        if self.random.random() < workload.absences:
            world.at(self.random.uniform(0, 2 * duration), self._send_away)

        for _ in range(self.random.randint(min(1, workload.moves), workload.moves)):
            world.at(self.random.uniform(0.02, 1.5 * duration), move_some, world, self.random)

        for _ in range(self.random.randint(min(1, workload.crashes), workload.crashes)):
            world.at(self.random.uniform(0.02, 1.5 * duration), self._crash)

        for _ in range(self.random.randint(1, workload.freezes) if workload.freezes else 0):
            world.at(self.random.uniform(0.02, 1.5 * duration), self._freeze)

        self._appoint_liars()
        self.faults.begin(0.02, 1.5 * duration)
        chance = world.chance("clients")
        for _ in range(
            chance.randint(1, workload.client_crashes) if workload.client_crashes else 0
        ):
            world.at(chance.uniform(0.02, 1.5 * duration), self._kill_client, chance)

    def _appoint_liars(self) -> None:
        chance = self.world.chance("liars")
        most = min(self.workload.liars, len(self.overlay.brokers) - 1)
        for name in chance.sample(self.overlay.brokers, chance.randint(min(1, most), most)):
            self.world.liars[NodeId(name)] = Liar(NodeId(name), chance)

    @property
    def unanswered(self) -> int:
        """Calls of clients that have not returned."""
        return sum(actor.unanswered for actor in self.actors if actor.node.stopped != "crashed")

    def _start_broker(self, name: NodeId, settings: dict[str, Any]) -> None:
        """Let a broker join where the overlay says, or if nobody is left there, anywhere."""
        join = self.overlay.parent_of(name)
        others = [NodeId(b) for b in self.overlay.brokers if b not in (join, name)]
        parent = NodeId(join) if join is not None else None
        self.world.add_broker(name, parent, fallbacks=others, **settings)

    def _stand_by(self, name: str, settings: dict[str, Any]) -> None:
        """Start a standby as soon as the broker is there for which it stands by."""
        if NodeId(name) not in self.world.nodes:
            self.world.after(0.05, self._stand_by, name, settings)
        else:
            others = [NodeId(broker) for broker in self.overlay.brokers if broker != name]
            self.world.add_broker(
                NodeId(f"{name}-2"), NodeId(name), fallbacks=others, standby=1, **settings
            )

    def _start(self, name: NodeId, actor: type[_Actor], broker: NodeId) -> None:
        if broker not in self.world.nodes:
            self.world.after(0.05, self._start, name, actor, broker)
            return
        others = [node.name for node in self.brokers_alive() if node.name != broker]
        node = self.world.add_client(name, broker, *others)
        self.actors.append(actor(self, node))
        self.world.when_ready(node, self.actors[-1].begin)

    def _break(self) -> None:
        links = self.world.links()
        if links:
            self.world.break_link(*self.random.choice(links))

    def _crash(self) -> None:
        victim = self._next_victim()
        if victim is not None:
            self._kill_broker(victim)

    def _kill_broker(self, victim: NodeId) -> None:
        self.faults.before_crash(victim)
        self.world.crash(victim)
        if self.recoveries_left:
            self.recoveries_left -= 1
            pause = self.random.choice((0.0, 0.05, 1.0)) * self.random.random()
            self.world.after(pause, self.faults.restart, victim)

    def _kill_client(self, chance: Random) -> None:
        """Kill a client; more often than not its application starts it again, soon or later."""
        actors = [a for a in self.actors if a.node.is_alive and a.node.frozen is None]
        if not actors or not self.may_fail(at_least=1):
            return
        chance.choice(actors).die()

    def client_dies(self, actor: _Actor) -> None:
        """Kill a client now."""
        if not actor.node.is_alive:
            return
        chance = self.world.chance("clients")
        self.world.crash(actor.node.address)
        self._failed_until.append(self.world.now + self.world.limits.heartbeat_timeout_s)
        if chance.random() < 0.7:
            pause = chance.choice((0.0, 0.3, 6.0)) * chance.random()
            self.world.after(pause, self._begin_again, actor)

    def _begin_again(self, actor: _Actor) -> None:
        node = self.world.restart(actor.node.address)
        if node is not None:
            self.actors.append(type(actor)(self, node))
            self.world.when_ready(node, self.actors[-1].begin)

    def _freeze(self) -> None:
        """Stop a broker, for a moment, or for about as long as others wait, or for longer."""
        victim = self._next_victim()
        if victim is not None:
            self.world.freeze(victim)
            timeout_s = self.world.limits.heartbeat_timeout_s
            pause = self.random.choice((0.01, 1.5, 3.0)) * timeout_s * self.random.random()
            self.world.after(pause, self.world.unfreeze, victim)

    def _next_victim(self) -> NodeId | None:
        """A broker that may fail now, unless that would be one too many at a time."""
        return self.random.choice(self._at_work()).address if self._may_lose_a_host() else None

    def _may_lose_a_host(self) -> bool:
        """Whether a host may fail now, and enough others are there to go on without it."""
        return self.may_fail() and len(self._at_work()) > self.delta + 1

    def _at_work(self) -> list[Node]:
        return [node for node in self.brokers_alive() if node.is_ready and node.frozen is None]

    def may_fail(self, *, at_least: int = 0) -> bool:
        """Whether one more may fail now; with `at_least`, of so many also where δ is less."""
        if not self.workload.is_limited:
            return True
        self._failed_until = [until for until in self._failed_until if until > self.world.now]
        failed = self.world.vulnerable() + len(self._failed_until)
        return failed < max(self.delta, at_least)

    def brokers_alive(self) -> list[Node]:
        """The hosts that have neither crashed nor stopped."""
        return [node for node in self.world.hosts if node.is_alive]

    def _send_away(self) -> None:
        if self.actors:
            actor = self.random.choice(self.actors)
            if actor.client.broker is not None:
                self.world.take_off_the_net(actor.node.name, actor.client.broker, AWAY_S)


def _overlay(workload: Workload, chance: Random) -> Overlay:
    match workload.shape:
        case "chain":
            return line(workload.brokers)
        case "star":
            return star(workload.brokers - 1)
        case _:
            return random_tree(workload.brokers, chance.randrange(1 << 30))


def move_some(world: World, chance: Random) -> None:
    """Let a host hand over to another one what it plays, if anybody plays anything."""
    givers = [
        n for n in world.hosts if n.is_alive and n.host is not None and n.host.can_hand_over()
    ]
    if givers:
        world.hand_over(chance.choice(givers), chance)
