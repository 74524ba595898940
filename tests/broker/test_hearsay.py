"""What strangers say of others: it is looked into, and nobody is buried, moved or ended by it."""

from typing import Any

import attrs
import pytest

from broker.core import BrokerCore
from broker.effects import CloseLink, Effect, OpenLink, Stop
from broker.inputs import LinkFailed, LinkId, LinkOpened, MessagesReceived, TimerFired
from broker.limits import Limits
from broker.link_states import LinkState
from broker.messages import (
    Goodbye,
    GoodbyeCode,
    Hello,
    Message,
    Neighbourhood,
    NodeKind,
    Summon,
    Welcome,
)
from faulttol.neighbourhood import Life, TopologyLink
from routing.ids import NodeId
from tests.broker.test_link_states import LINK, broker_in, closing, hello, welcome
from tests.conversation import Conversation

B2 = NodeId("b2")
BROKERS = {NodeId("b1"), B2, NodeId("b3")}
BIGGEST = 2**63 - 1


def a_line() -> Conversation:
    overlay = Conversation()
    overlay.brokers("b1", b2="b1", b3="b2")
    return overlay


def summon(**changes: Any) -> Summon:
    fields: dict[str, Any] = {"hub": NodeId("b9"), "failed": (Life(B2, 1),), "address": ""}
    return Summon(**{**fields, **changes})


def broker_hello(name: str, **changes: Any) -> Hello:
    return attrs.evolve(
        hello(NodeKind.BROKER), node=NodeId(name), address=f"nobody-at-{name}", **changes
    )


def everybody_is_well(overlay: Conversation) -> bool:
    """Whether all are what they were, where they were."""
    return all(
        overlay.broker(name).incarnation == 1
        and not {life.node for life in overlay.broker(name).neighbourhood.buried} & BROKERS
        and overlay.parent_of(name) == parent
        for name, parent in (("b1", None), ("b2", "b1"), ("b3", "b2"))
    )


FORGED = TopologyLink(
    child=B2,
    parent=NodeId("evil"),
    kind="broker",
    incarnation=1,
    address="evil",
    parent_address="evil",
    moves=99,
)


@pytest.mark.parametrize("told", ["b1", "b2", "b3"])
@pytest.mark.parametrize("hub", ["b9", "b1", "b2", "b3"])
@pytest.mark.parametrize("incarnation", [1, 2, BIGGEST])
def test_nobody_is_buried_because_a_stranger_says_so(told: str, hub: str, incarnation: int) -> None:
    overlay = a_line()
    failed = (Life(B2, incarnation),)
    overlay.is_told_by_stranger(told, summon(hub=NodeId(hub), failed=failed, links=(FORGED,)))
    overlay.is_told_by_stranger(told, broker_hello("ghost", failed=failed))
    overlay.settle(30)

    assert everybody_is_well(overlay)


def test_a_stranger_has_nobody_dialled() -> None:
    core = broker_in(LinkState.TO_PARENT)
    stranger = LinkId(9)
    core.step(0.0, LinkOpened(stranger))
    said = summon(address="evil", links=(FORGED,), failed=(Life(NodeId("peer"), 1),))
    effects = core.step(0.0, MessagesReceived(stranger, [said]))

    assert [e.address for e in effects if isinstance(e, OpenLink)] == []


@pytest.mark.parametrize("incarnation", [1, 2, BIGGEST])
def test_what_is_said_of_a_life_that_never_was_is_true_of_the_last_one_known(
    incarnation: int,
) -> None:
    """It comes back as the next one, and is let in."""
    overlay = a_line()
    told = Neighbourhood(links=(), closed=(Life(B2, incarnation),))
    overlay.is_told_from_above("b3", told)
    overlay.settle(30)

    for name in ("b1", "b3"):
        assert overlay.broker(name).neighbourhood.buried == (Life(B2, 1),)
    assert overlay.broker("b2").incarnation == 2
    assert overlay.broker("b2").status()["state"] == "operational"


def effects_of(core: BrokerCore, *messages: Message) -> list[Effect]:
    return core.step(0.1, MessagesReceived(LINK, list(messages)))


REFUSED = Goodbye(code=GoodbyeCode.REFUSED, reason="go away")


def test_a_join_point_that_a_person_named_may_refuse() -> None:
    effects = effects_of(broker_in(LinkState.AWAITING_WELCOME), REFUSED)

    assert [e.comes_back for e in effects if isinstance(e, Stop)] == [False]


@pytest.mark.parametrize(
    "answer",
    [
        REFUSED,
        attrs.evolve(welcome(), ordering="none such"),
        attrs.evolve(welcome(), detection="none such"),
        attrs.evolve(welcome(), policy="none such"),
        attrs.evolve(welcome(), delta=32),
    ],
)
def test_somebody_found_on_the_way_who_will_not_do_ends_nobody(answer: Message) -> None:
    """A broker whose join point has failed asks who offers a place, and then others again."""
    core = BrokerCore(NodeId("here"), 1, address="here", join="peer", fallbacks=["second"])
    core.start(0.0)
    core.step(0.0, LinkOpened(LINK, "peer"))
    core.step(0.0, MessagesReceived(LINK, [Goodbye(code=GoodbyeCode.STRANDED, reason="")]))
    core._is_stranded = True
    core.step(0.0, LinkOpened(LinkId(2)))
    core.step(0.0, MessagesReceived(LinkId(2), [summon(address="evil")]))
    core.step(0.1, LinkOpened(LinkId(3), "evil"))
    effects = core.step(0.1, MessagesReceived(LinkId(3), [answer]))
    effects += core.step(0.5, TimerFired())

    assert not any(isinstance(effect, Stop) for effect in effects)
    assert [e.address for e in effects if isinstance(e, OpenLink)] != []


def test_a_broker_whose_parent_refuses_it_comes_back_as_somebody_new() -> None:
    overlay = a_line()
    overlay.is_told_from_above("b3", REFUSED)
    overlay.settle(30)

    assert overlay.broker("b3").incarnation == 2
    assert overlay.parent_of("b3") == "b2"


@pytest.mark.parametrize("changes", [{"node": NodeId("evil")}, {"incarnation": 2}])
def test_only_who_was_asked_resumes(changes: dict[str, Any]) -> None:
    overlay = a_line()
    core = overlay.broker("b3")
    overlay.loses_connection("b3", "b2")
    asked = LinkId(9_999)
    overlay.settle(0.0011)
    core.step(overlay.world.now, LinkOpened(asked, "b2"))
    answer: Welcome = attrs.evolve(welcome(), node=B2, resumed=True, ordering="pairwise")
    effects = core.step(
        overlay.world.now, MessagesReceived(asked, [attrs.evolve(answer, **changes)])
    )
    closed = closing(effects)

    assert closed is not None
    assert "resumes; b2, incarnation 1, was asked" in closed.reason


def test_who_answers_a_greeting_with_nonsense_is_asked_again() -> None:
    core = broker_in(LinkState.AWAITING_WELCOME)
    nonsense = attrs.evolve(welcome(), heartbeat_timeout_ms=1)
    assert closing(effects_of(core, nonsense)) is not None

    assert any(isinstance(effect, OpenLink) for effect in core.step(0.5, TimerFired()))


def test_who_answers_a_visit_with_nonsense_is_visited_again() -> None:
    core = broker_in(LinkState.AWAITING_SIGN_OF_LIFE)
    effects = effects_of(core, welcome())

    assert isinstance(closing(effects), CloseLink)
    assert [e.address for e in effects if isinstance(e, OpenLink)] == ["child"]


def test_strangers_name_no_end_of_places() -> None:
    core = BrokerCore(
        NodeId("here"), 1, address="here", join="peer", limits=Limits(candidates_max=3)
    )
    core.start(0.0)
    core._is_stranded = True
    for number in range(2, 10):
        core.step(0.0, LinkOpened(LinkId(number)))
        core.step(0.0, MessagesReceived(LinkId(number), [broker_hello(f"n{number}")]))
    core.step(0.1, LinkFailed("peer", "refused"))

    assert len(core._candidates) == 3
