"""All that a session of `plait bench topics` has found out."""

from collections.abc import Sequence

import attrs

from plait.routing.topics.popularity import ALPHA, BETA
from plait.scripts.bench.topics_measure import Moving, MovingOnCores, Point, Study
from plait.scripts.bench.topics_swaps import Order, Shuffle


@attrs.frozen(kw_only=True)
class Results:
    """What was measured."""

    points: Sequence[Point] = ()
    moving: Sequence[Moving] = ()
    moving_on_cores: Sequence[MovingOnCores] = ()
    shuffles: Sequence[tuple[str, Shuffle]] = ()

    def of(self, study: Study, system: str = "", law: str | None = None) -> list[Point]:
        """The points of a study, in the order of what is varied."""
        found = [
            point
            for point in self.points
            if point.study is study and system in ("", point.system) and law in (None, point.law)
        ]
        return sorted(found, key=lambda point: point.x)

    def find(self, study: Study, system: str, x: float, law: str | None = None) -> Point | None:
        """One of them."""
        return next((point for point in self.of(study, system, law) if point.x == x), None)

    def moved(self, order: Order, *, alpha: float = ALPHA, beta: float = BETA) -> Moving | None:
        """Topics that move, with these settings, and popularity that stays as it is."""
        wanted = (order, alpha, beta, None)
        return next(
            (m for m in self.moving if (m.order, m.alpha, m.beta, m.shuffled_at) == wanted), None
        )
