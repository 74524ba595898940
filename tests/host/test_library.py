"""What a host tells of step logs, and what it forgets of them."""

import itertools
import random
from typing import Any

import pytest

from plait.broker.errors import RemoteProtocolError
from plait.broker.host.library import Library, Telling
from plait.broker.host.seats import Seats
from plait.broker.inputs import LinkId
from plait.broker.messages import Life, Seat
from plait.faulttol.steplog import Entry, LogPart, Membership, Standing, StepLog, Taken
from plait.routing.ids import NodeId

LINE = [NodeId(f"b{n}") for n in range(6)]


def sit(seats: Seats, broker: NodeId, host: str, *, term: int = 1, **changes: Any) -> None:
    """Let a host play a broker of the line."""
    place = LINE.index(broker)
    parent = LINE[place - 1] if place else ""
    seats.put(
        Seat(
            broker=broker,
            parent=parent,
            term=term,
            host=NodeId(host),
            incarnation=1,
            **changes,
        )
    )


def a_line() -> Seats:
    """Six brokers in a row, b0 at h0 and so on."""
    seats = Seats()
    for place, broker in enumerate(LINE):
        sit(seats, broker, f"h{place}")
    return seats


class Host:
    """A host with the logs of what it plays, and what it tells its neighbours."""

    def __init__(self, name: str, seats: Seats, *, delta: int) -> None:
        self.name = NodeId(name)
        self.seats = seats
        self.own: dict[NodeId, StepLog] = {}
        self.library = Library(self.name, delta=delta, seats=seats, own=self.own)
        self.tellings: dict[NodeId, tuple[LinkId, Telling]] = {}

    def step(self, broker: NodeId, source: str = "c") -> None:
        log = self.own.setdefault(broker, StepLog())
        log.append(Entry(Taken.BATCH, NodeId(source), log.last + 1))

    def connect(self, to: "Host", link: int) -> None:
        ended = self.tellings.pop(to.name, None)
        if ended is not None:
            to.library.close(ended[0])
        self.tellings[to.name] = (LinkId(link), self.library.telling(Life(to.name, 1)))

    def tell(self, to: "Host") -> dict[NodeId, LogPart]:
        link, telling = self.tellings[to.name]
        parts = telling.take()
        to.library.learn(parts, link)
        return parts


def hosts_of(seats: Seats, *, delta: int) -> list[Host]:
    """The hosts of the line, each connected with those beside it, and one step old."""
    hosts = [Host(f"h{n}", seats, delta=delta) for n in range(len(LINE))]
    for host, broker in zip(hosts, LINE, strict=True):
        host.step(broker)
    for link, (one, other) in enumerate(itertools.pairwise(hosts)):
        one.connect(other, 2 * link)
        other.connect(one, 2 * link + 1)
    return hosts


def spread(hosts: list[Host]) -> None:
    """Let everybody tell everybody beside it, until nothing is news."""
    while any(host.tell(to) for host in hosts for to in hosts if to.name in host.tellings):
        pass


@pytest.mark.parametrize("delta", range(5))
def test_logs_are_told_as_far_as_crashes_are_to_be_survived(delta: int) -> None:
    hosts = hosts_of(a_line(), delta=delta)
    spread(hosts)

    for place, host in enumerate(hosts):
        for other, broker in enumerate(LINE):
            is_known = abs(place - other) <= delta
            assert host.library.log_of(broker).last == (is_known or host.name == f"h{other}")


def test_nothing_is_told_twice_on_a_connection_and_everything_on_the_next() -> None:
    one, other, *_ = hosts_of(a_line(), delta=1)
    first, again = one.tell(other), one.tell(other)
    one.connect(other, 99)

    assert list(first) == ["b0"]
    assert again == {}
    assert one.tell(other) == first


def test_one_step_more_is_told_by_one_entry() -> None:
    one, other, *_ = hosts_of(a_line(), delta=3)
    spread([one, other])
    one.step(LINE[0])
    (part,) = one.tell(other).values()

    assert (part.first, len(part.entries)) == (1, 1)


def test_a_base_is_told_though_no_step_is_new() -> None:
    one, other, *_ = hosts_of(a_line(), delta=1)
    one.tell(other)
    one.own[LINE[0]].forget(1)
    one.tell(other)

    assert other.library.log_of(LINE[0]).base == 1


def test_a_host_is_not_told_of_what_it_plays_unless_it_has_given_that_up() -> None:
    one, other, *_ = hosts_of(a_line(), delta=2)
    other.tell(one)

    assert list(one.tell(other)) == ["b0"]
    sit(one.seats, LINE[1], "h1", is_vacant=True)
    assert list(one.tell(other)) == ["b1"]


def test_a_host_that_has_failed_and_is_back_is_told_of_what_it_played() -> None:
    one, other, *_ = hosts_of(a_line(), delta=2)
    other.tell(one)

    assert list(one.library.telling(Life(NodeId("h1"), 2)).take()) == ["b0", "b1"]


def test_a_client_is_told_of_all_within_reach() -> None:
    one, other, *_ = hosts_of(a_line(), delta=2)
    other.tell(one)

    assert list(one.library.telling(None).take()) == ["b0", "b1"]


def test_what_comes_within_reach_is_told_though_nothing_of_it_is_new() -> None:
    seats = a_line()
    hosts = hosts_of(seats, delta=2)
    spread(hosts)
    assert hosts[0].library.log_of(LINE[3]).last == 0
    sit(seats, LINE[2], "h1", term=2)
    spread(hosts)

    assert hosts[0].library.log_of(LINE[3]).last == 1


def test_several_who_lack_the_same_are_told_the_same_object() -> None:
    one = hosts_of(a_line(), delta=1)[0]
    tellings = [one.library.telling(None) for _ in range(3)]
    first, second, third = (telling.take()[LINE[0]] for telling in tellings)

    assert first is second is third


def test_steps_that_go_on_from_unknown_ones_break_the_protocol() -> None:
    one, other, *_ = hosts_of(a_line(), delta=1)
    one.step(LINE[0])
    part = one.own[LINE[0]].since(1)

    with pytest.raises(RemoteProtocolError, match="steps of b0 after 1 were told"):
        other.library.learn({LINE[0]: part})


# --- forgetting -----------------------------------------------------------------------------------


def test_a_log_that_is_too_far_away_is_forgotten_when_nobody_goes_on_from_it() -> None:
    seats = a_line()
    hosts = hosts_of(seats, delta=1)
    spread(hosts)
    library = hosts[0].library
    sit(seats, LINE[1], "h9", term=2)  # and so h1 has nothing to do with it any more
    library.forget_far()
    assert library.log_of(LINE[1]).last == 1
    sit(seats, LINE[1], "h2", term=3)
    sit(seats, LINE[0], "h5", term=2)
    library.forget_far()
    assert library.log_of(LINE[1]).last == 1
    hosts[1].connect(hosts[0], 99)
    library.forget_far()

    assert library.log_of(LINE[1]).last == 0


def test_what_a_host_was_told_of_what_it_plays_is_kept_for_when_it_gives_that_up() -> None:
    one, other, *_ = hosts_of(a_line(), delta=1)
    other.library.learn({LINE[1]: other.own[LINE[1]].since(0)}, LinkId(0))
    del other.own[LINE[1]]

    assert other.library.log_of(LINE[1]).last == 1
    assert one.library.log_of(LINE[1]).last == 0


# --- the same, by looking at everything -----------------------------------------------------------


class Scanning:
    """What is told on a connection, found by looking at all logs every time."""

    def __init__(self, host: Host, receiver: Life) -> None:
        self.host, self.receiver = host, receiver
        self.told: dict[NodeId, tuple[int, int]] = {}

    def take(self, delta: int) -> dict[NodeId, LogPart]:
        seats, parts = self.host.seats, {}
        distances = seats.host_distances(self.host.name)
        for broker in seats.brokers():
            seat = seats.seat_of(broker)
            assert seat is not None
            is_near = distances.get(seat.host, 99) <= delta - 1
            log = self.host.library.log_of(broker)
            told = self.told.get(broker, (0, 0))
            is_news = told != (log.last, log.base)
            is_other = broker not in seats.played_by(self.receiver)
            if is_near and is_other and is_news:
                parts[broker] = log.since(told[0])
                self.told[broker] = (log.last, log.base)
        return parts


@pytest.mark.parametrize("delta", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_is_what_a_look_at_all_logs_finds(seed: int, delta: int) -> None:
    chance = random.Random(seed)
    seats = a_line()
    hosts = hosts_of(seats, delta=delta)
    pairs = [(one, to) for one in hosts for to in hosts if to.name in one.tellings]
    scans = {(one.name, to.name): Scanning(one, Life(to.name, 1)) for one, to in pairs}
    terms = dict.fromkeys(LINE, 1)
    for number in range(300):
        host, broker = chance.choice(hosts), chance.choice(LINE)
        match chance.choice(["step"] * 4 + ["tell"] * 12 + ["forget", "connect", "far", "move"]):
            case "step" if host.own:
                host.step(chance.choice(sorted(host.own)), f"c{chance.randrange(5)}")
            case "forget" if host.own:
                log = host.own[chance.choice(sorted(host.own))]
                log.forget(chance.randint(log.base, log.last))
            case "tell":
                one, to = chance.choice(pairs)
                expected = scans[one.name, to.name].take(delta)
                told = one.tell(to)

                assert told == expected
            case "connect":
                one, to = chance.choice(pairs)
                one.connect(to, 100 + number)
                scans[one.name, to.name] = Scanning(one, Life(to.name, 1))
            case "far":
                host.library.forget_far()
            case "move":  # as after a rebuild, which loses no step of which anybody has heard
                (before,) = [h for h in hosts if broker in h.own]
                host.own[broker] = before.own.pop(broker)
                terms[broker] += 1
                sit(seats, broker, host.name, term=terms[broker])


def test_who_stands_around_a_broker_is_found_out_anew_when_more_is_known() -> None:
    chance = random.Random(7)
    seats = a_line()
    one, other = Host("h0", seats, delta=1), Host("h1", seats, delta=1)
    one.connect(other, 1)
    names = [NodeId(f"c{n}") for n in range(5)]
    for _ in range(300):
        log = one.own.setdefault(LINE[0], StepLog())
        node = chance.choice(names)
        match chance.randrange(6):
            case 0:
                joined = Standing(incarnation=chance.randrange(100))
                log.append(Entry(Taken.JOINED, node, members=Membership(joined=joined)))
            case 1:
                log.append(Entry(Taken.GONE, node))
            case 2:
                log.append(Entry(Taken.BATCH, node, log.last))
            case 3:
                log.forget(chance.randint(log.base, log.last))
            case 4:
                one.tell(other)
            case 5:
                one.connect(other, chance.randrange(1 << 20))
        for library in (one.library, other.library):
            expected = library.log_of(LINE[0]).neighbours()
            assert library.neighbours_of(LINE[0]) == expected
