"""A name is one node, of a client one life at a time; also when a broker was rebuilt meanwhile."""

import random
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Final

import pytest

from plait.broker.limits import Limits
from plait.broker.machine.attachments import attach
from plait.broker.machine.machine import Batch, Machine
from plait.broker.machine.neighbours import Neighbour
from plait.broker.machine.rebuild import rebuild
from plait.broker.messages import Confirm, Join, Leave, Message, NodeKind, Refuse, Settings
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import BROKER, CLIENT, Standing, Taken
from plait.routing.ids import NodeId, OperationId

PARENTS: Final = {"b1": None, "b2": "b1", "b3": "b2", "b4": "b3", "b5": "b1", "b6": "b5"}
SAME: Final = NodeId("same")
JOIN: Final = OperationId("same#join")


class Tree:
    """Machines that tell each other what they send, in any order that links allow."""

    def __init__(self, seed: int = 0, parents: Mapping[str, str | None] = PARENTS) -> None:
        self.random = random.Random(seed)
        self.parents = {
            NodeId(name): None if above is None else NodeId(above)
            for name, above in parents.items()
        }
        self.links: dict[tuple[NodeId, NodeId], deque[Batch]] = defaultdict(deque)
        self.machines: dict[NodeId, Machine] = {}
        self.answers: dict[tuple[NodeId, int], str] = {}
        """What who asked to join has been told, by broker and incarnation."""
        for name, above in self.parents.items():
            machine = self.machines[name] = Machine(
                name, above, settings=Settings(), limits=Limits(), outbox=Outbox()
            )
            machine.has_joined = True
            if above is not None:
                self.machines[above].welcome(name, Standing(kind=BROKER, has_joined=True))

    def carry_out(self, machine: Machine, touched: list[Neighbour]) -> None:
        step = machine.steps.number
        for neighbour in touched:
            messages = machine.sent_since(neighbour, step - 1)
            is_link = self.parents.get(neighbour.node) == machine.node
            if is_link or neighbour.node == self.parents[machine.node]:
                self.links[machine.node, neighbour.node].append(Batch(step, messages))
            else:
                self.hear(machine.node, neighbour, messages)

    def hear(self, at: NodeId, neighbour: Neighbour, messages: list[Message]) -> None:
        for message in messages:
            incarnation = getattr(neighbour, "incarnation", 0)
            if isinstance(message, Confirm):
                self.answers[at, incarnation] = "in"
            elif isinstance(message, Refuse):
                self.answers[at, incarnation] = message.reason

    def comes(
        self,
        at: str,
        incarnation: int = 1,
        *,
        name: NodeId = SAME,
        kind: str = CLIENT,
        published: int = 0,
    ) -> None:
        """Somebody greets, and asks to be let in."""
        place = NodeId(at)
        machine = self.machines[place]
        objection = machine.names.objection_to(name, NodeKind(kind), incarnation, published)
        if objection is not None:
            self.answers[place, incarnation] = objection
            return
        known = machine.neighbours.below.get(name)
        if known is not None:
            self.carry_out(machine, machine.decide(Taken.GONE, known, "begins anew", 0.0))
        standing = Standing(kind=kind, incarnation=incarnation, published=published)
        newcomer = machine.welcome(name, standing)
        self.carry_out(machine, machine.take(newcomer, Batch(1, [Join(operation=JOIN)]), 0.0))

    def is_cut(self, at: str) -> None:
        machine = self.machines[NodeId(at)]
        machine.disconnected(machine.neighbours.below[SAME])

    def leaves(self, at: str) -> None:
        machine = self.machines[NodeId(at)]
        client = machine.neighbours.below[SAME]
        leave = Leave(operation=OperationId("same#leave"), node=SAME)
        self.carry_out(machine, machine.take(client, Batch(client.taken + 1, [leave]), 0.0))
        self.settle()

    def deliver(self) -> bool:
        """Let one batch arrive; returns whether there was any."""
        waiting = sorted(link for link, queue in self.links.items() if queue)
        if waiting:
            sender, to = self.random.choice(waiting)
            machine = self.machines[to]
            neighbour = machine.neighbours.named(sender)
            assert neighbour is not None
            batch = self.links[sender, to].popleft()
            self.carry_out(machine, machine.take(neighbour, batch, 0.0))
        return bool(waiting)

    def settle(self) -> None:
        while self.deliver():
            pass

    def rebuild(self, name: str) -> None:
        """A broker fails with all that was on its way, and is rebuilt; nobody is at it."""
        lost = NodeId(name)
        around = [n for n in self.parents if self.parents[n] == lost or n == self.parents[lost]]
        for queue in (link for link in self.links if lost in link):
            self.links[queue].clear()
        log = self.machines[lost].steps.log
        attachments = [attach(self.machines[n], lost, {lost: log.copy()}) for n in around]
        machine = self.machines[lost] = rebuild(
            {lost: self.parents[lost]},
            attachments,
            settings=Settings(),
            limits=Limits(),
            outbox=Outbox(),
            now=0.0,
        )[lost]
        machine.steps.begin(Taken.REPLAY)
        machine.send_again()
        for n in around:
            other, here = self.machines[n].neighbours.named(lost), machine.neighbours.named(n)
            assert other is not None
            assert here is not None
            self.machines[n].steps.begin(Taken.REPLAY)
            self.machines[n].ask_again(other)
            self.machines[n].end_step()
            again = self.machines[n].sent_since(other, here.taken)
            self.links[n, lost].append(Batch(self.machines[n].steps.number, again))
            missing = machine.sent_since(here, other.taken)
            self.links[lost, n].append(Batch(machine.steps.number, missing))

    @property
    def homes(self) -> list[NodeId]:
        """Where somebody of that name has joined."""
        return [
            node
            for node, machine in self.machines.items()
            if SAME in machine.neighbours.below and machine.neighbours.below[SAME].has_joined
        ]

    @property
    def is_over(self) -> bool:
        return not any(len(machine.requests) for machine in self.machines.values())


@pytest.mark.parametrize("at", ["b1", "b2", "b4", "b6"])
@pytest.mark.parametrize("incarnation", [1, 2, 3])
def test_a_name_that_is_in_use_anywhere_is_refused(at: str, incarnation: int) -> None:
    tree = Tree()
    tree.comes("b4", 2)
    tree.settle()
    assert tree.answers[NodeId("b4"), 2] == "in"
    del tree.answers[NodeId("b4"), 2]
    tree.comes(at, incarnation)
    tree.settle()

    assert "which is at b4: wait until" in tree.answers[NodeId(at), incarnation]
    assert tree.homes == ["b4"]
    assert tree.is_over


@pytest.mark.parametrize("at", ["b1", "b2", "b4", "b6"])
@pytest.mark.parametrize("is_entered", [True, False])
def test_one_that_is_away_is_replaced_by_a_later_life_and_not_by_an_older_one(
    at: str, is_entered: bool
) -> None:
    tree = Tree()
    tree.comes("b4", 2)
    tree.settle()
    tree.is_cut("b4")
    if is_entered:
        machine = tree.machines[NodeId("b4")]
        client = machine.neighbours.below[SAME]
        assert machine.may_go_away(client)
        tree.carry_out(machine, machine.decide(Taken.AWAY, client, "", 0.0))
    tree.comes(at, 1)
    tree.settle()
    assert "was here as incarnation 2, and 1 is older" in tree.answers[NodeId(at), 1]
    assert tree.homes == ["b4"]
    tree.comes(at, 3)
    tree.settle()

    assert tree.answers[NodeId(at), 3] == "in"
    assert tree.homes == [at]
    assert tree.is_over


def test_one_that_has_left_is_followed_by_another_anywhere() -> None:
    tree = Tree()
    for incarnation, at in enumerate(("b4", "b6", "b1"), start=1):
        tree.comes(at, incarnation)
        tree.settle()
        assert tree.homes == [at]
        tree.leaves(at)
    assert tree.homes == []


@pytest.mark.parametrize("at", ["b1", "b4", "b6"])
def test_who_was_here_once_is_remembered(at: str) -> None:
    tree = Tree()
    tree.comes("b4", 5, published=7)
    tree.settle()
    tree.leaves("b4")
    for incarnation, published, reason in (
        (4, 0, "was here as incarnation 5, and 4 is older"),
        (5, 6, "has published up to 7 in incarnation 5, and would go on at 7"),
    ):
        tree.comes(at, incarnation, published=published)
        tree.settle()
        assert reason in tree.answers[NodeId(at), incarnation]
    tree.comes(at, 5, published=7)
    tree.settle()

    assert tree.homes == [at]


@pytest.mark.parametrize("at", ["b1", "b3", "b6"])
def test_a_name_of_a_broker_is_never_that_of_a_client(at: str) -> None:
    tree = Tree()
    tree.comes("b4")
    tree.settle()
    tree.comes(at, 0, kind=BROKER)
    tree.settle()
    assert "same is the name of a client" in tree.answers[NodeId(at), 0]
    for kind, incarnation in ((CLIENT, 1000), (BROKER, 0)):
        tree.answers.clear()
        tree.comes(at, incarnation, name=NodeId("b4"), kind=kind)
        tree.settle()
        assert tree.answers[NodeId(at), incarnation] != "in"


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.parametrize("incarnations", [(1, 1), (1, 2), (2, 1)])
def test_of_two_who_come_at_the_same_time_at_most_one_is_let_in(
    seed: int, incarnations: tuple[int, int]
) -> None:
    """Also if a broker fails meanwhile, at which neither of them is."""
    tree = Tree(seed)
    places = tree.random.sample(sorted(PARENTS), 2)
    for place, incarnation in zip(places, incarnations, strict=True):
        tree.comes(place, incarnation)
        for _ in range(tree.random.randrange(8)):
            tree.deliver()
    if seed % 2:
        tree.rebuild(tree.random.choice([name for name in PARENTS if name not in places]))
    tree.settle()

    answers = [tree.answers[NodeId(p), i] for p, i in zip(places, incarnations, strict=True)]
    assert tree.homes == [p for p, answer in zip(places, answers, strict=True) if answer == "in"]
    assert len(tree.homes) == 1 or (not tree.homes and incarnations == (1, 1))
    assert tree.is_over


def test_a_rebuilt_broker_refuses_what_it_had_refused() -> None:
    """It had remembered somebody, which it does not any more; the refusal was on its way."""
    tree = Tree()
    tree.comes("b3", 5)
    tree.settle()
    tree.leaves("b3")
    tree.comes("b1", 4)
    while tree.machines[NodeId("b3")].steps.log.entries[-1].members.refused == ():
        tree.deliver()
    tree.rebuild("b3")
    tree.settle()

    assert tree.answers[NodeId("b1"), 4] == "refused, as before"
    assert tree.homes == []
    assert tree.is_over
