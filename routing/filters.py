"""Filters: what subscribers want and publishers announce.

`matches` asks about one content; `overlaps` and `covers` compare two filters without any content.
"""

from functools import cached_property

import attrs

from plait.routing.evaluation import Matcher, compile_condition
from plait.routing.expressions import Condition
from plait.routing.regions import Regions, regions_of
from plait.routing.sql_writer import write_sql
from plait.routing.values import Content


@attrs.frozen(weakref_slot=False, cache_hash=True, repr=False)
class Filter:
    """A condition on contents, whichever language it was written in.

    Filters of the same tree are equal. A filter may be the equal of another in effect only; use
    `covers` both ways to find out, as far as that can be found out.
    """

    condition: Condition

    def matches(self, content: Content) -> bool:
        """Whether the condition is true, rather than false or unknown, of a checked content."""
        return self._matcher(content)

    def overlaps(self, other: "Filter") -> bool:
        """Whether some content may match both. Never a false no; a false yes now and then."""
        theirs = other.regions
        for region in self.regions:
            for their_region in theirs:
                if region.overlaps(their_region):
                    return True
        return False

    def covers(self, other: "Filter") -> bool:
        """Whether every content that matches the other matches this. Never a false yes."""
        ours = self.regions
        for theirs in other.regions:
            for region in ours:
                if region.covers(theirs):
                    break
            else:
                return False
        return True

    @cached_property
    def sql(self) -> str:
        """The canonical SQL text; reading it gives an equal filter."""
        return write_sql(self.condition)

    def __str__(self) -> str:
        return self.sql

    def __repr__(self) -> str:
        return f"Filter({self.sql!r})"

    @cached_property
    def regions(self) -> Regions:
        """The normal form, made when first asked for."""
        return regions_of(self.condition)

    @cached_property
    def _matcher(self) -> Matcher:
        return compile_condition(self.condition)
