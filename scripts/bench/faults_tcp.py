"""How long anybody waits, over TCP, when one broker of several is killed in the middle of the load.

It is what `plait chaos` does, so that detection is in it: ten publishers at a steady rate, ten
subscribers, seven brokers, and the longest time from any publication to any delivery of it.
"""

import tempfile
from pathlib import Path
from typing import Final

import attrs

from plait.scripts.async_entry import run_async
from plait.scripts.chaos import Blow, perform, random_attack

BROKERS: Final = 7


@attrs.frozen(kw_only=True)
class Stall:
    """What one crash did to those who were waiting."""

    what: str
    """Who was killed."""
    stall_ms: float
    calm_ms: float
    """The longest that anybody had waited before."""
    published: int
    delivered: int
    failures: int
    """Violations, and whatever did not come to its end."""


def measure_stall(seed: int) -> Stall:
    """Kill a broker of a random overlay of processes."""
    attack = random_attack(seed, brokers=BROKERS, delta=1, blow=Blow.KILL)
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as directory:
        outcome = run_async(perform, attack, Path(directory))
    return Stall(
        what=attack.describe(),
        stall_ms=outcome.stall_ms,
        calm_ms=outcome.calm_ms,
        published=outcome.published,
        delivered=outcome.delivered,
        failures=len(outcome.failures),
    )
