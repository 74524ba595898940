"""A broker that lies: one that alters, drops, says again or makes up some of what it says.

It is an honest host but for that: what it is told it takes as it is. A lie is one message with one
thing in it that is not so, or one message too few or too many, as anybody could make who holds the
keys of one broker: what a peer's codec would refuse it does not say. Or it is one entry of a step
log, its own or another's, which it goes on to tell everybody.

What lies may do is judged by `contained`: clients between whom no liar stands are owed each other's
publications as if there were none.
"""

import enum
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from random import Random
from typing import Any, Final

import attrs

from plait.broker.codec import FrameDecoder, encode
from plait.broker.errors import LocalProtocolError, RemoteProtocolError
from plait.broker.messages import Heartbeat, Message
from plait.broker.sim.doors import HostDoor
from plait.faulttol.guarantees import Violation, check
from plait.faulttol.history import Record
from plait.faulttol.steplog import Entry
from plait.routing.ids import NodeId

LIES: Final = 6
"""Of one liar, at most."""
ODDS: Final = (0.3, 0.03, 0.01)
"""How likely the next message is a lie: some begin early, others when all is under way."""
SEEN_MAX: Final = 200
"""Values and messages that are remembered, to be said elsewhere."""
NUMBERS: Final = (0, 1, 2, 7, 1 << 31, (1 << 53) - 1, 2**63 - 1)


class Lie(enum.StrEnum):
    """What a liar does."""

    ALTER = "alters"
    DROP = "drops"
    REPLAY = "says again"
    INVENT = "makes up"
    FORGE = "forges"
    """An entry of a log."""


_WEIGHTS: Final = {Lie.ALTER: 8, Lie.DROP: 3, Lie.REPLAY: 2, Lie.INVENT: 4, Lie.FORGE: 2}


class Liar:
    """What is said by one host, and what is made of it."""

    def __init__(self, name: NodeId, chance: Random) -> None:
        """Lie in the name of this host, as chance has it."""
        self.name = name
        self.brokers: set[NodeId] = {name}
        """All that it has ever played."""
        self.told: list[str] = []
        """The lies, in words."""
        self._host: HostDoor | None = None
        self._chance = chance
        self._odds = chance.choice(ODDS)
        self._left = chance.randint(1, LIES)
        self._values: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=SEEN_MAX))
        self._messages: deque[Message] = deque(maxlen=SEEN_MAX)

    def look_at(self, host: HostDoor) -> None:
        """It has made a step: what it plays now, and what logs it knows."""
        self.brokers.update(host.brokers)
        self._host = host

    def say(self, message: Message, to: NodeId) -> list[Message]:
        """What is said instead of a message."""
        if isinstance(message, Heartbeat):
            return [message]
        self._note(message)
        if not self._left or self._chance.random() >= self._odds:
            return [message]
        self._left -= 1
        lie = self._chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        return self._lie(lie, message, to)

    def _lie(self, lie: Lie, message: Message, to: NodeId) -> list[Message]:
        match lie:
            case Lie.DROP:
                self._confess(lie, message, to)
                return []
            case Lie.ALTER:
                altered = self._altered(message)
                self._confess(lie, message, to, altered)
                return [altered]
            case Lie.REPLAY:
                again = self._chance.choice(self._messages)
                self._confess(lie, again, to)
                return [message, again]
            case Lie.INVENT:
                made_up = self._altered(self._altered(self._chance.choice(self._messages)))
                self._confess(lie, made_up, to)
                return [made_up, message]
            case Lie.FORGE:
                self._forge()
                return [message]

    def _confess(
        self, lie: Lie, message: Message, to: NodeId, instead: Message | None = None
    ) -> None:
        text = f"{self.name} {lie} to {to}: {message}"
        self.told.append(text if instead is None else f"{text} becomes {instead}")

    # --- messages -------------------------------------------------------------------------------

    def _note(self, message: Message) -> None:
        self._messages.append(message)
        for field in attrs.fields(type(message)):
            if field.name != "frame":
                self._values[field.name].append(getattr(message, field.name))

    def _altered(self, message: Message) -> Message:
        """The same with one thing in it that is not so; itself, if there is nothing to alter."""
        for _ in range(20):
            changed = self._changed(message)
            try:
                [said] = FrameDecoder().feed(encode(changed))
            except (LocalProtocolError, RemoteProtocolError, ValueError):
                continue
            if said != message:
                return said
        return message

    def _changed(self, thing: Any) -> Any:
        """One field of a thing changed."""
        fields = [f for f in attrs.fields(type(thing)) if f.name != "frame"]
        if not fields:
            return thing
        field = self._chance.choice(fields)
        before = getattr(thing, field.name)
        seen = [each for each in self._values.get(field.name, ()) if type(each) is type(before)]
        if seen and self._chance.random() < 0.4:
            after = self._chance.choice(seen)
        else:
            after = self._other(before)
        changes = {field.name: after}
        if any(f.name == "frame" for f in attrs.fields(type(thing))):
            changes["frame"] = None
        return attrs.evolve(thing, **changes)

    def _other(self, value: Any) -> Any:
        chance = self._chance
        match value:
            case enum.Enum():
                return chance.choice(list(type(value)))
            case bool():
                return not value
            case int():
                return chance.choice((*NUMBERS, value + 1, max(0, value - 1), value + 10))
            case str():
                texts = [t for seen in self._values.values() for t in seen if type(t) is str]
                return chance.choice(texts) if texts else ""
            case bytes():
                place = chance.randrange(len(value) + 1)
                return value[:place] + bytes([chance.randrange(256)]) + value[place + 1 :]
            case tuple() if value:
                return self._other_tuple(value)
            case _ if attrs.has(type(value)):
                return self._changed(value)
        return value

    def _other_tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        chance = self._chance
        place = chance.randrange(len(value))
        match chance.randrange(4):
            case 0:
                return (*value[:place], *value[place + 1 :])
            case 1:
                return (*value, value[place])
            case 2:
                return ()
        return (*value[:place], self._other(value[place]), *value[place + 1 :])

    # --- logs -----------------------------------------------------------------------------------

    def _forge(self) -> None:
        """Change an entry of a log that is known here, to be told from now on."""
        logs = [log for log in self._host.known_logs() if log.entries] if self._host else []
        if not logs:
            return
        log = self._chance.choice(logs)
        place = self._chance.randrange(max(0, len(log.entries) - 3), len(log.entries))
        entry = log.entries[place]
        forged = self._changed(entry)
        assert isinstance(forged, Entry)
        log.entries[place] = forged
        self.told.append(f"{self.name} forges {entry}, as {forged}")


def contained(
    records: Iterable[Record],
    parents: Mapping[str, str | None],
    liars: Collection[str],
    *,
    ordering: str,
    delta: int,
) -> list[Violation]:
    """The guarantees that did not hold between clients on whose path no liar stands.

    `liars` are the brokers that those have played.
    """
    records = list(records)
    part_of = _parts(_joined_at(records, parents), liars)
    at: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if record["kind"] == "joined" and record.get("members"):
            at[record["about"]] |= {part_of.get(broker, "") for broker in record["members"]}
    found: list[Violation] = []
    for part in sorted(set(part_of.values())):
        clients = {client for client, parts in at.items() if parts == {part}}
        brokers = {broker for broker, theirs in part_of.items() if theirs == part}
        own = _of_these(records, clients, brokers | {"plait-launcher"})
        found += check(own, ordering=ordering, delta=delta).violations
    return found


def _joined_at(
    records: Iterable[Record], parents: Mapping[str, str | None]
) -> dict[str, str | None]:
    """The tree as it has come about: who does not reach its join point asks others."""
    actual = dict(parents)
    for record in records:
        if record["kind"] == "joined" and record["about"] in actual and record.get("members"):
            actual[record["about"]] = record["members"][0]
    return actual


def _parts(parents: Mapping[str, str | None], liars: Collection[str]) -> dict[str, str]:
    """The parts into which the tree falls without these brokers: of each its topmost one."""

    def top(broker: str) -> str:
        parent = parents[broker]
        return broker if parent is None or parent in liars else top(parent)

    return {broker: top(broker) for broker in parents if broker not in liars}


def _of_these(
    records: Iterable[Record], clients: Collection[str], brokers: Collection[str]
) -> list[Record]:
    """What these have written down that is about them, numbered as if that were all."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    positions: dict[str, int] = defaultdict(int)
    own = []
    for record in records:
        node = record["node"]
        if node not in clients and node not in brokers:
            continue
        if node in brokers and record.get("about") not in (None, *clients, *brokers):
            continue
        changes: Record = {}
        if record["kind"] == "delivered":
            if record["publisher"] not in clients:
                continue
            positions[node] += 1
            changes["position"] = positions[node]
        counts[node, record["incarnation"]] += 1
        own.append({**record, **changes, "n": counts[node, record["incarnation"]]})
    return own
