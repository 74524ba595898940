"""A broker that lies harms nobody who does not go through it, and ends nobody."""

from random import Random

import attrs

from plait.broker.inputs import MessagesReceived
from plait.broker.machine.contradictions import contradiction_in
from plait.broker.messages import (
    Advertise,
    Confirm,
    EndOfStep,
    Heartbeat,
    Message,
    Publish,
    Seating,
    Settled,
    Unadvertise,
)
from plait.broker.sim.liars import Liar, contained
from plait.broker.sim.runs import simulate
from plait.broker.sim.workloads import Workload
from plait.routing.ids import AdvertisementId, NodeId, OperationId
from tests.host.worlds import Client, Lively
from tests.sweeps import Seeds

CONTENT = b"\x81\xa1x\x01"


def forged(publisher: str, seq: int = 1) -> Publish:
    return Publish(NodeId(publisher), 1, seq, 0, CONTENT, b"")


class Town(Lively):
    """Three brokers in a line, b2 in the middle; a publisher and a subscriber at b1."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers("b1", b2="b1", b3="b2")
        self.nyse, self.alice = self.client("nyse", "b1"), self.client("alice", "b1")
        self.advertised = self.nyse.advertises("x > 0")
        self.alice.subscribes("x > 0")
        self.passes(1)

    def says(self, speaker: str, to: str, *messages: Message) -> None:
        """Let a broker say something to another one, as a step of its own."""
        line = self.host(to).parts.connections.line(NodeId(to), NodeId(speaker))
        assert line is not None
        step = self.machine(speaker).steps.number + 1
        heard = MessagesReceived(line.link, [*messages, EndOfStep(step=step)])
        self.world._tell(self.world.nodes[NodeId(to)], heard)

    def received(self, subscriber: Client) -> list[str]:
        self.nyse.publishes(x=7)
        self.passes(2)
        return subscriber.received


def test_nobody_publishes_for_a_client_that_is_elsewhere() -> None:
    town = Town()

    town.says("b2", "b1", forged("nyse"))

    assert town.received(town.alice) == ["nyse:1"]
    assert town.host("b1").statistics().protocol_errors == 1
    assert not town.troubles()


def test_after_a_contradiction_what_is_true_is_said_again() -> None:
    """Nothing of the batch has happened, so that it is sent again, as it should be."""
    town = Town()
    bob = town.client("bob", "b3")

    town.says("b1", "b2", Settled(99))
    bob.subscribes("x > 0")
    town.passes(2)

    assert town.received(bob) == ["nyse:1"]
    assert town.host("b2").statistics().protocol_errors == 1
    assert not town.troubles()


def test_what_a_broker_may_not_say_is_found_before_anything_happens() -> None:
    town = Town()
    machine = town.machine("b1")
    source = machine.neighbours.named(NodeId("b2"))
    assert source is not None
    operation, name = OperationId("b2#7.1"), town.advertised
    advertise = Advertise(
        operation=operation,
        advertisement=AdvertisementId("eve/1"),
        client=NodeId("eve"),
        filter="x > 0",
        path=(NodeId("b2"),),
    )

    def objection(*messages: Message) -> str | None:
        return contradiction_in(machine, source, messages)

    assert objection(forged("nyse")) == "b2 publishes for nyse, which is not behind it"
    assert objection(Settled(1)) == "b2 has settled publication 1, never sent up"
    assert objection(Unadvertise(operation=operation, advertisement=name)) == (
        f"b2 speaks of {name}, which is not behind it"
    )
    assert objection(advertise, forged("eve")) is None
    assert objection(forged("eve"), advertise) is not None


class Secretive(Liar):
    """A broker that tells nobody of its own seat."""

    def say(self, message: Message, to: NodeId) -> list[Message]:
        if not isinstance(message, Seating):
            return [message]
        return [attrs.evolve(message, seats=tuple(s for s in message.seats if s.broker != to))]


def test_who_is_not_told_of_its_own_seat_is_found_by_those_below() -> None:
    town = Lively()
    town.world.liars[NodeId("b1")] = Secretive(NodeId("b1"), Random(1))
    town.brokers("b1", b2="b1", b3="b2")
    nyse, alice = town.client("nyse", "b3"), town.client("alice", "b2")
    nyse.advertises("x > 0")
    alice.subscribes("x > 0")
    town.passes(1)

    town.loses_connection("b3", "b2")
    town.passes(10)
    nyse.publishes(x=1)
    town.passes(2)

    assert alice.received == ["nyse:1"]


def test_a_liar_says_what_every_codec_accepts() -> None:
    chance = Random(1)
    said = [Confirm(operation=OperationId(f"b2#{n}.1")) for n in range(50)]

    for _ in range(100):
        liar = Liar(NodeId("b2"), chance)
        heard = [message for each in said for message in liar.say(each, NodeId("b1"))]

        assert all(isinstance(message, Confirm) for message in heard)
        assert (heard != said) <= bool(liar.told)
    assert Liar(NodeId("b2"), chance).say(Heartbeat(), NodeId("b1")) == [Heartbeat()]


def test_what_goes_through_a_liar_is_not_judged_and_all_else_is() -> None:
    town = Town()
    bob = town.client("bob", "b3")
    bob.subscribes("x > 0")
    town.passes(1)
    town.nyse.publishes(x=1)
    town.passes(1)
    parents = {"b1": None, "b2": "b1", "b3": "b2"}
    records = town.world.records()

    def lost_without(subscriber: str) -> list[str]:
        left = [r for r in records if (r["kind"], r["node"]) != ("delivered", subscriber)]
        found = contained(left, parents, {"b2"}, ordering="pairwise", delta=1)
        return [violation.guarantee for violation in found]

    assert lost_without("alice") == ["loss"]
    assert lost_without("bob") == []


def test_liars_are_contained(seeds: Seeds) -> None:
    for seed in seeds(5, 1000):
        run = simulate(seed, workload=Workload(liars=1))

        assert run.is_clean, f"plait simulate --seed {seed} --liars 1: {run.failures}"


def test_liars_are_contained_while_brokers_crash(seeds: Seeds) -> None:
    for seed in seeds(5, 1000):
        run = simulate(seed, workload=Workload(liars=1, crashes=1, recoveries=1, moves=1))

        assert run.is_clean, (
            f"plait simulate --seed {seed} --liars 1 --crashes 1 --recoveries 1 --moves 1: "
            f"{run.failures}"
        )
