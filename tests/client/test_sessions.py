"""A client joins, publishes, subscribes and leaves, whatever becomes of its connections."""

from typing import Any

import attrs
import pytest

from plait.broker.client.session import RECONNECT_TIMEOUT_S
from plait.broker.client.states import ClientState
from plait.broker.errors import ClosedError, NotAdvertisedError
from plait.broker.inputs import MessagesReceived, ShutdownRequested, TimerFired
from plait.broker.messages import (
    Confirm,
    EndOfStep,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Leave,
    Message,
    NodeKind,
    Progress,
    Publish,
    RefusalCode,
    Unadvertise,
)
from plait.routing.ids import NodeId, OperationId
from tests.client.world import BROKER, LIMITS, Client, Host, Line, World

PUBLICATION = Publish(NodeId("p"), 1, 1, 0, b"", b"")
PROGRESS = Progress(received=0, sent=0, forgotten=0)
HELLO = Hello(
    version=2, node=NodeId("h"), kind=NodeKind.HOST, incarnation=1, host=NodeId("h"), address="h"
)


def ticker_and_reader(world: World) -> tuple[Client, Client]:
    world.host("one", BROKER)
    ticker, reader = world.client("ticker"), world.client("reader")
    ticker.advertises("TRUE")
    reader.subscribes("TRUE")
    world.settle()
    return ticker, reader


def line_of(client: Client) -> Line:
    [line] = [line for line in client.world.lines.values() if line.client is client]
    return line


def says(client: Client, *messages: Message) -> None:
    """Let a client's broker say this."""
    client.step(MessagesReceived(line_of(client).link, list(messages)))


def sent(client: Client, kind: type) -> list[Any]:
    return [message for message in client.sent if type(message) is kind]


def test_what_is_published_is_delivered_and_confirmed(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1, 2, 3)
    ticker.publishes(4)
    world.settle()

    assert ticker.core.state is ClientState.READY
    assert reader.received == ["ticker:1", "ticker:2", "ticker:3", "ticker:4"]
    assert (ticker.confirmed, ticker.core.unconfirmed, reader.core.kept) == (4, 0, 0)
    assert not ticker.unanswered
    assert not ticker.core.stream.controls
    assert not reader.core.stream.controls


# --- batches ------------------------------------------------------------------------------------


def test_what_is_emitted_between_two_calls_of_the_driver_is_one_batch(world: World) -> None:
    ticker, _ = ticker_and_reader(world)
    ticker.sent.clear()
    ticker.publishes(1, 2)
    ticker.publishes(3)

    kinds = [type(message) for message in ticker.sent]
    assert kinds == [Publish, Publish, EndOfStep, Publish, EndOfStep]
    assert [end.step for end in sent(ticker, EndOfStep)] == [3, 4]


def test_a_part_of_the_effects_does_not_end_the_batch(world: World) -> None:
    ticker, _ = ticker_and_reader(world)
    core = ticker.core
    core.publish(world.now, {"x": 1})
    first = core.take_part()
    core.publish(world.now, {"x": 2})
    last = core.take_effects()

    messages = [effect.message for effect in (*first, *last) if hasattr(effect, "message")]
    assert [type(message) for message in messages] == [Publish, Publish, EndOfStep]


def test_what_belongs_to_no_batch_comes_after_the_end_of_one(world: World) -> None:
    ticker, _ = ticker_and_reader(world)
    ticker.sent.clear()
    ticker.core.publish(world.now, {"x": 1})
    world.now += 1.0
    ticker.step(TimerFired())

    assert [type(message) for message in ticker.sent] == [Publish, EndOfStep, Heartbeat]


def test_a_batch_is_taken_whole_or_not_at_all(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1, 2)
    while len(line_of(reader).down) < 3:
        world.carry(1)
    line = line_of(reader)
    says(reader, line.down.popleft(), line.down.popleft())
    assert reader.received == []

    world.cut(reader)
    world.settle()

    assert reader.received == ["ticker:1", "ticker:2"]


def test_a_batch_that_comes_again_is_dropped(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1)
    while not line_of(reader).down:
        world.carry(1)
    batch = list(line_of(reader).down)
    world.settle()
    says(reader, *[attrs.evolve(m, logs=b"") if type(m) is EndOfStep else m for m in batch[:2]])

    assert reader.received == ["ticker:1"]


def test_several_batches_of_one_read_are_taken_one_by_one(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    for x in range(5):
        ticker.publishes(x)
    while len(line_of(reader).down) < 10:
        world.carry(1)
    line = line_of(reader)
    messages = list(line.down)
    line.down.clear()
    says(reader, *messages)

    assert reader.received == [f"ticker:{n}" for n in range(1, 6)]


def test_a_batch_without_an_end_has_a_limit() -> None:
    world = World(limits=attrs.evolve(LIMITS, batch_bytes_max=1000))
    _, reader = ticker_and_reader(world)
    says(reader, *(Publish(NodeId("p"), 1, n, 0, b"", bytes(100)) for n in range(10)))

    assert reader.stopped is not None
    assert "a batch of 1148 bytes, at most 1000 allowed" in reader.stopped


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((PUBLICATION, PROGRESS), "Progress within a batch"),
        ((attrs.evolve(PROGRESS, received=7),), "7 publications stable"),
        ((HELLO,), "Hello is not expected on a link that is 'connected'"),
        ((EndOfStep(step=99, logs=b"\xff"),), "logs that end too early"),
    ],
)
def test_a_broker_that_breaks_the_protocol_is_left(
    world: World, messages: tuple[Message, ...], reason: str
) -> None:
    _, reader = ticker_and_reader(world)
    reader.sent.clear()
    says(reader, *messages)

    assert reader.stopped is not None
    assert reader.stopped.startswith("the broker broke the protocol: ")
    assert reason in reader.stopped
    assert [goodbye.code for goodbye in sent(reader, Goodbye)] == [GoodbyeCode.PROTOCOL]


# --- progress -----------------------------------------------------------------------------------


def test_confirmations_wait_for_company_but_for_urgent_ones(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    reader.sent.clear()
    ticker.publishes(1)
    world.carry()
    assert not sent(reader, Progress)

    ticker.publishes(2, urgent=True)
    world.carry()

    [progress] = sent(reader, Progress)
    taken = reader.core.stream.taken
    assert (progress.received, progress.forgotten) == (2, taken)


def test_many_confirmations_do_not_wait(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    reader.sent.clear()
    ticker.publishes(*range(64))
    world.carry()

    assert [progress.received for progress in sent(reader, Progress)] == [64]


def test_who_has_published_much_has_room_when_it_is_confirmed() -> None:
    world = World(limits=attrs.evolve(LIMITS, publish_window=3, publish_window_max=3))
    ticker, reader = ticker_and_reader(world)
    rooms = []
    for values in ((1, 2), (3,), ()):
        ticker.publishes(*values)
        rooms.append(ticker.core.window.has_room)
    world.settle()

    assert [*rooms, ticker.core.window.has_room] == [True, False, False, True]
    assert len(reader.received) == 3


# --- joining and leaving ------------------------------------------------------------------------


def test_who_is_refused_says_why(world: World) -> None:
    world.host("one", BROKER).refused_names.add("ticker")
    ticker = world.client("ticker")
    world.settle()

    assert ticker.stopped == f"it is taken ({RefusalCode.NAME_TAKEN})"
    assert ticker.core.state is ClientState.CLOSED
    with pytest.raises(ClosedError):
        ticker.core.subscribe(world.now, "TRUE")


@pytest.mark.parametrize("code", [GoodbyeCode.REFUSED, GoodbyeCode.PROTOCOL, GoodbyeCode.ISOLATED])
def test_some_goodbyes_are_for_good(world: World, code: GoodbyeCode) -> None:
    _, reader = ticker_and_reader(world)
    says(reader, Goodbye(code=code, reason="so it is"))

    assert reader.stopped == f"{code.value} by b: so it is"


def test_without_any_broker_the_reason_says_where_it_was_looked_for(world: World) -> None:
    lost = world.client("lost", "nowhere", "anywhere")
    world.settle()

    assert lost.dialled == ["nowhere", "anywhere"]
    assert lost.stopped == "no broker at nowhere, anywhere: connection refused"


def test_the_first_address_that_answers_is_taken(world: World) -> None:
    world.host("one", BROKER)
    client = world.client("c", "nowhere", "one")
    world.settle()

    assert client.core.broker == "b"
    assert client.core.state is ClientState.READY


def test_who_leaves_stops_when_it_is_confirmed(world: World) -> None:
    _, reader = ticker_and_reader(world)
    reader.leaves()
    assert reader.core.state is ClientState.LEAVING
    world.settle()

    assert reader.stopped == "left"
    machine = world.hosts["one"].machine
    assert machine is not None
    assert "reader" not in machine.neighbours.below
    assert len(reader.recorded("unsubscribed")) == 1


def test_nobody_leaves_before_all_that_it_has_to_do_with_is_stable(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    slow = world.client("slow")
    slow.subscribes("TRUE")
    world.settle()
    line_of(slow).is_silent = True
    ticker.publishes(1)
    world.carry()
    ticker.leaves()
    reader.leaves()
    world.passes(1.0)
    assert not sent(ticker, Leave)
    assert not sent(reader, Leave)

    line_of(slow).is_silent = False
    world.settle()

    assert (ticker.stopped, reader.stopped) == ("left", "left")
    assert (ticker.confirmed, ticker.skipped) == (1, [])


@pytest.mark.parametrize("at", range(1, 12))
def test_who_is_cut_off_while_it_leaves_has_left(world: World, at: int) -> None:
    _, reader = ticker_and_reader(world)
    reader.leaves()
    world.carry(at)
    world.cut(reader)
    world.settle()

    assert reader.stopped == "left"
    assert not world.hosts["one"].batches


def test_who_leaves_when_nobody_is_there_has_left_in_the_end(world: World) -> None:
    _, reader = ticker_and_reader(world)
    world.crash("one")
    reader.leaves()
    world.passes(RECONNECT_TIMEOUT_S + 3)

    assert reader.stopped == "left"


def test_who_has_not_joined_need_not_leave(world: World) -> None:
    world.host("one", BROKER).is_deaf = True
    client = world.client("c")
    world.carry()
    client.leaves()

    assert client.stopped == "left without a connection"


@pytest.mark.parametrize("at", range(6))
def test_who_goes_at_once_says_so_however_far_it_has_come(world: World, at: int) -> None:
    world.host("one", BROKER)
    client = world.client("c")
    client.subscribes("TRUE")
    world.carry(3 + at)
    client.step(ShutdownRequested())
    world.settle()

    machine = world.hosts["one"].machine
    assert machine is not None
    assert client.stopped == "shut down"
    assert len(sent(client, Leave)) == 1
    assert not machine.neighbours.below
    assert not machine.interests.subscriptions


def test_who_goes_at_once_does_not_wait_for_what_is_not_stable(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1)
    ticker.leaves()
    ticker.step(ShutdownRequested())
    world.settle()

    machine = world.hosts["one"].machine
    assert machine is not None
    assert "ticker" not in machine.neighbours.below
    assert reader.received == ["ticker:1"]
    assert ticker.skipped == [1]


def test_who_goes_at_once_is_owed_nothing_any_more(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    line_of(reader).is_silent = True
    ticker.publishes(1)
    world.carry()
    line_of(reader).is_silent = False
    reader.step(ShutdownRequested())

    machine = world.hosts["one"].machine
    assert machine is not None
    [departure] = machine.take_departures()
    assert (departure.node, departure.owed) == ("reader", ())
    world.settle()
    assert ticker.confirmed == 1


def test_what_is_not_confirmed_at_the_end_is_reported(world: World) -> None:
    ticker, _ = ticker_and_reader(world)
    ticker.publishes(1, 2)
    ticker.step(ShutdownRequested())

    assert ticker.stopped == "shut down"
    assert ticker.skipped == [1, 2]
    assert [r["reason"] for r in ticker.recorded("skipped")] == ["shut down", "shut down"]


# --- batches --------------------------------------------------------------------------------------


def batch_bytes(client: Client) -> list[int]:
    """How much each batch of a client has brought."""
    sizes = [0]
    for message in client.sent:
        if type(message) is EndOfStep:
            sizes.append(0)
        elif type(message) is Publish:
            sizes[-1] += len(message.body)
    return sizes


def publish_large(client: Client, count: int) -> None:
    for value in range(count):
        client.core.publish(client.world.now, {"x": value}, bytes(20_000))
    client.carry_out()


def test_what_is_published_at_once_is_several_batches_if_it_is_much(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    publish_large(ticker, 10)
    world.settle()

    assert max(batch_bytes(ticker)) == 60_000
    assert len(reader.received) == ticker.confirmed == 10


def test_what_has_waited_for_a_connection_is_several_batches_if_it_is_much(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    world.cut(ticker)
    publish_large(ticker, 10)
    for value in range(10):
        ticker.publishes(value)
    before = len(batch_bytes(ticker))
    world.settle()

    assert max(batch_bytes(ticker)) == 60_000
    assert len(batch_bytes(ticker)) - before == 4
    assert len(reader.received) == ticker.confirmed == 20


# --- interests ----------------------------------------------------------------------------------


def test_what_is_asked_for_before_joining_is_asked_then(world: World) -> None:
    world.host("one", BROKER)
    ticker, reader = world.client("ticker"), world.client("reader")
    ticker.advertises("TRUE")
    reader.unsubscribes(reader.subscribes("x = 7"))
    reader.subscribes("x = 8")
    assert len(reader.answers) == 2, "nobody knows of the first, and it is over"
    world.settle()
    ticker.publishes(7, 8)
    world.settle()

    assert not reader.unanswered
    assert reader.received == ["ticker:2"]


def test_nothing_may_be_published_beyond_what_is_advertised(world: World) -> None:
    ticker, _ = ticker_and_reader(world)
    ticker.advertises("x > 5")
    with pytest.raises(NotAdvertisedError, match="reader has advertised nothing yet"):
        world.clients[1].core.publish(0.0, {"x": 1})

    assert ticker.core.publish(world.now, {"x": 1}) == 1


def test_an_advertisement_is_withdrawn_when_what_was_published_is_stable(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    line_of(reader).is_silent = True
    [name] = ticker.core.claims
    ticker.publishes(1)
    ticker.core.unadvertise(world.now, name)  # type: ignore[arg-type]
    ticker.carry_out()
    with pytest.raises(NotAdvertisedError):
        ticker.core.publish(world.now, {"x": 2})
    world.passes(1.0)
    assert not sent(ticker, Unadvertise)

    line_of(reader).is_silent = False
    world.settle()

    assert len(sent(ticker, Unadvertise)) == 1
    assert [r["advertisement"] for r in ticker.recorded("unadvertised")] == [name]


def test_what_nobody_has_is_withdrawn_at_once(world: World) -> None:
    ticker, _ = ticker_and_reader(world)
    ticker.unsubscribes("ticker/99")  # type: ignore[arg-type]
    ticker.unadvertises("ticker/99")  # type: ignore[arg-type]

    assert not ticker.unanswered


def test_the_end_of_a_subscription_ends_its_beginning(world: World) -> None:
    _, reader = ticker_and_reader(world)
    name = reader.subscribes("x = 1")
    reader.unsubscribes(name)
    operation = reader.asked[-1]
    says(reader, Confirm(operation=operation), EndOfStep(step=1000))

    assert not reader.unanswered
    assert name not in reader.core.claims


def test_a_confirmation_of_what_nobody_asked_changes_nothing(world: World) -> None:
    _, reader = ticker_and_reader(world)
    says(reader, Confirm(operation=OperationId("reader#1.99")), EndOfStep(step=1000))

    assert reader.stopped is None


# --- sessions that are lost ---------------------------------------------------------------------


def given_up(world: World, client: Client) -> Host:
    """A client has been away for so long that its broker gives it up."""
    host = world.hosts["one"]
    world.cut(client)
    host.gives_up(client)
    return host


def test_who_was_given_up_begins_anew(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    given_up(world, reader)
    ticker.publishes(1)
    world.settle()
    ticker.publishes(2)
    world.settle()

    assert reader.received == ["ticker:2"]
    assert reader.core.has_lost_session
    assert reader.core.claims == {"reader/1'2"}
    assert [kind for kind, _ in reader.records] == ["subscribed", "unsubscribed", "subscribed"]
    assert ticker.core.unconfirmed == 0


def test_what_was_never_taken_is_sent_again_in_a_new_session(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1)
    world.carry(3)  # it is taken
    ticker.publishes(2)
    given_up(world, ticker)
    ticker.publishes(3)
    world.settle()

    assert ticker.skipped == [1]
    assert reader.received == ["ticker:1", "ticker:2", "ticker:3"]
    assert ticker.core.unconfirmed == 0
    assert ticker.confirmed == 3


def test_what_may_have_been_taken_is_not_sent_again(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1)
    machine = given_up(world, ticker).machine
    assert machine is not None
    machine.names._past.clear()
    ticker.publishes(2)
    world.settle()

    assert ticker.skipped == [1]
    assert reader.received == ["ticker:2"]
    assert ticker.core.window.has_room
    assert ticker.recorded("skipped")[0]["reason"] == "the session was lost"


def test_what_waits_for_a_new_session_outlives_that_too(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1)
    given_up(world, ticker)
    while ticker.core.state is not ClientState.READY:
        if len(sent(ticker, Hello)) == 2 and world.hosts["one"].lines.get(NodeId("ticker")):
            given_up(world, ticker)
            break
        if not world.carry(1):
            world.passes(0.01)
    ticker.publishes(2)
    world.settle()

    assert reader.received == ["ticker:1", "ticker:2"]
    assert not ticker.skipped


@pytest.mark.parametrize("at", range(0, 30, 2))
def test_nothing_comes_twice_whenever_a_session_is_lost(world: World, at: int) -> None:
    ticker, reader = ticker_and_reader(world)
    for x in range(4):
        ticker.publishes(x)
        world.carry(at // 4)
    given_up(world, ticker)
    ticker.publishes(9)
    world.settle()

    assert reader.received == sorted(set(reader.received))
    lacking = [n for n in range(1, 6) if f"ticker:{n}" not in reader.received]
    assert set(lacking) <= set(ticker.skipped)
    assert ticker.core.unconfirmed == 0


# --- whom it finds ------------------------------------------------------------------------------


def test_calls_made_while_apart_are_answered_later(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    world.cut(reader)
    assert reader.core.state is ClientState.RECONNECTING
    reader.subscribes("x = 1")
    world.cut(ticker)
    ticker.publishes(1)
    world.settle()

    assert not reader.unanswered
    assert reader.received == ["ticker:1"]


def test_a_newcomer_finds_a_broker_by_a_host_that_plays_none(world: World) -> None:
    world.host("two")
    world.host("one", BROKER)
    client = world.client("c", "two")
    world.settle()

    assert client.dialled == ["two", "one"]
    assert client.core.state is ClientState.READY


def test_a_silent_broker_is_asked_again_and_then_the_coordinator(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    two = world.host("two")
    for client in (ticker, reader):
        says(client, world.seating())
        client.dialled.clear()
    world.hosts["one"].is_deaf = True
    world.passes(5.0)
    assert ticker.dialled == ["one"]

    two.takes_up(BROKER)
    ticker.publishes(1)
    world.passes(6.0)
    assert ticker.dialled == ["one", "two"]
    two.rebuilds(ticker, reader)
    world.settle()

    assert reader.received == ["ticker:1"]
    assert not ticker.core.has_lost_session
    assert ticker.core.session.term == 2


def test_a_broker_that_is_still_there_is_found_again(world: World) -> None:
    """The coordinator says that it is where it was."""
    _, reader = ticker_and_reader(world)
    world.host("two")
    says(reader, world.seating())
    reader.dialled.clear()
    one = world.hosts["one"]
    one.is_deaf = True
    world.passes(12.0)
    one.is_deaf = False
    world.passes(12.0)

    assert reader.dialled[:3] == ["one", "two", "one"]
    assert reader.core.state is ClientState.READY
    assert not reader.core.has_lost_session


def test_who_has_slept_doubts_nobody(world: World) -> None:
    _, reader = ticker_and_reader(world)
    world.host("two")
    says(reader, world.seating())
    reader.dialled.clear()
    for _ in range(3):
        world.now += 60
        reader.step(TimerFired())
        world.settle()

    assert reader.dialled == ["one", "one", "one"]
    assert reader.core.state is ClientState.READY


def test_who_was_away_when_its_broker_was_rebuilt_is_asked_what_it_has(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1)
    world.carry(5)
    world.cut(reader)
    host = world.hosts["one"]
    host.term = world.next_term()
    world.carry()
    reader.subscribes("x = 2")
    world.settle()

    assert sorted(type(m).__name__ for m in host.heard if "Attach" in type(m).__name__) == [
        "Attach",
        "AttachTables",
    ]
    assert reader.core.session.term == 2
    assert reader.received == ["ticker:1"]
    assert not reader.unanswered


def test_who_finds_nobody_gives_up_in_the_end(world: World) -> None:
    ticker, reader = ticker_and_reader(world)
    ticker.publishes(1)
    world.crash("one")
    world.passes(RECONNECT_TIMEOUT_S + 5)

    assert reader.stopped == "no broker at one for 30 s: connection refused"
    assert ticker.skipped == [1]
    assert len(reader.dialled) < 40


def test_a_broker_of_a_term_that_is_over_is_not_listened_to(world: World) -> None:
    _, reader = ticker_and_reader(world)
    host = world.hosts["one"]
    reader.core.session.term = 5
    world.cut(reader)
    world.settle()

    assert reader.core.state is ClientState.RECONNECTING
    assert host.term == 1


def test_a_broker_that_does_not_hear_a_client_is_silent_for_it(world: World) -> None:
    _, reader = ticker_and_reader(world)
    world.host("two")
    says(reader, world.seating())
    reader.dialled.clear()
    world.hosts["one"].is_deaf = True
    says(reader, Goodbye(code=GoodbyeCode.TIMEOUT, reason="silent for 3.0 s"))
    world.passes(5.0)

    assert reader.dialled[:2] == ["one", "two"]
