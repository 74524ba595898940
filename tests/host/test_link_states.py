"""Every message in every state of a connection, and on what condition it may be said there."""

from typing import Any, Final

import attrs
import pytest

from plait.broker.errors import RemoteProtocolError
from plait.broker.host.link_states import (
    CONDITIONS,
    LEGAL,
    LinkState,
    Speaker,
    is_usual_end,
    require_legal,
)
from plait.broker.limits import ERAS_MAX
from plait.broker.messages import (
    MESSAGE_TYPES,
    PROTOCOL_VERSION,
    Acknowledge,
    Admitted,
    Advertise,
    Announce,
    Announced,
    Attach,
    AttachRequest,
    AttachTables,
    Authenticate,
    Begun,
    Behind,
    Challenge,
    Claim,
    Confirm,
    Defer,
    EndOfStep,
    Entrust,
    Errand,
    Flag,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Hello,
    Introduce,
    Join,
    Leave,
    Life,
    Mechanism,
    Message,
    NodeKind,
    PlacesRequest,
    Probe,
    ProbeReply,
    Progress,
    Publish,
    Rank,
    Recall,
    RefusalCode,
    Refuse,
    Relocate,
    Relocated,
    Revoke,
    Seating,
    Settings,
    Settled,
    Stamped,
    StampReply,
    StampRequest,
    StatusReply,
    StatusRequest,
    Subscribe,
    To,
    Turns,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.topics.protocol import Topic

PEER, HERE, OTHER = NodeId("peer"), NodeId("here"), NodeId("other")
OPERATION: Final = OperationId("peer#1.7")
OTHERS_OPERATION: Final = OperationId("other#1.7")

SAMPLES: Final[tuple[Message, ...]] = (
    Goodbye(code=GoodbyeCode.LEFT, reason="enough"),
    Heartbeat(),
    Claim(
        operation=OPERATION,
        node=OTHER,
        kind=NodeKind.CLIENT,
        incarnation=1,
        published=0,
        broker=PEER,
    ),
    Leave(operation=OPERATION, node=PEER),
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
    StatusRequest(),
    StatusReply(report=b"{}"),
    Hello(
        version=PROTOCOL_VERSION,
        node=PEER,
        kind=NodeKind.CLIENT,
        incarnation=1,
        host=PEER,
        to=HERE,
    ),
    Welcome(
        node=PEER,
        term=1,
        host=NodeId("host"),
        incarnation=1,
        settings=Settings(ordering="fifo"),
        heartbeat_interval_ms=500,
        heartbeat_timeout_ms=3000,
        resumed=False,
    ),
    EndOfStep(step=1),
    Progress(received=0, sent=0, forgotten=0),
    Join(operation=OPERATION),
    Introduce(operation=OPERATION),
    Turns(publisher=NodeId("nyse"), incarnation=1, seq=1, step=1, turns=()),
    Stamped(publisher=NodeId("nyse"), incarnation=1, seq=1, number=1, behind=()),
    Recall(topic=Topic("news")),
    Entrust(topic=Topic("news"), number=3, is_left=False),
    StampRequest(publisher=NodeId("nyse"), incarnation=1, seq=1, topic=Topic("news")),
    StampReply(publisher=NodeId("nyse"), incarnation=1, seq=1, number=1, behind=()),
    Begun(subscription=SubscriptionId("alice/1"), behind=(Behind(Topic("news"), 3),)),
    Rank(operation=OPERATION, topic=Topic("news"), above=Topic("sports")),
    Errand(to=To.MANAGER, topic=Topic("news"), asker="b", way=(NodeId("b"),), said=b"null"),
    Seating(),
    AttachRequest(broker=HERE),
    Attach(
        node=PEER,
        kind=NodeKind.CLIENT,
        incarnation=1,
        to=HERE,
        term=1,
        taken=0,
        sent_stable=0,
        sent_steps=(),
        received_stable=0,
        received_steps=(),
    ),
    AttachTables(),
    Probe(lives=()),
    ProbeReply(life=Life(PEER, 1), heard=()),
    Announce(number=1, reach=1, logs=b""),
    Announced(number=1),
    Relocate(broker=HERE, host=PEER),
    Relocated(broker=HERE),
    Revoke(name="alice/1", reason="the rules have changed"),
    # What is said before a core hears of a connection: to a core, never.
    Authenticate(mechanism=Mechanism.TOKEN, proof="a token"),
    Challenge("r=nonce"),
    Admitted(principal="alice"),
)
SAMPLE_OF: Final[dict[type[Message], Any]] = {type(sample): sample for sample in SAMPLES}
TESTIMONY: Final = attrs.evolve(SAMPLE_OF[Attach], node=HERE, kind=NodeKind.BROKER)
"""Of the host that has given a broker up, which is no neighbour of it."""
STRANGER: Final = Speaker(here=NodeId(""), node=NodeId(""), incarnation=0)
SPEAKER: Final = Speaker(here=HERE, node=PEER, incarnation=1)


def sample(kind: type[Message], /, **changes: Any) -> Message:
    changed: Message = attrs.evolve(SAMPLE_OF[kind], **changes)
    return changed


def speaker_in(state: LinkState, **changes: Any) -> Speaker:
    return attrs.evolve(STRANGER if state is LinkState.AWAITING_HELLO else SPEAKER, **changes)


def test_there_is_a_sample_of_every_message() -> None:
    assert SAMPLE_OF.keys() == set(MESSAGE_TYPES.values())


@pytest.mark.parametrize("state", LinkState)
@pytest.mark.parametrize("message", SAMPLE_OF.values(), ids=lambda m: type(m).__name__)
def test_every_message_in_every_state(state: LinkState, message: Message) -> None:
    if type(message) in LEGAL[state]:
        if isinstance(message, Attach) and state is LinkState.TO_HOST:
            message = TESTIMONY
        require_legal(state, speaker_in(state), message)
        return
    with pytest.raises(RemoteProtocolError) as caught:
        require_legal(state, speaker_in(state), message)

    assert str(caught.value) == (
        f"{type(message).__name__} is not expected on a connection in state '{state}'"
    )


@pytest.mark.parametrize("state", [LinkState.TO_CLIENT, LinkState.TO_MONITOR, LinkState.TO_HOST])
def test_what_brokers_tell_each_other_nobody_else_tells_them(state: LinkState) -> None:
    told = set(SAMPLE_OF)
    between = {kind for kind in LEGAL[LinkState.TO_BROKER] if kind in told}
    names = {"Settled", "Confirm", "Refuse", "Claim", "Announce", "Announced"}

    assert names <= {kind.__name__ for kind in between}
    assert not names & {kind.__name__ for kind in LEGAL[state]}


def hello(kind: NodeKind, **changes: Any) -> Message:
    usual: dict[str, Any] = {"kind": kind, "to": ""}
    if kind in (NodeKind.BROKER, NodeKind.HOST):
        usual["address"] = "peer:1"
    return sample(Hello, **(usual | changes))


def publish(**changes: Any) -> Message:
    return sample(Publish, **changes)


GOODBYES: Final[list[Message]] = [
    Goodbye(code=code, reason="") for code in (GoodbyeCode.ELSEWHERE, GoodbyeCode.DECLINED)
]
WRONG_ANSWERS: Final[dict[type[Message], list[Message]]] = {
    Welcome: [
        sample(Welcome, node=HERE),
        sample(Welcome, era=ERAS_MAX + 1),
    ],
}
WRONG: Final[dict[LinkState, dict[type[Message], list[Message]]]] = {
    LinkState.AWAITING_HELLO: {
        Hello: [
            hello(NodeKind.BROKER, address=""),
            hello(NodeKind.CLIENT, address="peer:1"),
            hello(NodeKind.MONITOR, address="peer:1"),
            hello(NodeKind.HOST, address=""),
            hello(NodeKind.CLIENT, host=OTHER),
            hello(NodeKind.HOST, host=OTHER),
            hello(NodeKind.CLIENT, term=1),
            hello(NodeKind.HOST, term=1),
            hello(NodeKind.MONITOR, to=HERE),
            hello(NodeKind.HOST, taken=1),
            hello(NodeKind.HOST, known_term=1),
            hello(NodeKind.BROKER, era=ERAS_MAX + 1),
        ],
    },
    LinkState.AWAITING_WELCOME: WRONG_ANSWERS,
    LinkState.ATTACHING: WRONG_ANSWERS,
    LinkState.ATTACHED: {
        Attach: [
            sample(Attach, node=OTHER),
            sample(Attach, to=OTHER),
            sample(Attach, incarnation=2),
        ],
        AttachTables: [AttachTables(era=ERAS_MAX + 1)],
    },
    LinkState.TO_BROKER: {
        EndOfStep: [EndOfStep(step=0)],
        Publish: [],
        Advertise: [sample(Advertise, path=()), sample(Advertise, path=(PEER, OTHER))],
        Subscribe: [sample(Subscribe, path=()), sample(Subscribe, path=(PEER, OTHER))],
        Join: [],
        Leave: [sample(Leave, node=OTHER)],
    },
    LinkState.TO_CLIENT: {
        EndOfStep: [EndOfStep(step=0), EndOfStep(step=1, logs=b"\x08")],
        Progress: [sample(Progress, logs=b"\x08")],
        Publish: [
            publish(publisher=OTHER),
            publish(incarnation=2),
            publish(flags=Flag.AWAITED),
            publish(flags=Flag.URGENT | Flag.REQUESTED),
            publish(flags=1 << 8),
        ],
        Advertise: [
            sample(Advertise, advertisement=AdvertisementId("other/1")),
            sample(Advertise, operation=OTHERS_OPERATION),
        ],
        Unadvertise: [
            sample(Unadvertise, advertisement=AdvertisementId("other/1")),
            sample(Unadvertise, operation=OTHERS_OPERATION),
        ],
        Subscribe: [
            sample(Subscribe, subscription=SubscriptionId("other/1")),
            sample(Subscribe, operation=OTHERS_OPERATION),
        ],
        Unsubscribe: [
            sample(Unsubscribe, subscription=SubscriptionId("other/1")),
            sample(Unsubscribe, operation=OTHERS_OPERATION),
        ],
        Join: [Join(operation=OTHERS_OPERATION), Join(operation=OperationId(""))],
        Leave: [
            sample(Leave, node=OTHER),
            sample(Leave, operation=OTHERS_OPERATION),
        ],
        Rank: [sample(Rank, operation=OTHERS_OPERATION)],
        Goodbye: GOODBYES,
    },
    LinkState.TO_MONITOR: {Goodbye: GOODBYES},
    LinkState.TO_HOST: {
        Attach: [
            sample(Attach),
            attrs.evolve(TESTIMONY, sent_steps=(1,)),
            attrs.evolve(TESTIMONY, received_steps=(1,)),
        ],
        AttachTables: [AttachTables(era=ERAS_MAX + 1)],
    },
}


def test_there_are_examples_of_every_condition() -> None:
    assert {state: set(of) for state, of in WRONG.items()} == {
        state: set(of) for state, of in CONDITIONS.items()
    }
    assert all(set(CONDITIONS[state]) <= LEGAL[state] for state in LinkState)


@pytest.mark.parametrize(
    ("state", "message"), [(s, m) for s, of in WRONG.items() for each in of.values() for m in each]
)
def test_what_is_not_its_own_nobody_may_say(state: LinkState, message: Message) -> None:
    with pytest.raises(RemoteProtocolError, match=f"^{type(message).__name__}: "):
        require_legal(state, speaker_in(state), message)


@pytest.mark.parametrize("kind", NodeKind)
def test_everybody_may_greet_once(kind: NodeKind) -> None:
    require_legal(LinkState.AWAITING_HELLO, STRANGER, hello(kind))

    with pytest.raises(RemoteProtocolError, match="Hello: peer has greeted already"):
        require_legal(LinkState.AWAITING_HELLO, SPEAKER, hello(kind))


def test_a_broker_greets_on_behalf_of_its_host() -> None:
    greeting = hello(NodeKind.BROKER, host=OTHER, term=3, known_term=2, taken=7, to=HERE)

    require_legal(LinkState.AWAITING_HELLO, STRANGER, greeting)


@pytest.mark.parametrize(
    "message", [publish(flags=Flag.AWAITED), Join(operation=OPERATION), SAMPLE_OF[Leave]]
)
def test_what_a_child_may_say_a_parent_may_not(message: Message) -> None:
    require_legal(LinkState.TO_BROKER, SPEAKER, message)

    with pytest.raises(RemoteProtocolError, match=f"^{type(message).__name__}: "):
        require_legal(LinkState.TO_BROKER, attrs.evolve(SPEAKER, is_above=True), message)


@pytest.mark.parametrize("state", [LinkState.TO_BROKER, LinkState.TO_CLIENT])
def test_the_steps_of_batches_grow(state: LinkState) -> None:
    require_legal(state, attrs.evolve(SPEAKER, step=7), EndOfStep(step=8))

    with pytest.raises(RemoteProtocolError, match="EndOfStep: step 7 after step 7"):
        require_legal(state, attrs.evolve(SPEAKER, step=7), EndOfStep(step=7))


@pytest.mark.parametrize("state", LinkState)
@pytest.mark.parametrize("logs", [b"", b"\x08"])
@pytest.mark.parametrize("step", [6, 7, 8])
def test_a_usual_end_is_a_legal_one(state: LinkState, step: int, logs: bytes) -> None:
    end, speaker = EndOfStep(step=step, logs=logs), attrs.evolve(speaker_in(state), step=7)
    is_legal = True
    try:
        require_legal(state, speaker, end)
    except RemoteProtocolError:
        is_legal = False

    assert is_usual_end(state, 7, end) is is_legal


@pytest.mark.parametrize("state", LinkState)
@pytest.mark.parametrize("message", SAMPLES)
def test_nothing_else_is_a_usual_end(state: LinkState, message: Message) -> None:
    assert isinstance(message, EndOfStep) or not is_usual_end(state, 0, message)


def test_who_attaches_is_what_it_has_greeted_as() -> None:
    attach = sample(Attach, kind=NodeKind.BROKER, incarnation=0)
    broker = attrs.evolve(SPEAKER, kind=NodeKind.BROKER)
    require_legal(LinkState.ATTACHED, broker, attach)

    with pytest.raises(RemoteProtocolError, match="the broker peer attaches as a client"):
        require_legal(LinkState.ATTACHED, broker, sample(Attach))
