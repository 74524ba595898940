"""Where a publication belongs among others, as managers have said, and whether it comes there."""

from collections.abc import Mapping

import attrs

from plait.routing.topics.protocol import Topic, raised


@attrs.frozen(kw_only=True)
class Position:
    """Where a publication belongs."""

    number: int
    """On its topic: 1, 2, 3 ... 0 if its manager was on its way elsewhere."""
    behind: Mapping[Topic, int]
    """The numbers, on other topics, behind which it comes, and before the next ones."""
    epoch: int = 0
    """How often the order of topics had changed."""


class Clock:
    """What a subscriber has had, by which it judges what comes next, whoever brings it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.numbers: dict[Topic, int] = {}
        """The last of each topic that it has had, or that something came behind."""

    def begin(self, numbers: Mapping[Topic, int]) -> None:
        """A subscription has begun, and what had been published by then is late."""
        self.numbers = raised(self.numbers, numbers)

    def takes_in_order(self, topic: Topic, position: Position) -> bool:
        """Whether it comes where it belongs; if so, it counts from now on."""
        numbers = self.numbers
        if any(numbers.get(other, 0) > number for other, number in position.behind.items()):
            return False
        own = {}
        if position.number:
            if numbers.get(topic, 0) >= position.number:
                return False
            own = {topic: position.number}
        self.numbers = raised(numbers, {**position.behind, **own})
        return True
