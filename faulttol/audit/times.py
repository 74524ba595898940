"""How long things took: distributions that can be added up, wherever their parts were measured."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Self

import attrs

CLASSES_PER_DECADE: Final = 20
"""Classes are 12 % wide: what is read from them is right to within 6 %."""

SHORTEST_SECONDS: Final = 1e-6
"""What takes less counts as this."""


@attrs.frozen
class Times:
    """So many durations in each class; class 0 begins at a microsecond."""

    counts: Mapping[int, int] = attrs.field(factory=dict)
    longest: float = 0.0
    """In seconds, exactly."""

    @classmethod
    def sum_of(cls, parts: Iterable[Self]) -> Self:
        """Add up what was measured in several places."""
        counts: Counter[int] = Counter()
        longest = 0.0
        for part in parts:
            counts.update(part.counts)
            longest = max(longest, part.longest)
        return cls(dict(counts), longest)

    @property
    def total(self) -> int:
        """How many were measured."""
        return sum(self.counts.values())

    def quantile(self, share: float) -> float:
        """Return a duration, in seconds, that this share of all does not exceed."""
        rank = math.ceil(share * self.total)
        for number, count in sorted(self.counts.items()):
            rank -= count
            if rank <= 0:
                return min(self.longest, begin_of_class(number + 0.5))
        return self.longest

    def as_json(self) -> dict[str, float]:
        """Return what people ask about, in seconds."""
        quantiles = {f"p{percent}": self.quantile(percent / 100) for percent in (50, 90, 99)}
        return {"count": self.total, **quantiles, "longest": self.longest}


def begin_of_class(number: float) -> float:
    """Return the shortest duration, in seconds, of a class."""
    return SHORTEST_SECONDS * math.pow(10.0, number / CLASSES_PER_DECADE)
