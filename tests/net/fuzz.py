"""Brokers under a rain of messages that are almost right.

Valid messages, of every kind and in every state of a link, with some of their fields at a limit, of
another type, or in somebody else's name, and in any order. Nothing that a stranger says may end a
broker; and what clients, monitors and strangers say must cost nobody else anything: an honest
publisher and its subscriber, at either end of three brokers, look whether it does.

    python -m tests.net.fuzz --messages 1000000 --seed 7

The cores are those that run over TCP, and so is the codec; only time is virtual. `--role` is one of
`client`, `monitor`, `broker`, `host`, `nobody` (against an overlay) and `state` (one host, a
connection in any state); without it, all of them take turns.
"""

import argparse
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import attrs
import msgpack

from plait.broker.client.states import ClientState
from plait.broker.codec import FrameDecoder, encode
from plait.broker.effects import CloseLink, Effect, SendMessage, Stop
from plait.broker.errors import LocalProtocolError, RemoteProtocolError
from plait.broker.host.host import Host
from plait.broker.host.link_states import IN_BATCHES, LEGAL, LinkState
from plait.broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    TimerFired,
)
from plait.broker.messages import (
    Attach,
    AttachRequest,
    AttachTables,
    Confirm,
    EndOfStep,
    Hello,
    HostPlace,
    Join,
    Life,
    Message,
    NodeKind,
    Publish,
    Seat,
    Seating,
    Settings,
    StatusRequest,
    Welcome,
)
from plait.broker.sim.nodes import Node
from plait.broker.sim.world import LIVELY_LIMITS
from plait.routing.ids import NodeId, OperationId
from plait.routing.orderings import ORDERINGS
from tests.host.test_link_states import HERE, PEER, SAMPLE_OF, hello
from tests.host.worlds import Lively

ROLES: Final = ("client", "monitor", "nobody", "broker", "host", "state")
HONEST_ROLES: Final = ("client", "monitor", "nobody")
"""What those say may cost nobody else anything; whether a broker is one no rule can tell."""

NUMBERS: Final = (0, 1, 2, 3, 7, 255, 1 << 31, 2**63 - 1, 2**63, 2**64 - 1, -1)
TEXTS: Final = (
    *("", "b1", "b2", "b3", "here", "peer", "other", "failed", "nyse", "alice", "evil"),
    *("broker", "client", "monitor", "fenced", "refused", "left", "stranded", "pairwise"),
    *("nyse/1", "alice/1", "peer/0", "peer/1", "peer/2", "peer#1.7", "b2#1.1", "b1#1.1"),
    *("TRUE", "n IS NOT NULL", "n >", "a LIKE '%x_'", "[n,>,1]", "\n\x1b[2J", "x" * 255, "x" * 300),
)
BYTES: Final = (b"", b"\x80", b"\x81", b"\x81\xa1n\x01", b"\x81\xa1n\xc0", b"\xc1", b"x" * 300)
OTHERS: Final[tuple[Any, ...]] = (None, True, False, 1.5, [], {}, *NUMBERS, *TEXTS, *BYTES)


class Mutator:
    """Makes frames that are almost right."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._before: list[bytes] = []

    def frame(self, message: Message, likelihood: float = 0.6) -> bytes:
        """This message, or something like it, or something that was there before."""
        random = self._random
        if self._before and random.random() < likelihood / 12:
            return random.choice(self._before)
        frame = encode(message)
        if random.random() < likelihood:
            elements = msgpack.unpackb(frame[4:], strict_map_key=False)
            for _ in range(random.choice((1, 1, 2, 3))):
                self._mutate(elements, first=1)
            payload = msgpack.packb(elements)
            frame = len(payload).to_bytes(4, "big") + payload
        if len(self._before) < 500:
            self._before.append(frame)
        else:
            self._before[random.randrange(500)] = frame
        return frame

    def _mutate(self, elements: list[Any], first: int = 0) -> None:
        if len(elements) <= first:
            elements.append(self._random.choice(OTHERS))
            return
        place = self._random.randrange(first, len(elements))
        elements[place] = self._other(elements[place])

    def _other(self, value: Any) -> Any:
        random = self._random
        if random.random() < 0.05:
            return random.choice(OTHERS)
        match value:
            case bool():
                return not value
            case int():
                return random.choice((*NUMBERS, min(value + 1, 2**64 - 1), value - 1))
            case str():
                return random.choice(TEXTS)
            case bytes():
                return random.choice(BYTES)
            case list() if value and random.random() < 0.7:
                changed = list(value)
                self._mutate(changed)
                return changed
            case list():
                return random.choice(([], value * 2, value * 40, [random.choice(OTHERS)]))
        return random.choice(OTHERS)


class FoundError(Exception):
    """What must not be has been seen."""


@attrs.define
class Tally:
    """What was sent, and what came of it."""

    messages: int = 0
    refused: int = 0
    """By the codec."""
    hung_up: int = 0
    """By the core."""
    fenced: int = 0
    published: int = 0
    rebuilt: int = 0


def decoded(frame: bytes) -> list[Message] | None:
    """What a broker is told; None if the codec hangs up."""
    try:
        return FrameDecoder().feed(frame)
    except RemoteProtocolError:
        return None


def require_sendable(effects: list[Effect]) -> None:
    """What a broker says, its peers can read."""
    for effect in effects:
        if type(effect) is SendMessage:
            try:
                encode(effect.message)
            except LocalProtocolError as error:
                raise FoundError(f"cannot be sent: {effect.message}: {error}") from error


# One host, and a connection in any state

LINK: Final = LinkId(1)
ANOTHER_LINK: Final = LinkId(2)
FAILED: Final = NodeId("failed")
PLACES: Final = (
    HostPlace(host=PEER, incarnation=1, address="peer:1"),
    HostPlace(host=FAILED, incarnation=1, address="failed:1"),
)
BELOW: Final = Seating(
    seats=(
        Seat(broker=PEER, parent="failed", term=1, host=PEER, incarnation=1),
        Seat(broker=FAILED, parent="here", term=1, host=FAILED, incarnation=1),
    ),
    hosts=PLACES,
)
"""A line of which the broker here is the top."""
ABOVE: Final = Seating(
    seats=(
        Seat(broker=PEER, parent="", term=1, host=PEER, incarnation=1),
        Seat(broker=FAILED, parent="peer", term=1, host=FAILED, incarnation=1),
        Seat(broker=HERE, parent="failed", term=1, host=HERE, incarnation=1),
    ),
    hosts=PLACES,
)
"""A line of which it is the other end."""


def joins(node: NodeId) -> list[Message]:
    """What a newcomer says after its greeting."""
    return [Join(operation=OperationId(f"{node}#1.1")), EndOfStep(step=1)]


def welcome(node: NodeId, ordering: str) -> Welcome:
    usual: Welcome = SAMPLE_OF[Welcome]
    return attrs.evolve(usual, node=node, host=node, settings=Settings(ordering=ordering))


def begun(ordering: str, join: str | None = None) -> Host:
    """A host that plays a root, or looks for its join point."""
    host = Host(HERE, 1, address="here:1", join=join, ordering=ordering, limits=LIVELY_LIMITS)
    host.start(0.0)
    return host


def told(host: Host, *messages: Message, link: LinkId = LINK, dialled: str = "") -> list[Message]:
    """Let a host hear this over a new connection; returns what it has to say."""
    effects = host.step(0.0, LinkOpened(link, dialled))
    if messages:
        effects += host.step(0.0, MessagesReceived(link, list(messages)))
    return [effect.message for effect in effects if isinstance(effect, SendMessage)]


def lose(host: Host, link: LinkId, address: str) -> None:
    """Let a neighbour have failed beyond doubt."""
    host.step(0.0, LinkClosed(link, "gone"))
    host.step(0.0, LinkFailed(address, "connection refused", is_refused=True))


def hello_of_broker(node: NodeId, **changes: Any) -> Message:
    usual = {"node": node, "host": node, "address": f"{node}:1"}
    return hello(NodeKind.BROKER, **(usual | changes))


def taking_up(ordering: str) -> Host:
    """A host that takes up the broker below it, of which somebody has to say what it has."""
    host = begun(ordering)
    told(host, hello_of_broker(FAILED), *joins(FAILED), BELOW, link=ANOTHER_LINK)
    lose(host, ANOTHER_LINK, "failed:1")
    told(host, hello_of_broker(PEER, to=FAILED, known_term=1, term=1))
    return host


def attaching(ordering: str) -> Host:
    """A host that is asked what it has of the broker above it, by whom that is taken up."""
    host = begun(ordering, join="failed:1")
    said = told(host, welcome(FAILED, ordering), link=ANOTHER_LINK, dialled="failed:1")
    [join] = [message for message in said if isinstance(message, Join)]
    let_in: list[Message] = [Confirm(operation=join.operation), EndOfStep(step=1), ABOVE]
    host.step(0.0, MessagesReceived(ANOTHER_LINK, let_in))
    lose(host, ANOTHER_LINK, "failed:1")
    told(host, AttachRequest(broker=FAILED), dialled="peer:1")
    return host


def host_in(state: LinkState, ordering: str, random: Random) -> Host:
    """A host with a connection in this state."""
    before: list[Message] = []
    match state:
        case LinkState.ATTACHED:
            return taking_up(ordering)
        case LinkState.ATTACHING:
            return attaching(ordering)
        case LinkState.AWAITING_WELCOME:
            host = begun(ordering, join="peer:1")
        case LinkState.TO_BROKER if random.random() < 0.5:
            host, before = begun(ordering, join="peer:1"), [welcome(PEER, ordering)]
        case LinkState.AWAITING_HELLO:
            host = begun(ordering)
        case LinkState.TO_BROKER:
            host, before = begun(ordering), [hello_of_broker(PEER), *joins(PEER)]
        case LinkState.TO_CLIENT:
            host, before = begun(ordering), [hello(NodeKind.CLIENT), *joins(PEER)]
        case LinkState.TO_MONITOR:
            host, before = begun(ordering), [hello(NodeKind.MONITOR)]
        case LinkState.TO_HOST:
            host, before = begun(ordering), [hello(NodeKind.HOST)]
    told(host, *before, dialled="" if host.me.is_ready else "peer:1")
    return host


def any_sample(state: LinkState, random: Random) -> Message:
    """Most often one that is expected in this state."""
    kinds = LEGAL[state] if random.random() < 0.8 else SAMPLE_OF
    sample: Message = SAMPLE_OF[random.choice(sorted(kinds, key=str))]
    return sample


def attachment(random: Random) -> list[Message]:
    """What somebody has of a broker, as it should be said."""
    told_before, sent, received, controls = (random.choice((0, 0, 1, 2)) for _ in range(4))
    tables: AttachTables = SAMPLE_OF[AttachTables]
    head: Attach = SAMPLE_OF[Attach]
    return [
        attrs.evolve(
            head,
            to=FAILED,
            kind=NodeKind.BROKER,
            incarnation=0,
            taken=received,
            sent_steps=tuple(range(1, sent + 1)),
            received_steps=tuple(range(1, received + 1)),
        ),
        attrs.evolve(
            tables,
            advertisements=tables.advertisements[:1] * told_before,
            controls=tables.controls[:1] * controls,
            is_last=True,
        ),
        *(Publish(PEER, 1, n, 0, b"\x81\xa1n\x01", b"") for n in range(1, sent + received + 1)),
        *[any_sample(LinkState.TO_BROKER, random)] * controls,
    ]


def fuzz_states(random: Random, mutator: Mutator, count: int, tally: Tally) -> None:
    """One host after the other with one connection; only its own join point may end it."""
    until = tally.messages + count
    while tally.messages < until:
        state = random.choice(list(LinkState))
        ordering = random.choice(list(ORDERINGS))
        history: list[str] = [f"{state}, {ordering}"]
        try:
            host = host_in(state, ordering, random)
            for effects in lives_through(host, state, random, mutator, tally, history):
                require_sendable(effects)
                tally.hung_up += any(isinstance(effect, CloseLink) for effect in effects)
                stops = [effect for effect in effects if isinstance(effect, Stop)]
                tally.fenced += len(stops)
                has_joined = host.me.is_ready
                if any(not stop.comes_back and has_joined for stop in stops):
                    raise FoundError(f"ended: {stops}")
                if stops:
                    break
        except Exception as error:
            raise FoundError("\n  ".join([repr(error), *history])) from error


def lives_through(
    host: Host,
    state: LinkState,
    random: Random,
    mutator: Mutator,
    tally: Tally,
    history: list[str],
) -> Iterator[list[Effect]]:
    """What a host wants done while it is told this and that, and then for a while nothing."""
    is_asked = state is LinkState.ATTACHED
    expected, now, step = deque(attachment(random) if is_asked else []), 0.0, 1
    for _ in range(random.randrange(1, 40)):
        if random.random() < 0.2:
            now += 0.5
            yield host.step(now, TimerFired())
        elif host.kind_of(LINK) is None and random.random() < 0.3:
            yield host.step(now, random.choice(OCCASIONS))
        else:
            tally.messages += 1
            if expected:
                frame = mutator.frame(expected.popleft(), 0.2)
            elif state in IN_STEPS and random.random() < 0.3:
                step += 1
                frame = mutator.frame(EndOfStep(step=step), 0.1)
            else:
                frame = mutator.frame(any_sample(state, random))
            heard = decoded(frame)
            if heard is None:
                tally.refused += 1
                yield host.step(now, LinkClosed(LINK, "broke the protocol"))
            else:
                history += map(str, heard)
                yield host.step(now, MessagesReceived(LINK, heard))
    for _ in range(random.choice((0, 2, 20))):
        now += 0.5
        yield host.step(now, TimerFired())


IN_STEPS: Final = (LinkState.TO_BROKER, LinkState.TO_CLIENT)
OCCASIONS: Final[tuple[Input, ...]] = (
    LinkOpened(LINK),
    LinkOpened(LINK, "peer:1"),
    LinkFailed("peer:1", "refused"),
    LinkFailed("failed:1", "refused", is_refused=True),
)


# An overlay


def greets_as_host(message: Message) -> bool:
    """Whether somebody takes another role by chance: of that one, less is to be expected."""
    return isinstance(message, Hello) and message.kind in (NodeKind.BROKER, NodeKind.HOST)


STATE_OF: Final = {
    "client": LinkState.TO_CLIENT,
    "monitor": LinkState.TO_MONITOR,
    "broker": LinkState.TO_BROKER,
    "host": LinkState.TO_HOST,
    "nobody": LinkState.AWAITING_HELLO,
}


def script(role: str, broker: NodeId, number: int, random: Random) -> Iterator[Message]:
    """What somebody would say in a role if it were honest, and then something else."""
    name = NodeId(f"m{number}") if random.random() < 0.8 else NodeId("mallory")
    state, step = STATE_OF[role], 1
    if role == "nobody":
        yield random.choice((Seating(failed=(Life(broker, 1),)), AttachRequest(broker=broker)))
    else:
        greeting: Any = hello(NodeKind(role))
        yield attrs.evolve(greeting, node=name, host=name, incarnation=number)
    if state in IN_STEPS:
        yield from joins(name)
    if role == "monitor":
        yield from [StatusRequest()] * random.randrange(3)
    for _ in range(random.randrange(1, 25)):
        message = in_own_name(any_sample(state, random), name, number, random)
        yield message
        if type(message) in IN_BATCHES and random.random() < 0.5:
            step += 1
            yield EndOfStep(step=step)


def in_own_name(message: Message, name: NodeId, number: int, random: Random) -> Message:
    """Let a sample, which speaks of `peer`, speak of this node instead."""
    fields = {field.name for field in attrs.fields(type(message))}
    own: dict[str, Any] = {"client": name, "publisher": name, "path": (name,)}
    own |= {"incarnation": number, "seq": random.randrange(1, 20)} if "seq" in fields else {}
    own |= {"node": name, "host": name} if isinstance(message, Hello) else {}
    for field in ("operation", "subscription", "advertisement"):
        own[field] = f"{name}{'#' if field == 'operation' else '/'}{random.randrange(6)}"
    changed: Message = attrs.evolve(message, **{f: v for f, v in own.items() if f in fields})
    return changed


class Scene:
    """Three brokers in a line, a publisher and a subscriber at either end, and bad company."""

    def __init__(self, random: Random, mutator: Mutator, tally: Tally) -> None:
        self.random, self.mutator, self.tally = random, mutator, tally
        self.overlay = Lively()
        self.world = self.overlay.world
        self.world._is_traced = False
        self.overlay.brokers("b1", b2="b1", b3="b2")
        self.nyse = self.overlay.client("nyse", "b1", "b2", "b3")
        self.alice = self.overlay.client("alice", "b3", "b2", "b1")
        self.nyse.advertises("n IS NOT NULL")
        self.alice.subscribes("n IS NOT NULL")
        self.overlay.passes(1)
        self.fences: list[str] = []
        self.world.on_effects = self._on_effects
        self.said: deque[str] = deque(maxlen=100)
        self._links = 0
        self._closed: set[LinkId] = set()

    def _on_effects(self, node: Node, effects: list[Effect]) -> None:
        require_sendable(effects)
        for effect in effects:
            if isinstance(effect, Stop):
                if node.host is not None and not effect.comes_back:
                    raise FoundError(f"{node.name} ended: {effect.reason}")
                self.fences.append(f"{node.name}: {effect.reason}")
                self.tally.fenced += 1
            elif isinstance(effect, CloseLink):
                self._closed.add(effect.link)
                self.tally.hung_up += 1

    def converse(self, role: str) -> None:
        """Somebody comes, says a few things, and goes."""
        random, world = self.random, self.world
        broker = world.nodes[NodeId(random.choice(("b1", "b2", "b3")))]
        if broker.stopped is not None:
            self.overlay.passes(1)
            return
        self._links += 1
        link = LinkId(1_000_000 + self._links)
        world._tell(broker, LinkOpened(link))
        for message in script(role, broker.name, self._links, random):
            frame = self.mutator.frame(message)
            heard = decoded(frame)
            self.tally.messages += 1
            if heard is None:
                self.tally.refused += 1
                break
            if role in HONEST_ROLES and any(map(greets_as_host, heard)):
                continue
            self.said.append(f"{role} -> {broker.name}: {heard}")
            world._tell(broker, MessagesReceived(link, heard))
            if link in self._closed or broker.stopped is not None:
                break
            if random.random() < 0.3:
                self.overlay.passes(random.choice((0.0005, 0.002, 0.01)))
        if random.random() < 0.3:
            self.overlay.passes(random.choice((0.1, 1, 5)))
        if link not in self._closed and broker.stopped is None:
            world._tell(broker, LinkClosed(link, "gone"))
        if self.nyse.core.state is ClientState.READY:
            self.nyse.publishes(n=self.tally.published, urgent=random.random() < 0.5)
            self.tally.published += 1
        self.overlay.passes(0.005)

    def check(self, role: str) -> bool:
        """Whether the honest ones have what is theirs; a fake broker may have done some harm."""
        self.overlay.passes(20)
        troubles = self._troubles()
        if troubles and role in HONEST_ROLES:
            raise FoundError("\n  ".join(troubles))
        return not troubles

    def _troubles(self) -> list[str]:
        troubles = list(self.fences)
        for client in (self.nyse, self.alice):
            if client.node.stopped is not None or client.core.has_lost_session:
                troubles.append(f"{client.node.name} lost its session: {client.node.stopped}")
        unconfirmed = self.nyse.core.unconfirmed
        if unconfirmed:
            troubles.append(f"{unconfirmed} publications are not confirmed")
        expected = [f"nyse:{n}" for n in range(1, self.nyse.core.publishing.seq + 1)]
        got = [one for one in self.alice.received if one.startswith("nyse:")]
        if got != expected:
            missing = sorted(set(expected) - set(got))
            troubles.append(f"alice got {len(got)} of {len(expected)}, not {missing[:5]}")
        return troubles


CHECKED_EVERY: Final = 2_000
SCENE_OF_BROKERS: Final = 300
"""Messages of brokers and hosts in one scene: each one that comes and goes leaves a broker which
others play from then on, so the work for a message grows with all that were said before."""


def fuzz_overlay(role: str, random: Random, mutator: Mutator, count: int, tally: Tally) -> None:
    """Three brokers, and whoever comes to them in a role."""
    until = tally.messages + count
    while tally.messages < until:
        scene = Scene(random, mutator, tally)
        checked, is_well = tally.messages, True
        last = until if role in HONEST_ROLES else min(until, tally.messages + SCENE_OF_BROKERS)
        while tally.messages < last and is_well:
            try:
                scene.converse(role)
                if tally.messages - checked > CHECKED_EVERY:
                    checked, is_well = tally.messages, scene.check(role)
            except FoundError:
                raise
            except Exception as error:
                raise FoundError("\n  ".join([repr(error), *scene.said])) from error
        scene.check(role)
        tally.rebuilt += 1


def fuzz(*, messages: int, seed: int, roles: tuple[str, ...] = ROLES) -> dict[str, Tally]:
    """So many messages, divided among the roles; raises `FoundError`."""
    tallies = {}
    for role in roles:
        random = Random(f"{role} {seed}")
        mutator, tallies[role] = Mutator(random), Tally()
        count = messages // len(roles)
        if role == "state":
            fuzz_states(random, mutator, count, tallies[role])
        else:
            fuzz_overlay(role, random, mutator, count, tallies[role])
    return tallies


def main() -> int:
    """Do as the command line says, a portion at a time, each with a seed of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--portion", type=int, default=20_000, help="messages with one seed")
    parser.add_argument("--role", choices=ROLES, action="append")
    options = parser.parse_args()
    sums: Counter[tuple[str, str]] = Counter()
    begun, seed, done, failures = time.monotonic(), options.seed, 0, 0
    roles = tuple(options.role or ROLES)
    while done < options.messages:
        portion = min(options.portion, options.messages - done)
        try:
            for role, tally in fuzz(messages=portion, seed=seed, roles=roles).items():
                sums.update({(role, name): n for name, n in attrs.asdict(tally).items()})
        except FoundError as found:
            failures += 1
            print(f"seed {seed}: {found}", file=sys.stderr)
        done += portion
        print(f"seed {seed}: {done} messages, {time.monotonic() - begun:.0f} s", flush=True)
        seed += 1
    for role in roles:
        print(role, *(f"{name} {n}" for (of, name), n in sums.items() if of == role))
    print(f"{done} messages, {failures} failures, {time.monotonic() - begun:.0f} s")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
