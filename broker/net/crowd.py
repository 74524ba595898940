"""Whom to cut off when there are too many, or all together take too much: pure decisions."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from plait.broker.inputs import LinkId


def one_too_many(hosts: Mapping[LinkId, str]) -> LinkId:
    """Of connections, the oldest first, one to close: the oldest of whoever has most of them.

    So a machine that opens thousands closes its own, and who speaks at once has its turn before.
    """
    ((most, _),) = Counter(hosts.values()).most_common(1)
    return next(link for link, host in hosts.items() if host == most)


def hoarders(
    amounts: Mapping[LinkId, int], most: int, is_exempt: Callable[[LinkId], bool]
) -> Iterator[LinkId]:
    """Whom to cut off, who has most first, so that all together have at most so much."""
    total = sum(amounts.values())
    if total <= most:
        return
    for link in sorted(amounts, key=lambda link: -amounts[link]):
        if total <= most:
            return
        if not is_exempt(link):
            total -= amounts[link]
            yield link
