"""One line of text per event; `grep alice:7` gives the life of alice's seventh publication."""

from collections.abc import Mapping
from typing import Final

import attrs

from plait.broker.codec import decode_content
from plait.broker.effects import Delivery
from plait.broker.messages import (
    Flag,
    HostPlace,
    Life,
    Message,
    Publish,
    Seat,
    Seating,
    SentControl,
    ToldEntry,
)
from plait.faulttol.steplog import UNCHANGED, Entry, LogPart, Taken
from plait.routing.ids import NodeId

_THE_SAME_FOR_ALL: Final = frozenset(
    {"version", "address", "settings", "secret", "past"}
    | {"heartbeat_interval_ms", "heartbeat_timeout_ms", "logs"}
)
"""Fields that tell nothing about this message; of `logs`, whoever reads them says what they say."""
_FLAGS: Final = {
    name.lower(): value for name, value in vars(Flag).items() if isinstance(value, int)
}


def describe_message(message: Message) -> str:
    """A message, on one line; what is 0, empty or false is left out."""
    match message:
        case Publish(publisher=publisher, seq=seq, content=content, flags=flags):
            set_ones = "".join(f" {name}" for name, bit in _FLAGS.items() if flags & bit)
            return f"Publish {publisher}:{seq} {decode_content(content)}{set_ones}"
        case Seating():
            return f"Seating {'; '.join(facts_of(message))}".rstrip()
        case _:
            told = " ".join(
                f"{name}={_short(value, '>' if name == 'path' else ',')}"
                for name, value in attrs.asdict(message, recurse=False).items()
                if value and name not in _THE_SAME_FOR_ALL
            )
            return f"{type(message).__name__} {told}".rstrip()


def facts_of(seating: Seating) -> list[str]:
    """Who plays what, where hosts are, who has failed, each in a few words."""
    facts = [_seat(seat) for seat in seating.seats]
    facts += [_place(place) for place in seating.hosts]
    for life in seating.failed:
        proof = " for sure" if life in seating.proven else ""
        facts.append(f"{_life(life)} has failed{proof}")
    return facts


def _seat(seat: Seat) -> str:
    text = f"{seat.broker} at {_life(seat.life)} in term {seat.term}"
    if seat.left:
        return f"{text}, left"
    if seat.is_vacant:
        return f"{text}, vacant for {seat.taker or 'anybody'}"
    return text


def _place(place: HostPlace) -> str:
    stands_by = f", stands by for {place.site} as number {place.rank}" if place.rank else ""
    return f"host {_life(Life(place.host, place.incarnation))}{stands_by}"


def _life(life: Life) -> str:
    return f"{life.host}/{life.incarnation}"


def describe_logs(parts: Mapping[NodeId, LogPart]) -> str:
    """What is told of step logs: `a[7: p 3]` is the batch of p's step 3, taken in a's step 7."""
    told = []
    for node, part in parts.items():
        steps = [f"{n}: {describe_entry(e)}" for n, e in enumerate(part.entries, part.first + 1)]
        if part.base and (part.base == part.first or not steps):
            steps.insert(0, f"after {part.base}")
        told.append(f"{node}[{', '.join(steps)}]")
    return " ".join(told)


def describe_entry(entry: Entry) -> str:
    """What a broker took in one step, and what it decided."""
    told = [f"{entry.source} {_KINDS[entry.kind]}".strip()]
    if entry.kind is Taken.BATCH:
        told = [f"{entry.source} {entry.upto}"]
    told += [f"holds {_key(key)}{' for the parent' if waits else ''}" for key, waits in entry.held]
    if entry.order:
        told.append(f"settles {' '.join(map(_key, entry.order))}")
    if entry.installed:
        told.append(f"installs {' '.join(entry.installed)}")
    if entry.members is not UNCHANGED:
        members = entry.members
        told += [f"lets {name} in" for name in members.admitted]
        told += [f"lets {name} go" for name in members.removed]
        told += [f"refuses {claim}" for claim in members.refused]
    return " ".join(told)


_KINDS: Final = {
    Taken.BATCH: "",
    Taken.REPLAY: "sends again",
    Taken.AWAY: "is away",
    Taken.BACK: "is back",
    Taken.GONE: "is given up",
    Taken.JOINED: "greets",
    Taken.ANEW: "begins anew",
}


def describe_delivery(delivery: Delivery) -> str:
    """A delivery, on one line."""
    return (
        f"delivers {delivery.publisher}:{delivery.seq} at position {delivery.position} "
        f"for {', '.join(delivery.subscriptions)}"
    )


def _key(key: tuple[NodeId, int, int]) -> str:
    return f"{key[0]}:{key[2]}"


def _short(value: object, separator: str = ",") -> str:
    match value:
        case tuple():
            text = separator.join(_short(each) for each in value)
        case ToldEntry(id=name, told_in=told_in, withdrawn_in=withdrawn_in):
            text = f"{name} in {told_in}" + (f" until {withdrawn_in}" if withdrawn_in else "")
        case SentControl(step=step):
            text = f"step {step}"
        case Life():
            text = _life(value)
        case _:
            text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
