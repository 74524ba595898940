"""Every message in every state: what is legal is taken in, what is not closes that link alone."""

import attrs
import pytest

from broker.core import BrokerCore
from broker.effects import CloseLink, Effect, SendMessage
from broker.inputs import LinkClosed, LinkFailed, LinkId, LinkOpened, MessagesReceived
from broker.link_states import LEGAL, LinkState
from broker.messages import (
    MESSAGE_TYPES,
    PROTOCOL_VERSION,
    Acknowledge,
    Adopt,
    Adopted,
    Advertise,
    Attach,
    Claim,
    Confirm,
    Defer,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Join,
    Known,
    Leave,
    Message,
    Moved,
    Neighbourhood,
    NodeKind,
    Pause,
    Place,
    Placed,
    PlacesReply,
    PlacesRequest,
    Prepare,
    Prepared,
    Present,
    Progress,
    Publish,
    RefusalCode,
    Refuse,
    Resume,
    Settled,
    StatusReply,
    StatusRequest,
    Subscribe,
    Summon,
    Top,
    Unadvertise,
    Unsubscribe,
    Welcome,
    Withdraw,
)
from faulttol.neighbourhood import Life, TopologyLink
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId

LINK = LinkId(1)
PEER = NodeId("peer")
OPERATION = OperationId("peer#1.7")


def hello(kind: NodeKind) -> Hello:
    return Hello(
        version=PROTOCOL_VERSION,
        node=PEER,
        kind=kind,
        incarnation=1,
        address="peer" if kind is NodeKind.BROKER else "",
    )


def welcome() -> Welcome:
    return Welcome(
        node=PEER,
        incarnation=1,
        ordering="fifo",
        policy="filter",
        delta=1,
        detection="fast",
        heartbeat_interval_ms=500,
        heartbeat_timeout_ms=3000,
        resumed=False,
        received=0,
    )


def join(child: NodeId, parent: str, kind: str, distance: int) -> Join:
    link = TopologyLink(child=child, parent=NodeId(parent), kind=kind, incarnation=1, address="")
    return Join(operation=OPERATION, link=link, distance=distance)


MOVED = join(NodeId("other"), "peer", "broker", 1).link
SAMPLES: tuple[Message, ...] = (
    hello(NodeKind.CLIENT),
    welcome(),
    Goodbye(code=GoodbyeCode.LEFT, reason="enough"),
    Heartbeat(),
    join(NodeId("other"), "peer", "broker", 1),
    Claim(
        operation=OPERATION,
        node=NodeId("other"),
        kind=NodeKind.CLIENT,
        incarnation=1,
        published=0,
        broker=PEER,
    ),
    Leave(operation=OPERATION, node=NodeId("other"), distance=1),
    Neighbourhood(links=()),
    Advertise(
        operation=OPERATION,
        advertisement=AdvertisementId("peer/1"),
        client=PEER,
        filter="TRUE",
        path=(PEER,),
    ),
    Unadvertise(operation=OPERATION, advertisement=AdvertisementId("peer/1")),
    Subscribe(
        operation=OPERATION,
        subscription=SubscriptionId("peer/2"),
        client=PEER,
        filter="TRUE",
        ordered=True,
        path=(PEER,),
    ),
    Unsubscribe(operation=OPERATION, subscription=SubscriptionId("peer/2")),
    Confirm(operation=OPERATION),
    Refuse(operation=OPERATION, code=RefusalCode.TOO_MANY, reason="no more"),
    Publish(PEER, 1, 1, 0, b"\x80", b""),
    Settled(1),
    Acknowledge(publisher=PEER, incarnation=1, seq=1),
    Defer(subscriptions=(SubscriptionId("peer/2"),)),
    PlacesRequest(publisher=PEER, incarnation=1, seq=1, subscribers=(PEER,)),
    PlacesReply(publisher=PEER, incarnation=1, seq=1, places=(Place(PEER, 1),)),
    Placed(places=(Place(PEER, 1),)),
    Progress(0, 0),
    StatusRequest(),
    StatusReply(report=b"{}"),
    Summon(hub=PEER, failed=(), address=""),
    Present(node=PEER, incarnation=1),
    Attach(
        now=1, advertisements=0, subscriptions=(), received=0, sent=(), links=(), seen=(), stable=()
    ),
    Withdraw(operation=OPERATION, client=NodeId("other")),
    Pause(move=1),
    Prepare(move=1, link=MOVED),
    Prepared(move=1, accepts=True),
    Adopt(
        move=1,
        now=1,
        link=MOVED,
        received=0,
        sent=0,
        links=(),
        stable=(),
        asked=(),
        advertisements=0,
        subscriptions=(),
        told=0,
        known=(),
    ),
    Adopted(move=1, node=PEER, accepts=True),
    Moved(link=MOVED),
    Resume(move=1),
    Top(address="peer"),
    Known(advertisements=(), subscriptions=()),
)


def broker_in(state: LinkState, ordering: str = "fifo") -> BrokerCore:
    """A broker that has one link, in this state."""
    is_child = state in (LinkState.AWAITING_WELCOME, LinkState.TO_PARENT)
    join_point = "peer" if is_child else None
    core = BrokerCore(NodeId("here"), 1, join=join_point, ordering=ordering)
    core.start(0.0)
    core.step(0.0, LinkOpened(LINK, "peer" if is_child else ""))
    match state:
        case LinkState.TO_PARENT:
            greeting = attrs.evolve(welcome(), ordering=ordering)
            core.step(0.0, MessagesReceived(LINK, [greeting]))
        case LinkState.TO_ORPHAN:
            add_orphan(core, NodeKind.BROKER)
        case LinkState.TO_ORPHANED_CLIENT:
            add_orphan(core, NodeKind.CLIENT)
        case LinkState.AWAITING_SIGN_OF_LIFE:
            visit(core)
        case LinkState.TO_CHILD:
            joining = join(PEER, "here", "broker", 0)
            core.step(0.0, MessagesReceived(LINK, [hello(NodeKind.BROKER), joining]))
        case LinkState.TO_CLIENT:
            joining = join(PEER, "here", "client", 0)
            advertise = Advertise(
                operation=OPERATION,
                advertisement=AdvertisementId("peer/0"),
                client=PEER,
                filter="TRUE",
                path=(PEER,),
            )
            core.step(0.0, MessagesReceived(LINK, [hello(NodeKind.CLIENT), joining, advertise]))
        case LinkState.TO_MONITOR:
            core.step(0.0, MessagesReceived(LINK, [hello(NodeKind.MONITOR)]))
    return core


def add_orphan(core: BrokerCore, kind: NodeKind) -> None:
    """Let the link lead to a node whose parent, a child of this one, has failed."""
    failed, link = NodeId("failed"), LinkId(2)
    core.step(0.0, LinkOpened(link))
    greeting = attrs.evolve(hello(NodeKind.BROKER), node=failed, address="failed")
    behind = attrs.evolve(join(PEER, "failed", kind.value, 1), operation=OperationId("failed#1.8"))
    joining = join(failed, "here", "broker", 0)
    joining = attrs.evolve(joining, link=attrs.evolve(joining.link, address="failed"))
    core.step(0.0, MessagesReceived(link, [greeting, joining, behind]))
    core.step(0.0, LinkClosed(link, "cut"))
    core.step(0.0, LinkFailed("failed", "refused"))
    orphan = attrs.evolve(hello(kind), failed=(Life(failed, 1),), peer="failed", peer_incarnation=1)
    core.step(0.0, MessagesReceived(LINK, [orphan]))


def visit(core: BrokerCore) -> None:
    """Let the link lead to a child that has lost its connection."""
    child, link = NodeId("child"), LinkId(2)
    core.step(0.0, LinkOpened(link))
    greeting = attrs.evolve(hello(NodeKind.BROKER), node=child, address="child")
    joining = join(child, "here", "broker", 0)
    joining = attrs.evolve(joining, link=attrs.evolve(joining.link, address="child"))
    core.step(0.0, MessagesReceived(link, [greeting, joining]))
    core.step(0.0, LinkClosed(link, "cut"))
    core.step(0.0, LinkOpened(LINK, "child"))


def closing(effects: list[Effect]) -> CloseLink | None:
    return next((effect for effect in effects if isinstance(effect, CloseLink)), None)


def test_there_is_a_sample_of_every_message() -> None:
    assert {type(sample) for sample in SAMPLES} == set(MESSAGE_TYPES.values())


@pytest.mark.parametrize("state", LinkState)
@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_every_message_in_every_state(state: LinkState, message: Message) -> None:
    core = broker_in(state)
    effects = core.step(1.0, MessagesReceived(LINK, [message]))
    closed = closing(effects)

    if type(message) in LEGAL[state]:
        assert closed is None or "is not expected" not in closed.reason
    else:
        assert closed is not None
        assert closed.code is GoodbyeCode.PROTOCOL
        assert f"{type(message).__name__} is not expected" in closed.reason
        assert core.kind_of(LINK) is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (join(NodeId("other"), "here", "broker", 0), "peer lets other join here"),
        (Leave(operation=OPERATION, node=NodeId("other"), distance=0), "peer lets other leave"),
        (Progress(1, 0), "1 publications confirmed, between 0 and 0 expected"),
        (
            Advertise(
                operation=OPERATION,
                advertisement=AdvertisementId("x"),
                client=PEER,
                filter="x >",
                path=(PEER,),
            ),
            "x of peer",
        ),
        (
            Subscribe(
                operation=OPERATION,
                subscription=SubscriptionId("x"),
                client=PEER,
                filter="TRUE",
                ordered=True,
                path=(NodeId("elsewhere"),),
            ),
            "x of peer came by",
        ),
    ],
)
def test_a_neighbour_that_breaks_a_rule_is_told_which(message: Message, reason: str) -> None:
    core = broker_in(LinkState.TO_CHILD)
    closed = closing(core.step(1.0, MessagesReceived(LINK, [message])))

    assert closed is not None
    assert reason in closed.reason
    assert core.statistics().protocol_errors == 1


def test_a_greeting_in_another_version_is_refused() -> None:
    core = broker_in(LinkState.AWAITING_HELLO)
    old = Hello(
        version=99,
        node=PEER,
        kind=NodeKind.CLIENT,
        incarnation=1,
    )
    closed = closing(core.step(1.0, MessagesReceived(LINK, [old])))

    assert closed is not None
    assert closed.reason == f"protocol version 99, {PROTOCOL_VERSION} expected"


def test_nobody_else_may_withdraw_what_a_client_asked_for() -> None:
    core = broker_in(LinkState.TO_CLIENT)
    other = LinkId(2)
    thief = Hello(
        version=PROTOCOL_VERSION,
        node=NodeId("thief"),
        kind=NodeKind.CLIENT,
        incarnation=1,
    )
    core.step(1.0, LinkOpened(other))
    core.step(1.0, MessagesReceived(other, [thief]))
    joining = join(NodeId("thief"), "here", "client", 0)
    joining = attrs.evolve(joining, operation=OperationId("thief#1.1"))
    core.step(1.0, MessagesReceived(other, [joining]))
    withdraw = Unadvertise(
        operation=OperationId("thief#1.2"), advertisement=AdvertisementId("peer/0")
    )
    closed = closing(core.step(1.0, MessagesReceived(other, [withdraw])))

    assert closed is not None
    assert closed.reason == "thief withdraws peer/0, which is not its own"
    assert len(core.interests.advertisements) == 1


def test_whoever_joins_takes_the_heartbeats_of_the_overlay() -> None:
    core = broker_in(LinkState.AWAITING_WELCOME)
    greeting = attrs.evolve(welcome(), heartbeat_interval_ms=200, heartbeat_timeout_ms=1000)
    core.step(0.0, MessagesReceived(LINK, [greeting]))

    assert core.limits.heartbeat_interval_s == 0.2
    assert core.limits.heartbeat_timeout_s == 1.0


def test_heartbeats_that_nobody_could_keep_are_refused() -> None:
    core = broker_in(LinkState.AWAITING_WELCOME)
    greeting = attrs.evolve(welcome(), heartbeat_interval_ms=500, heartbeat_timeout_ms=600)
    closed = closing(core.step(0.0, MessagesReceived(LINK, [greeting])))

    assert closed is not None
    assert closed.code is GoodbyeCode.PROTOCOL
    assert "at least 2 heartbeats to a timeout expected" in closed.reason


def test_a_joining_that_was_begun_elsewhere_names_the_parent_of_now() -> None:
    """The parent has failed before it was confirmed; its successor would refuse it for ever."""
    core = broker_in(LinkState.TO_PARENT)
    parent = core.neighbours.parent
    assert parent is not None
    parent.node, parent.incarnation = NodeId("hub"), 7
    core.requests.send_again(parent, 1.0)
    sent = [effect.message for effect in core.outbox.take() if isinstance(effect, SendMessage)]

    assert [
        (message.link.parent, message.link.parent_incarnation)
        for message in sent
        if isinstance(message, Join)
    ] == [("hub", 7)]
