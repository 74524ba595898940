"""What `check_invariants` finds: each invariant is broken once, by hand."""

from collections.abc import Callable

import pytest

from plait.broker.codec import encode_content
from plait.broker.limits import Limits
from plait.broker.machine.invariants import check_invariants
from plait.broker.machine.machine import Batch, Machine
from plait.broker.messages import Advertise, Leave, Publish, Settings, Subscribe
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import Standing
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId

ALICE, NYSE, PARENT = NodeId("alice"), NodeId("nyse"), NodeId("b0")


@pytest.fixture
def machine() -> Machine:
    """A broker between its parent, a publisher and a subscriber, with a publication under way."""
    machine = Machine(NodeId("b1"), PARENT, settings=Settings(), limits=Limits(), outbox=Outbox())
    publisher = machine.add_below(NYSE, Standing(incarnation=1, has_joined=True))
    subscriber = machine.add_below(ALICE, Standing(incarnation=1, has_joined=True))
    advertise = Advertise(
        operation=OperationId("nyse#1"),
        advertisement=AdvertisementId("nyse/1"),
        client=NYSE,
        filter="x > 0",
        path=(NYSE,),
    )
    subscribe = Subscribe(
        operation=OperationId("alice#1"),
        subscription=SubscriptionId("alice/1"),
        client=ALICE,
        filter="x > 0",
        ordered=True,
        path=(ALICE,),
    )
    machine.take(publisher, Batch(1, [advertise]), 0.0)
    machine.take(subscriber, Batch(1, [subscribe]), 0.0)
    publication = Publish(NYSE, 1, 1, 0, encode_content({"x": 1}), b"")
    machine.take(publisher, Batch(2, [publication]), 0.0)
    check_invariants(machine)
    return machine


def _miscount_confirmations(machine: Machine) -> None:
    machine.neighbours.below[NYSE].received.confirmed[0].missing += 1


def _miscount_unstable(machine: Machine) -> None:
    machine.publications.unstable += 1


def _lose_a_receiver(machine: Machine) -> None:
    del machine.neighbours.below[ALICE]


def _let_a_counter_shrink(machine: Machine) -> None:
    machine.neighbours.below[ALICE].sent.unconfirmed.clear()


def _forget_what_is_not_stable(machine: Machine) -> None:
    machine.steps.log.forget(3)


def _wait_for_a_stranger(machine: Machine) -> None:
    machine.requests._operations._pending[OperationId("nyse#1")].missing = {
        NodeId("b9"): Leave(operation=OperationId("x#1"), node=NodeId("x"))
    }


def _send_controls_out_of_order(machine: Machine) -> None:
    neighbour = machine.neighbours.below[ALICE]
    neighbour.controls.appendleft(neighbour.controls[-1])
    machine.steps.begin(machine.steps.log.entries[-1].kind)
    machine.steps.send(neighbour, neighbour.controls[-1].message)
    machine.steps.end()
    neighbour.controls.rotate(1)


@pytest.mark.parametrize(
    ("breaks", "found"),
    [
        (_miscount_confirmations, r"lacks 1 confirmations and counts 2"),
        (_miscount_unstable, "2 unstable, 1 are there"),
        (_lose_a_receiver, "alice/1 lies behind alice, who is no neighbour"),
        (_let_a_counter_shrink, "counters of alice shrank"),
        (_forget_what_is_not_stable, "the log begins after step 3"),
        (_wait_for_a_stranger, "waits for b9, who is no neighbour"),
        (_send_controls_out_of_order, "controls to alice go back in time"),
    ],
)
def test_what_is_not_as_it_should_be_is_named(
    breaks: Callable[[Machine], None], found: str, machine: Machine
) -> None:
    breaks(machine)

    with pytest.raises(AssertionError, match=found):
        check_invariants(machine)
