"""When topics are to change places: what is published often visits few managers if it is high.

A manager sees what passes it on its way up. It compares how much of that is on a lower topic with
how much is on its own, by f(x) = exp(-1 / (α (x + 1))), which goes from almost 0 to 1: if the lower
one has more than β more, the two are to change places (section 5 of the technical report).

As published x is the number of a topic's last publication. Then f is as good as 1 for all topics
before long, and nothing moves any more, whatever is popular by then: with α 0.1 and β 0.2 a topic
with 44 publications is never passed again. By `rate` x is how many of the last `WINDOW` that passed
were on the topic, on average: what was popular long ago does not count. A machine has no clock, so
that is counted in publications and not in seconds.
"""

import math
from collections.abc import Collection
from typing import Final

from plait.routing.topics.protocol import Topic

FIXED: Final = "fixed"
COUNT: Final = "count"
RATE: Final = "rate"

ALPHA: Final = 0.1
BETA: Final = 0.2
"""As the report recommends."""
WINDOW: Final = 64
_UNIT: Final = 1 << 16
"""Of a rate, which is kept as a whole number: it is in step logs."""


def is_due(lower: float, own: float) -> bool:
    """Whether a lower topic, of which so much was published, is to be in this one's place."""
    return weight(lower) > weight(own) + BETA


def weight(x: float) -> float:
    """Return f(x)."""
    return math.exp(-1 / (ALPHA * (x + 1)))


def passing(rates: dict[Topic, int], topic: Topic, known: Collection[Topic]) -> None:
    """Note that a publication on a topic has passed; of others than are known nothing is kept."""
    for other in list(rates):
        rates[other] -= rates[other] // WINDOW
        if not rates[other] or other not in known:
            del rates[other]
    rates[topic] = rates.get(topic, 0) + _UNIT


def rate_of(rates: dict[Topic, int], topic: Topic) -> float:
    """How many of the last `WINDOW` were on this topic, on average."""
    return rates.get(topic, 0) / _UNIT
