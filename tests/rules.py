"""How tests name an ordering and where its managers are: `tno`, `tno@root`."""

from typing import TypedDict

from plait.routing.orderings import SUMMIT


class Rule(TypedDict):
    """What `Settings` have of it."""

    ordering: str
    managers: str


def rule_of(text: str) -> Rule:
    """An ordering, and where its managers are if that is not where they are usually."""
    ordering, _, managers = text.partition("@")
    return {"ordering": ordering, "managers": managers or SUMMIT}
