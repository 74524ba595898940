"""An attachment as messages and back; that it survives in every world, `tests/machine` tests."""

from typing import Any

import attrs
import pytest

from plait.broker.codec import encode
from plait.broker.errors import RemoteProtocolError
from plait.broker.host.attaching import AttachmentReader, attachment_messages
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.machine.neighbours import Control
from plait.broker.machine.rebuild import Attachment, StreamEnd, Told, Travelling
from plait.broker.messages import (
    AttachTables,
    Confirm,
    EndOfStep,
    Flag,
    Heartbeat,
    Message,
    NodeKind,
    Publish,
    SentControl,
    Settled,
    Subscribe,
    ToldEntry,
)
from plait.faulttol.steplog import Entry, StepLog, Taken
from plait.routing.filter_text import parse_filter
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.tables import RoutingEntry
from tests.machine.wire import comparable, through_bytes

NODE, TO, CLIENT = NodeId("b2"), NodeId("b1"), NodeId("alice")


def publication(seq: int, publisher: NodeId = CLIENT, flags: int = 0) -> Publish:
    return Publish(publisher, 1, seq, flags, b"\x81\xa1x\x01", b"body")


def stream(stable: int, count: int) -> StreamEnd:
    kept = [Travelling(stable + n, 10 + n // 3, publication(n)) for n in range(1, count + 1)]
    return StreamEnd(stable=stable, kept=tuple(kept))


def subscription(number: int, **changes: Any) -> RoutingEntry[Any]:
    usual: dict[str, Any] = {
        "id": f"alice/{number}",
        "client": CLIENT,
        "filter": parse_filter(f"x > {number}"),
        "path": (CLIENT, NODE),
        "ordered": number % 2 == 0,
    }
    return RoutingEntry(**(usual | changes))


def log(steps: int, base: int = 0) -> StepLog:
    known = StepLog(base)
    known.term = 3
    for step in range(1, steps + 1):
        known.append(Entry(Taken.BATCH, NODE, base + step))
    return known


def attachment(publications: int = 5, subscriptions: int = 3, steps: int = 9) -> Attachment:
    operation = OperationId("b2#1")
    return Attachment(
        node=NODE,
        kind=NodeKind.BROKER,
        incarnation=0,
        to=TO,
        taken=1_000_000,
        sent=stream(7, publications),
        received=stream(0, publications),
        controls=(
            Control(1, 3, Confirm(operation=operation)),
            Control(9, 7, Settled(3), key=(CLIENT, 1, 2)),
        ),
        advertisements=(Told(subscription(9), 3),),
        subscriptions=tuple(Told(subscription(n), n, n + 5) for n in range(subscriptions)),
        known_advertisements=frozenset({AdvertisementId("bob/1")}),
        known_subscriptions=frozenset(SubscriptionId(f"bob/{n}") for n in range(subscriptions)),
        logs={TO: log(steps, base=4), NodeId("b3"): StepLog()},
    )


def feed(messages: list[Message], limits: Limits = DEFAULT_LIMITS) -> list[Attachment | None]:
    reader = AttachmentReader(limits)
    return [reader.feed(message) for message in messages]


def test_an_attachment_arrives_as_it_was() -> None:
    through_bytes(attachment())


def test_an_attachment_of_nothing_arrives_too() -> None:
    nothing = StreamEnd(stable=0, kept=())
    none = attrs.evolve(attachment(0, 0, 0), sent=nothing, received=nothing, controls=(), logs={})

    through_bytes(attrs.evolve(none, advertisements=(), known_advertisements=frozenset()))


def test_large_tables_and_logs_come_in_parts() -> None:
    large = attachment(publications=10, subscriptions=900, steps=25_000)
    messages = attachment_messages(large, 1)
    tables = [message for message in messages if isinstance(message, AttachTables)]

    assert [len(part.subscriptions) for part in tables] == [200, 200, 200, 200, 100]
    assert [len(part.known_subscriptions) for part in tables] == [200, 200, 200, 200, 100]
    assert [bool(part.logs) for part in tables] == [True] * 5
    assert [part.is_last for part in tables] == [False] * 4 + [True]
    through_bytes(large)


def test_a_publication_is_not_encoded_again() -> None:
    whole = attachment()
    frames = [encode(each.publication) for each in (*whole.sent.kept, *whole.received.kept)]
    sent = [m for m in attachment_messages(whole, 1) if isinstance(m, Publish)]

    assert [message.frame for message in sent] == frames


def test_an_attachment_is_complete_with_its_last_message_and_not_before() -> None:
    answers = feed(attachment_messages(attachment(), 1))

    assert answers[:-1] == [None] * (len(answers) - 1)
    assert answers[-1] is not None
    assert comparable(answers[-1]) == comparable(attachment())


MESSAGES: list[Any] = attachment_messages(attachment(), 1)
HEAD, TABLES, *REST = MESSAGES
MORE = attrs.evolve(TABLES, is_last=False)
TOLD = TABLES.subscriptions[0]
LAST = attachment().logs[TO].last


def as_client(**changes: Any) -> list[Message]:
    """What a client attaches."""
    head = attrs.evolve(HEAD, node=CLIENT, kind=NodeKind.CLIENT, incarnation=1, taken=LAST)
    told = attrs.evolve(TOLD, path=(CLIENT,))
    tables = AttachTables(subscriptions=(told,), logs=TABLES.logs, is_last=True)
    return [attrs.evolve(head, **changes), tables, *REST[:-2]]


def told(**changes: Any) -> AttachTables:
    return AttachTables(subscriptions=(attrs.evolve(TOLD, **changes),))


def unreadable(content: bytes) -> Publish:
    return Publish(CLIENT, 1, 1, 0, content, b"")


SUBSCRIBE = Subscribe(
    operation=OperationId("b2#2"),
    subscription=SubscriptionId("alice/1"),
    client=CLIENT,
    filter="TRUE",
    ordered=True,
    path=(CLIENT, TO),
)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([TABLES], "AttachTables before Attach"),
        ([REST[0]], "Publish before Attach"),
        ([HEAD, HEAD], "Attach of b2 inside of one"),
        ([HEAD, REST[0]], "Publish before the last AttachTables"),
        ([HEAD, TABLES, TABLES], "AttachTables after the last one"),
        ([HEAD, TABLES, *REST, REST[0]], "Publish after the end of an attachment"),
        ([HEAD, TABLES, Heartbeat()], "Heartbeat among publications"),
        ([HEAD, TABLES, REST[-1]], "Settled among publications"),
        ([HEAD, TABLES, *REST[:-2], REST[0]], "Publish is no control"),
        ([HEAD, TABLES, *REST[:-2], EndOfStep(step=1)], "EndOfStep is no control"),
        ([HEAD, TABLES, *REST[:-2], SUBSCRIBE], "expected to come by b2"),
        ([HEAD, AttachTables()], "AttachTables with nothing in it"),
        ([HEAD, told(filter="x >")], "alice/0 of alice: "),
        ([HEAD, told(path=(CLIENT, TO))], "alice/0 by .* expected to come by b2"),
        ([HEAD, told(path=())], "alice/0 by .* expected to come by b2"),
        ([HEAD, told(id="bob/0")], "b2 says that bob/0 is alice's"),
        ([HEAD, TABLES, unreadable(b"\x81")], "content: "),
        ([HEAD, TABLES, unreadable(b"\x01")], "content: "),
        ([HEAD, TABLES, *REST[:7], unreadable(b"\x81\x01\x01")], "content: "),
        ([HEAD, attrs.evolve(MORE, logs=b"\x08")], "logs that end too early"),
        ([attrs.evolve(HEAD, sent_steps=(3, 2))], "sent that go back"),
        ([attrs.evolve(HEAD, taken=1)], "Attach: step 11 of 1"),
        (
            [
                HEAD,
                AttachTables(
                    controls=(
                        SentControl(step=1, position=13, publisher="", incarnation=0, seq=0),
                    ),
                    is_last=True,
                ),
                *REST[:-1],
            ],
            "a control behind 13 of 12",
        ),
    ],
)
def test_what_does_not_fit_is_refused(messages: list[Message], words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        feed(messages)


def test_a_client_attaches_what_is_its_own() -> None:
    answers = feed(as_client())

    assert answers[-1] is not None
    assert answers[-1].kind is NodeKind.CLIENT


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (as_client(incarnation=2), "of alice, incarnation 1, by alice, incarnation 2"),
        ([*as_client()[:2], publication(1, NodeId("bob"))], "of bob, incarnation 1, by alice"),
        ([*as_client()[:2], publication(1, flags=Flag.AWAITED)], "which no client may set"),
        (
            [*as_client()[:2], publication(1), publication(1)],
            "publication 1 of alice behind number 1",
        ),
        (as_client(taken=LAST + 1), "was taken, and nothing told beyond"),
        ([as_client()[0], told(client=NodeId("bob"), path=(CLIENT,))], "of bob, attached by alice"),
        ([as_client()[0], told(path=(TO, CLIENT))], "of alice, attached by alice"),
        (
            [as_client()[0], attrs.evolve(TABLES, subscriptions=(), advertisements=()), *REST],
            "Confirm is not expected",
        ),
    ],
)
def test_a_client_cannot_attach_what_is_not_its_own(messages: list[Message], words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        feed(messages)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"attached_items_max": 9}, "an attachment of more than 9 items"),
        ({"attached_items_max": 20}, "an attachment of more than 20 items"),
        ({"attached_bytes_max": 20}, "an attachment of more than 20 bytes"),
        ({"attach_portion": 2}, "AttachTables of more than 2 entries"),
    ],
)
def test_an_attachment_has_limits(limits: dict[str, int], words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        feed([HEAD, TABLES, *REST], attrs.evolve(DEFAULT_LIMITS, **limits))


def test_a_told_entry_has_all_that_a_table_has() -> None:
    """What is added to an entry of a table has to be told, or it is lost with the broker."""
    names = {field.name for field in attrs.fields(RoutingEntry)}

    assert names - {field.name for field in attrs.fields(ToldEntry)} == {
        "hop",  # the receiver's to say
    }
