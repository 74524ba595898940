"""What is in the stream to a neighbour, in the order in which it was sent."""

from collections.abc import Iterable, Iterator

import attrs

from plait.broker.machine.neighbours import Control, Neighbour
from plait.broker.messages import Message, Publish
from plait.faulttol.steplog import Key


@attrs.frozen
class Travelling:
    """A publication in the stream between two neighbours, which is not stable."""

    number: int
    step: int
    """Of whoever sent it."""
    publication: Publish

    @property
    def key(self) -> Key:
        """What identifies it."""
        return self.publication.publisher, self.publication.incarnation, self.publication.seq


def kept(neighbour: Neighbour) -> Iterator[Travelling]:
    """What is in the stream to a neighbour, and not stable."""
    return kept_from(neighbour, 0)


def kept_from(neighbour: Neighbour, place: int) -> Iterator[Travelling]:
    """The same, without so many from the beginning."""
    stream = neighbour.sent
    first = stream.stable_count + 1
    confirmed = len(stream.confirmed)
    for index in range(place, confirmed + len(stream.unconfirmed)):
        is_confirmed = index < confirmed
        arrival = stream.confirmed[index] if is_confirmed else stream.unconfirmed[index - confirmed]
        number = first + index
        yield Travelling(number, neighbour.sent_marks.step_of(number), arrival.towards(neighbour))


def in_order(
    publications: Iterable[Travelling], controls: Iterable[Control]
) -> list[Travelling | Control]:
    """What was sent, publications and other messages, as it was sent."""
    items: list[tuple[int, int, Travelling | Control]] = []
    items += [(each.number, 0, each) for each in publications]
    items += [(control.position, 1, control) for control in controls]
    items.sort(key=lambda item: item[:2])
    return [item for _, _, item in items]


def sent_since(neighbour: Neighbour, step: int) -> list[Message]:
    """What was sent to a neighbour after a step, in order."""
    publications = (each for each in kept(neighbour) if each.step > step)
    controls = (control for control in neighbour.controls if control.step > step)
    return [
        item.publication if isinstance(item, Travelling) else item.message
        for item in in_order(publications, controls)
    ]
