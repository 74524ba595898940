"""What is kept for later is looked at when it comes, while somebody is there to blame."""

from typing import Any

import attrs
import pytest

from broker.inputs import MessagesReceived, TimerFired
from broker.link_states import LinkState
from broker.messages import (
    NOT_YET,
    Adopt,
    Advertise,
    Attach,
    Flag,
    GoodbyeCode,
    Message,
    Publish,
    Subscribe,
)
from routing.ids import NodeId
from tests.broker.test_link_states import LINK, PEER, SAMPLES, broker_in, closing

OTHER = NodeId("other")
SAMPLE_OF: dict[type[Message], Any] = {type(sample): sample for sample in SAMPLES}
GOOD = Publish(PEER, 1, 1, 0, b"\x80", b"")
ADVERTISE, SUBSCRIBE = SAMPLE_OF[Advertise], SAMPLE_OF[Subscribe]
UNREADABLE = [
    attrs.evolve(GOOD, content=b"\x81"),
    attrs.evolve(GOOD, content=b"\x01"),
    attrs.evolve(GOOD, content=b"\x81\x01\x01"),
]


def attach(**changes: Any) -> Attach:
    announced: Attach = attrs.evolve(SAMPLE_OF[Attach], **changes)
    return announced


def reason_for_hanging_up(state: LinkState, *messages: Message) -> str | None:
    """Why this broker hangs up on who says that, if it does, and goes on."""
    core = broker_in(state)
    closed = closing(core.step(1.0, MessagesReceived(LINK, list(messages))))
    for second in (2, 3, 4):
        core.step(second, TimerFired())

    assert closed is None or closed.code is GoodbyeCode.PROTOCOL
    assert not core.has_stopped
    return None if closed is None else closed.reason


@pytest.mark.parametrize("state", [LinkState.TO_ORPHAN, LinkState.TO_ORPHANED_CLIENT])
@pytest.mark.parametrize("publication", UNREADABLE, ids=lambda p: p.content.hex())
def test_what_an_orphan_brings_along_can_be_read(state: LinkState, publication: Publish) -> None:
    got = reason_for_hanging_up(state, attach(received=1), publication)
    gave = reason_for_hanging_up(state, attach(sent=(1,)), publication)

    assert got is not None
    assert got.startswith("content: ")
    assert got == gave


@pytest.mark.parametrize(
    ("changes", "announced"),
    [
        ({"publisher": OTHER}, {"sent": (1,)}),
        ({"incarnation": 2}, {"sent": (1,)}),
        ({"flags": Flag.AWAITED}, {"sent": (1,)}),
        ({"flags": Flag.UNORDERED_ONLY}, {"sent": (1,)}),
        ({"flags": Flag.NOTICE}, {"received": 1}),
    ],
)
def test_an_orphaned_client_brings_along_what_a_client_can_have(
    changes: dict[str, Any], announced: dict[str, Any]
) -> None:
    publication = attrs.evolve(GOOD, **changes)
    reason = reason_for_hanging_up(LinkState.TO_ORPHANED_CLIENT, attach(**announced), publication)

    assert reason is not None
    assert reason.startswith("peer brings along publication 1 of")


@pytest.mark.parametrize("claim", [ADVERTISE, SUBSCRIBE], ids=["advertise", "subscribe"])
@pytest.mark.parametrize("state", [LinkState.TO_ORPHAN, LinkState.TO_ORPHANED_CLIENT])
def test_the_filters_of_an_orphan_can_be_read(
    state: LinkState, claim: Advertise | Subscribe
) -> None:
    bad = attrs.evolve(claim, filter="x >")
    reason = reason_for_hanging_up(state, attach(advertisements=1), bad)

    assert reason is not None
    assert reason.startswith(type(claim).__name__)


def adopt(**changes: Any) -> Adopt:
    header: Adopt = attrs.evolve(SAMPLE_OF[Adopt], **changes)
    return header


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (adopt(advertisements=1), [attrs.evolve(ADVERTISE, filter="x >")]),
        (adopt(advertisements=1), [attrs.evolve(ADVERTISE, path=())]),
        (adopt(advertisements=1), [SUBSCRIBE]),
        (adopt(subscriptions=(NOT_YET,)), [ADVERTISE]),
        (adopt(told=1), [SUBSCRIBE]),
    ],
)
def test_what_is_handed_over_is_what_was_announced(
    header: Adopt, told: list[Advertise | Subscribe]
) -> None:
    reason = reason_for_hanging_up(LinkState.TO_PARENT, header, *told)

    assert reason is not None


def test_what_is_handed_over_as_announced_is_taken_in() -> None:
    advertise, subscribe = (
        attrs.evolve(claim, client=OTHER, path=(OTHER,)) for claim in (ADVERTISE, SUBSCRIBE)
    )
    header = adopt(advertisements=1, subscriptions=(NOT_YET,), told=1, known=(NOT_YET,))
    told = [header, advertise, subscribe, advertise, subscribe]

    assert reason_for_hanging_up(LinkState.TO_PARENT, *told) is None
