"""Brokers under a rain of messages that are almost right.

Valid messages, of every kind and in every state of a link, with some of their fields at a limit, of
another type, or in somebody else's name, and in any order. Nothing that a stranger says may end a
broker; and what clients, monitors and strangers say must cost nobody else anything: an honest
publisher and its subscriber, at either end of three brokers, look whether it does.

    python -m tests.net.fuzz --messages 1000000 --seed 7

The cores are those that run over TCP, and so is the codec; only time is virtual. `--role` is one of
`client`, `monitor`, `broker`, `nobody` (against an overlay) and `state` (one broker, a link in any
state); without it, all of them take turns.
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

from broker.client_core import ClientState
from broker.codec import FrameDecoder, encode
from broker.core import BrokerCore
from broker.effects import CloseLink, Effect, SendMessage, Stop
from broker.errors import LocalProtocolError, RemoteProtocolError
from broker.inputs import (
    Input,
    LinkClosed,
    LinkFailed,
    LinkId,
    LinkOpened,
    MessagesReceived,
    TimerFired,
)
from broker.link_states import LEGAL, LinkState
from broker.messages import (
    NO_OPERATION,
    Adopt,
    Advertise,
    Asked,
    Attach,
    Confirm,
    Hello,
    Message,
    NodeKind,
    Pause,
    Publish,
    StatusRequest,
    Subscribe,
    Summon,
)
from broker.sim.nodes import Node
from broker.sim.world import LIVELY_LIMITS
from faulttol.neighbourhood import Life
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from routing.orderings import ORDERINGS
from tests.broker.test_link_states import LINK, PEER, SAMPLES, broker_in, hello, join
from tests.conversation import Client, Conversation

ROLES: Final = ("client", "monitor", "nobody", "broker", "state")
SAMPLE_OF: Final[dict[type[Message], Any]] = {type(sample): sample for sample in SAMPLES}

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


# One broker, and a link in any state


def any_sample(state: LinkState, random: Random) -> Message:
    """Most often one that is expected in this state."""
    kinds = LEGAL[state] if random.random() < 0.8 else SAMPLE_OF
    sample: Message = SAMPLE_OF[random.choice(sorted(kinds, key=str))]
    return sample


def conversation_in(state: LinkState, random: Random) -> list[Message]:
    """What says much at once, as it should: who brings something along, or hands somebody over."""
    a, s, r, t = (random.choice((0, 0, 1, 2)) for _ in range(4))
    advertises: list[Message] = [
        Advertise(
            operation=NO_OPERATION,
            advertisement=AdvertisementId(f"peer/{n}"),
            client=PEER,
            filter="n > 0",
            path=(PEER,),
        )
        for n in range(2 * a)
    ]
    subscribes: list[Message] = [
        Subscribe(
            operation=NO_OPERATION,
            subscription=SubscriptionId(f"peer/{10 + n}"),
            client=PEER,
            filter="n > 0",
            ordered=True,
            path=(PEER,),
        )
        for n in range(2 * s)
    ]
    publications = [Publish(PEER, 1, n, 0, b"\x81\xa1n\x01", b"") for n in range(1, r + t + 1)]
    then = tuple(Asked.at(random.choice((0, 1, 5))) for _ in range(s))
    if state in (LinkState.TO_ORPHAN, LinkState.TO_ORPHANED_CLIENT):
        announced: Attach = attrs.evolve(
            SAMPLE_OF[Attach],
            advertisements=a,
            subscriptions=then,
            received=r,
            sent=tuple(range(1, t + 1)),
        )
        return [announced, *advertises[:a], *subscribes[:s], *publications]
    if state is LinkState.TO_PARENT and a + s:
        adopt: Adopt = attrs.evolve(
            SAMPLE_OF[Adopt], advertisements=a, subscriptions=then, told=a, known=then
        )
        told = [*advertises[:a], *subscribes[:s], *advertises[a:], *subscribes[s:]]
        joined = Confirm(operation=OperationId("here#1.1"))
        return [joined, Pause(move=1), adopt, *told]
    return []


def fuzz_states(random: Random, mutator: Mutator, count: int, tally: Tally) -> None:
    """One broker after the other with one link; only its own join point may end it."""
    until = tally.messages + count
    while tally.messages < until:
        state = random.choice(list(LinkState))
        ordering = random.choice(list(ORDERINGS))
        history: list[str] = [f"{state}, {ordering}"]
        try:
            core = broker_in(state, ordering=ordering)
            if random.random() < 0.5:  # somebody else is waited for, and does not come
                absent = join(NodeId("absent"), "failed", "client", 1)
                core.neighbourhood.add(absent.link)
            for effects in lives_through(core, state, random, mutator, tally, history):
                require_sendable(effects)
                tally.hung_up += any(isinstance(effect, CloseLink) for effect in effects)
                stops = [effect for effect in effects if isinstance(effect, Stop)]
                tally.fenced += len(stops)
                is_child = state in (LinkState.AWAITING_WELCOME, LinkState.TO_PARENT)
                if any(not (stop.comes_back or is_child) for stop in stops):
                    raise FoundError(f"ended: {stops}")
                if stops:
                    break
        except Exception as error:
            raise FoundError("\n  ".join([repr(error), *history])) from error


def lives_through(
    core: BrokerCore,
    state: LinkState,
    random: Random,
    mutator: Mutator,
    tally: Tally,
    history: list[str],
) -> Iterator[list[Effect]]:
    """What a broker wants done while it is told this and that, and then for a while nothing."""
    expected, now = deque(conversation_in(state, random)), 0.0
    for _ in range(random.randrange(1, 40)):
        if random.random() < 0.2:
            now += 0.5
            yield core.step(now, TimerFired())
        elif core.kind_of(LINK) is None and random.random() < 0.3:
            yield core.step(now, random.choice(OCCASIONS))
        else:
            tally.messages += 1
            if expected:
                told = decoded(mutator.frame(expected.popleft(), 0.2))
            else:
                told = decoded(mutator.frame(any_sample(state, random)))
            if told is None:
                tally.refused += 1
                yield core.step(now, LinkClosed(LINK, "broke the protocol"))
            else:
                history += map(str, told)
                yield core.step(now, MessagesReceived(LINK, told))
    for _ in range(random.choice((0, 2, 20))):
        now += 0.5
        yield core.step(now, TimerFired())


OCCASIONS: Final[tuple[Input, ...]] = (
    LinkOpened(LINK),
    LinkOpened(LINK, "peer"),
    LinkFailed("peer", "refused"),
    LinkFailed("failed", "refused"),
)


# An overlay


def greets_as_broker(message: Message) -> bool:
    """Whether somebody takes another role by chance: of that one, less is to be expected."""
    return isinstance(message, Hello) and message.kind is NodeKind.BROKER


STATE_OF: Final = {
    "client": LinkState.TO_CLIENT,
    "monitor": LinkState.TO_MONITOR,
    "broker": LinkState.TO_CHILD,
    "nobody": LinkState.AWAITING_HELLO,
}


def script(role: str, broker: NodeId, number: int, random: Random) -> Iterator[Message]:
    """What somebody would say in a role if it were honest, and then something else."""
    name = NodeId(f"m{number}") if random.random() < 0.8 else NodeId("mallory")
    life = Life(NodeId(random.choice(("b1", "b2", "b3"))), 1)
    if role == "monitor":
        yield attrs.evolve(hello(NodeKind.MONITOR), node=name)
        yield from [StatusRequest()] * random.randrange(3)
    elif role == "nobody":
        yield Summon(hub=broker, failed=(life,), address="evil")
    else:
        greeting = attrs.evolve(hello(NodeKind(role)), node=name, incarnation=number)
        if random.random() < 0.2:
            greeting = attrs.evolve(greeting, failed=(life,), peer=life.node, peer_incarnation=1)
        yield greeting
        joining = join(name, broker, role, 0)
        yield attrs.evolve(joining, link=attrs.evolve(joining.link, incarnation=number))
    for _ in range(random.randrange(1, 25)):
        yield in_own_name(any_sample(STATE_OF[role], random), name, number, random)


def in_own_name(message: Message, name: NodeId, number: int, random: Random) -> Message:
    """Let a sample, which speaks of `peer`, speak of this node instead."""
    fields = {field.name for field in attrs.fields(type(message))}
    own: dict[str, Any] = {"client": name, "publisher": name, "path": (name,)}
    own |= {"incarnation": number, "seq": random.randrange(1, 20)} if "seq" in fields else {}
    for field in ("operation", "subscription", "advertisement"):
        own[field] = f"{name}/{random.randrange(6)}"
    changed: Message = attrs.evolve(message, **{f: v for f, v in own.items() if f in fields})
    return changed


class Scene:
    """Three brokers in a line, a publisher and a subscriber at either end, and bad company."""

    def __init__(self, random: Random, mutator: Mutator, tally: Tally) -> None:
        self.random, self.mutator, self.tally = random, mutator, tally
        self.overlay = Conversation(limits=LIVELY_LIMITS)
        self.overlay.world._is_traced = False
        self.overlay.brokers("b1", b2="b1", b3="b2")
        self.nyse = self._client("nyse", "b1")
        self.alice = self._client("alice", "b3")
        self.nyse.advertises("n IS NOT NULL")
        self.alice.subscribes("n IS NOT NULL")
        self.overlay.settle()
        self.fences: list[str] = []
        self.overlay.world.on_effects = self._on_effects
        self.said: deque[str] = deque(maxlen=100)
        self._links = 0
        self._closed: set[LinkId] = set()

    def _client(self, name: str, at: str) -> Client:
        world = self.overlay.world
        node = world.add_client(
            NodeId(name), NodeId(at), *map(NodeId, ("b1", "b2", "b3")), incarnation=1
        )
        self.overlay.settle()
        return Client(world, node)

    def _on_effects(self, node: Node, effects: list[Effect]) -> None:
        require_sendable(effects)
        for effect in effects:
            if isinstance(effect, Stop):
                if isinstance(node.core, BrokerCore) and not effect.comes_back:
                    raise FoundError(f"{node.name} ended: {effect.reason}")
                self.fences.append(f"{node.name}: {effect.reason}")
                self.tally.fenced += 1
            elif isinstance(effect, CloseLink):
                self._closed.add(effect.link)
                self.tally.hung_up += 1

    def converse(self, role: str) -> None:
        """Somebody comes, says a few things, and goes."""
        random, world = self.random, self.overlay.world
        broker = world.nodes[NodeId(random.choice(("b1", "b2", "b3")))]
        if broker.stopped is not None:
            self.overlay.settle(1)
            return
        self._links += 1
        link = LinkId(1_000_000 + self._links)
        world._tell(broker, LinkOpened(link))
        for message in script(role, broker.name, self._links, random):
            frame = self.mutator.frame(message)
            told = decoded(frame)
            self.tally.messages += 1
            if told is None:
                self.tally.refused += 1
                break
            if role != "broker" and any(map(greets_as_broker, told)):
                continue
            self.said.append(f"{role} -> {broker.name}: {told}")
            world._tell(broker, MessagesReceived(link, told))
            if link in self._closed or broker.stopped is not None:
                break
            if random.random() < 0.3:
                self.overlay.settle(random.choice((0.0005, 0.002, 0.01)))
        if random.random() < 0.3:
            self.overlay.settle(random.choice((0.1, 1, 5)))
        if link not in self._closed and broker.stopped is None:
            world._tell(broker, LinkClosed(link, "gone"))
        core = self.nyse.core
        if core.state is ClientState.READY:
            self.nyse.publishes(n=self.tally.published, urgent=random.random() < 0.5)
            self.tally.published += 1
        self.overlay.settle(0.005)

    def check(self, role: str) -> bool:
        """Whether the honest ones have what is theirs; a fake broker may have done some harm."""
        self.overlay.settle(20)
        troubles = self._troubles()
        if troubles and role != "broker":
            raise FoundError("\n  ".join(troubles))
        return not troubles

    def _troubles(self) -> list[str]:
        troubles = list(self.fences)
        for client in (self.nyse, self.alice):
            if client.node.stopped is not None or client.core.has_lost_session:
                troubles.append(f"{client.node.name} lost its session: {client.node.stopped}")
        published = self.nyse.core.unconfirmed
        if published:
            troubles.append(f"{published} publications are not confirmed")
        expected = [f"nyse:{n}" for n in range(1, self.nyse.core._seq + 1)]
        got = [one for one in self.alice.received if one.startswith("nyse:")]
        if got != expected:
            missing = sorted(set(expected) - set(got))
            troubles.append(f"alice got {len(got)} of {len(expected)}, not {missing[:5]}")
        return troubles


CHECKED_EVERY: Final = 2_000


def fuzz_overlay(role: str, random: Random, mutator: Mutator, count: int, tally: Tally) -> None:
    """Three brokers, and whoever comes to them in a role."""
    until = tally.messages + count
    while tally.messages < until:
        scene = Scene(random, mutator, tally)
        checked, is_well = tally.messages, True
        while tally.messages < until and is_well:
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
