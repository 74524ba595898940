"""What a role may say: whoever says more is hung up on, and nothing has happened."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest

from broker.effects import Stop
from broker.inputs import MessagesReceived
from broker.link_states import LEGAL, LinkState
from broker.messages import (
    Adopt,
    Advertise,
    Attach,
    Confirm,
    Flag,
    Goodbye,
    GoodbyeCode,
    Hello,
    Join,
    Leave,
    Message,
    Moved,
    NodeKind,
    Prepare,
    Prepared,
    Publish,
    Subscribe,
    Welcome,
)
from broker.roles import CONDITIONS, FAREWELLS
from faulttol.neighbourhood import Life, TopologyLink
from routing.ids import NodeId, OperationId
from tests.broker.test_link_states import (
    LINK,
    PEER,
    SAMPLES,
    broker_in,
    closing,
    hello,
    join,
    welcome,
)
from tests.conversation import Conversation

SAMPLE_OF: Final[dict[type[Message], Any]] = {type(sample): sample for sample in SAMPLES}
HERE: Final = NodeId("here")
OTHER: Final = NodeId("other")
BIGGEST: Final = 2**63 - 1

CLIENT, BROKER, MONITOR = (
    hello(kind) for kind in (NodeKind.CLIENT, NodeKind.BROKER, NodeKind.MONITOR)
)


def own_join(**changes: Any) -> Join:
    """How a client joins."""
    joining = join(PEER, "here", "client", 0)
    return attrs.evolve(joining, link=attrs.evolve(joining.link, **changes))


def leave(node: NodeId, distance: int) -> Leave:
    return Leave(operation=OperationId("peer#1.1"), node=node, distance=distance)


def sample(kind: type[Message], **changes: Any) -> Message:
    changed: Message = attrs.evolve(SAMPLE_OF[kind], **changes)
    return changed


def moving(kind: type[Message], child: NodeId) -> Message:
    link = attrs.evolve(join(child, "peer", "broker", 1).link, moves=1)
    return sample(kind, link=link)


def attach(**changes: Any) -> Message:
    link: TopologyLink = attrs.evolve(join(PEER, "here", "client", 1).link, **changes)
    return sample(Attach, links=(link,))


def claim(kind: type[Message], client: NodeId, *path: NodeId) -> Message:
    return sample(kind, client=client, path=path)


Examples = tuple[list[Message], list[Message]]
"""Of what may be said, and of what may not."""

FAR_AND_NEAR: Final[dict[type[Message], Examples]] = {
    Join: ([join(OTHER, "peer", "broker", 1)], [join(OTHER, "peer", "broker", 2)]),
    Leave: ([leave(OTHER, 1)], [leave(OTHER, 2), leave(OTHER, BIGGEST)]),
}
FROM_BELOW: Final[dict[type[Message], Examples]] = {
    Join: (
        FAR_AND_NEAR[Join][0],
        [*FAR_AND_NEAR[Join][1], join(OTHER, "here", "broker", BIGGEST)],
    ),
    Leave: FAR_AND_NEAR[Leave],
}
GOODBYES: Final[Examples] = (
    [Goodbye(code=code, reason="") for code in GoodbyeCode if code in FAREWELLS],
    [Goodbye(code=code, reason="") for code in GoodbyeCode if code not in FAREWELLS],
)
ITSELF: Final[dict[type[Message], Examples]] = {
    Join: (
        [],
        [
            join(OTHER, "peer", "broker", 1),
            join(PEER, "here", "client", 1),
            own_join(incarnation=2),
            own_join(address="elsewhere:1"),
            own_join(standby=1),
            own_join(moves=BIGGEST),
        ],
    ),
    Leave: ([leave(PEER, 0)], [leave(OTHER, 1), leave(PEER, 1)]),
    Goodbye: GOODBYES,
}

EXAMPLES: Final[Mapping[LinkState, Mapping[type[Message], Examples]]] = {
    LinkState.AWAITING_HELLO: {
        Hello: (
            [
                CLIENT,
                BROKER,
                MONITOR,
                attrs.evolve(CLIENT, failed=(Life(OTHER, 1),), peer="other", peer_incarnation=1),
                attrs.evolve(BROKER, is_top=True),
            ],
            [
                attrs.evolve(CLIENT, address="elsewhere:1"),
                attrs.evolve(CLIENT, is_top=True),
                attrs.evolve(BROKER, address=""),
                attrs.evolve(MONITOR, address="elsewhere:1"),
                attrs.evolve(MONITOR, failed=(Life(OTHER, 1),)),
                attrs.evolve(MONITOR, peer="here"),
                attrs.evolve(MONITOR, expected=2),
                attrs.evolve(MONITOR, is_top=True),
                attrs.evolve(MONITOR, is_moving=True),
            ],
        )
    },
    LinkState.AWAITING_WELCOME: {
        Welcome: ([welcome()], [attrs.evolve(welcome(), node=HERE)]),
        Moved: ([moving(Moved, HERE)], [moving(Moved, OTHER)]),
    },
    LinkState.TO_PARENT: {
        Join: (FAR_AND_NEAR[Join][0], [*FAR_AND_NEAR[Join][1], join(OTHER, "peer", "broker", 0)]),
        Leave: (FAR_AND_NEAR[Leave][0], [*FAR_AND_NEAR[Leave][1], leave(HERE, 0)]),
        Prepare: ([moving(Prepare, HERE)], [moving(Prepare, OTHER)]),
        Moved: ([moving(Moved, HERE)], [moving(Moved, OTHER)]),
        Adopt: (
            [SAMPLE_OF[Adopt]],
            [
                moving(Adopt, HERE),
                sample(Adopt, link=join(OTHER, "peer", "monitor", 1).link),
            ],
        ),
    },
    LinkState.TO_CHILD: FROM_BELOW,
    LinkState.TO_CLIENT: ITSELF,
    LinkState.TO_ORPHAN: {
        **FROM_BELOW,
        Advertise: ([claim(Advertise, OTHER, OTHER, PEER)], [claim(Advertise, OTHER, OTHER)]),
        Subscribe: ([claim(Subscribe, OTHER, OTHER, PEER)], [claim(Subscribe, OTHER)]),
    },
    LinkState.TO_ORPHANED_CLIENT: {
        **ITSELF,
        Leave: ([], ITSELF[Leave][1]),
        Advertise: ([], [claim(Advertise, OTHER, PEER), claim(Advertise, PEER, OTHER, PEER)]),
        Subscribe: ([], [claim(Subscribe, OTHER, PEER), claim(Subscribe, PEER)]),
        Attach: (
            [attach()],
            [
                attach(child=OTHER),
                attach(kind="broker"),
                attach(address="elsewhere:1"),
                attach(incarnation=2),
                attach(standby=1),
                attach(moves=BIGGEST),
            ],
        ),
    },
    LinkState.TO_MONITOR: {Goodbye: GOODBYES},
}


def pairs(index: int) -> list[tuple[LinkState, Message]]:
    return [
        (state, message)
        for state, by_kind in EXAMPLES.items()
        for examples in by_kind.values()
        for message in examples[index]
    ]


def test_there_are_examples_of_every_condition() -> None:
    conditions = {(state, kind) for state, by_kind in CONDITIONS.items() for kind in by_kind}

    assert conditions == {(state, kind) for state, by_kind in EXAMPLES.items() for kind in by_kind}
    assert all(kind in LEGAL[state] for state, kind in conditions)


@pytest.mark.parametrize(("state", "message"), pairs(0))
def test_what_a_role_may_say_does_not_end_its_link(state: LinkState, message: Message) -> None:
    core = broker_in(state)
    closed = closing(core.step(1.0, MessagesReceived(LINK, [message])))

    if core.statistics().protocol_errors:
        assert closed is not None
        assert closed.reason == f"{type(message).__name__} before Attach"


@pytest.mark.parametrize(("state", "message"), pairs(1))
def test_what_a_role_may_not_say_ends_its_link_and_nothing_else(
    state: LinkState, message: Message
) -> None:
    core = broker_in(state)
    known, buried = core.neighbourhood.version, core.neighbourhood.buried
    effects = core.step(1.0, MessagesReceived(LINK, [message]))
    closed = closing(effects)

    assert closed is not None
    assert closed.code is GoodbyeCode.PROTOCOL
    assert closed.reason.startswith(type(message).__name__)
    assert (core.neighbourhood.version, core.neighbourhood.buried) == (known, buried)
    assert not any(isinstance(effect, Stop) for effect in effects)
    assert not core.has_stopped


FLAGS: Final = {
    name: value for name, value in vars(Flag).items() if name.isupper() and isinstance(value, int)
}
A_PLACE: Final = 1 << 8
MAY_SET: Final = {
    LinkState.TO_CLIENT: {"UNORDERED", "URGENT"},
    LinkState.TO_CHILD: set(FLAGS) - {"NOTICE", "ACKNOWLEDGED"},
    LinkState.TO_PARENT: set(FLAGS) - {"NOTICE", "ACKNOWLEDGED", "AWAITED"},
}


@pytest.mark.parametrize("ordering", ["fifo", "pairwise", "published-progressive"])
@pytest.mark.parametrize("state", MAY_SET)
@pytest.mark.parametrize("flag", FLAGS)
def test_a_neighbour_sets_the_flags_that_are_for_it_to_set(
    state: LinkState, flag: str, ordering: str
) -> None:
    core = broker_in(state, ordering=ordering)
    publication = Publish(PEER, 1, 1, FLAGS[flag], b"\x80", b"")
    closed = closing(core.step(1.0, MessagesReceived(LINK, [publication])))

    assert (closed is None) == (flag in MAY_SET[state])
    assert closed is None or "may not set" in closed.reason


def test_a_client_gives_its_publications_no_places() -> None:
    core = broker_in(LinkState.TO_CLIENT)
    publication = Publish(PEER, 1, 1, A_PLACE, b"\x80", b"")

    assert closing(core.step(1.0, MessagesReceived(LINK, [publication]))) is not None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"content": b"\x81"}, "content: not msgpack as expected"),
        ({"publisher": OTHER}, "a publication of other"),
        ({"incarnation": 0}, "a publication of peer, incarnation 0"),
        ({"flags": Flag.AWAITED}, "may not set 0x4"),
    ],
)
def test_what_has_been_seen_before_is_looked_at_all_the_same(
    changes: dict[str, Any], reason: str
) -> None:
    """It is kept, and told to whoever takes the place of a broker that has failed."""
    core = broker_in(LinkState.TO_CLIENT)
    seen = Publish(PEER, 1, 1, 0, b"\x80", b"")
    core.step(1.0, MessagesReceived(LINK, [seen]))
    closed = closing(core.step(1.0, MessagesReceived(LINK, [attrs.evolve(seen, **changes)])))

    assert closed is not None
    assert reason in closed.reason


def a_client_of(overlay: Conversation, broker: str, *said: Message) -> None:
    """Somebody joins there as a client, and says that."""
    joining = attrs.evolve(own_join(), link=attrs.evolve(own_join().link, parent=NodeId(broker)))
    overlay.is_told_by_stranger(broker, CLIENT, joining, *said)


def test_what_nobody_asked_of_it_a_client_does_not_confirm() -> None:
    overlay = Conversation()
    overlay.brokers("a", b="a")
    nyse = overlay.client("nyse", at="a")
    overlay.freezes("b")
    nyse.advertises("TRUE")
    overlay.settle(0.1)
    [operation] = overlay.broker("a").requests.under_way
    a_client_of(overlay, "a", Confirm(operation=operation))
    overlay.settle(0.1)

    assert operation in overlay.broker("a").requests.under_way
    assert nyse.answered == []


def test_who_is_not_moved_does_not_say_whether_others_are_prepared() -> None:
    overlay = Conversation()
    overlay.brokers("a", b="a", c="a")
    assert overlay.world.move(NodeId("a"), NodeId("b"), NodeId("c"))
    a_client_of(overlay, "a", Prepared(move=1, accepts=False))
    overlay.settle(3)

    assert overlay.parent_of("c") == "b"
    assert overlay.broker("a").moving.completed == 1
