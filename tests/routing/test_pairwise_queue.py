"""The queue of `Pairwise` against its definition: look at everything held, again and again."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from plait.routing.ids import NodeId
from plait.routing.orderings import Pairwise


@attrs.define(eq=False)
class Arrived:
    number: int
    publisher: NodeId
    hop: NodeId
    climbs: bool
    waits: bool
    subscribers: int
    descends: bool = False


def blocks(earlier: Arrived, later: Arrived) -> bool:
    return later.publisher == earlier.publisher or bool(
        later.subscribers & earlier.subscribers
        and (later.hop == earlier.hop or (later.climbs and earlier.climbs))
    )


class Definition:
    """Settle whatever neither waits nor is blocked by an earlier one that is not settled."""

    def __init__(self) -> None:
        self.held: list[Arrived] = []

    def settle(self) -> list[int]:
        settled = []
        for arrival in list(self.held):
            before = self.held[: self.held.index(arrival)]
            if not arrival.waits and not any(blocks(earlier, arrival) for earlier in before):
                self.held.remove(arrival)
                settled.append(arrival.number)
        return settled


arrivals = st.builds(
    lambda publisher, climbs, waits, subscribers: Arrived(
        number=0,
        publisher=NodeId(f"p{publisher}"),
        hop=NodeId(f"h{publisher % 2}"),  # a publisher is behind one hop
        climbs=climbs,
        waits=climbs and waits,
        subscribers=subscribers,
    ),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.integers(0, 7),
)


@given(st.lists(st.one_of(arrivals, st.integers(0, 5)), max_size=40))
def test_the_queue_settles_what_its_definition_settles(
    happenings: list[Arrived | int],
) -> None:
    queue: Pairwise[Arrived] = Pairwise()
    definition = Definition()
    waiting: list[Arrived] = []
    for number, happening in enumerate(happenings):
        if isinstance(happening, Arrived):
            arrival = attrs.evolve(happening, number=number)
            definition.held.append(arrival)
            settled = queue.arrived(arrival)
            if arrival.waits:
                waiting.append(arrival)
        elif happening < len(waiting):  # any of them: the queue does not count on an order
            settled = queue.acknowledged(waiting.pop(happening))
        else:
            continue

        assert [arrival.number for arrival in settled] == definition.settle()
        assert [arrival.number for arrival in queue.held] == [a.number for a in definition.held]
    for arrival in waiting:
        queue.acknowledged(arrival)
    assert not queue.held


def test_what_comes_from_above_is_settled_whatever_is_held() -> None:
    queue: Pairwise[Arrived] = Pairwise()
    publisher, hop = NodeId("p"), NodeId("h")
    held = Arrived(1, publisher, hop, climbs=True, waits=True, subscribers=1)
    from_above = Arrived(2, publisher, hop, climbs=False, waits=False, subscribers=1, descends=True)

    assert queue.arrived(held) == ()
    assert queue.arrived(from_above) == (from_above,)
    assert queue.acknowledged(held) == [held]
