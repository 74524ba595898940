"""What machines of topics say and know, as text: whoever reads it knows the same."""

import pytest

from plait.routing.ids import NodeId
from plait.routing.topics.portable import (
    UnreadableError,
    restore,
    state_of,
    structure_of,
    text_of,
    value_of,
    whole_text_of,
)
from plait.routing.topics.protocol import Create, Topic
from plait.routing.topics.structure import Structure
from plait.routing.topics.total import Manager, Subscriber, TotalCoordinator
from tests.routing.topics.world import CROWDS, random_run


def test_a_machine_that_is_told_what_another_one_knows_says_the_same_of_itself() -> None:
    for seed in range(20):
        for machine in random_run("total", seed, CROWDS["churn"]).machines.values():
            structure = Structure(0, (), set(), {})
            if not isinstance(machine, Subscriber):
                structure = vars(machine).get("structure") or vars(machine)["_structure"]
            new = {
                Manager: Manager(Topic(""), structure),
                Subscriber: Subscriber(NodeId(""), ()),
                TotalCoordinator: TotalCoordinator(structure, {}),
            }[type(machine)]

            restore(new, state_of(machine), {structure.epoch: structure})

            assert vars(new) == vars(machine)
            assert state_of(new) == state_of(machine)


def test_an_epoch_is_told_whole_once() -> None:
    pairs = {frozenset({Topic("a"), Topic("b")})}
    structure = Structure(3, (Topic("b"), Topic("a"), Topic("c")), pairs, {Topic("a"): 7})

    read = structure_of(whole_text_of(structure))

    assert vars(read) == vars(structure)


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}", '["Create",1]', '["open","x"]', '["Structure",4]', '["list",["Popen"]]', "[]"],
)
def test_what_nobody_has_written_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        value_of(text, {})


def test_nothing_is_written_that_could_not_be_read() -> None:
    label = (NodeId("p"), 1, 2)

    assert value_of(text_of(Create(label=label, publisher=NodeId("b"))), {}).label == label
    with pytest.raises(TypeError):
        text_of(1.5)
