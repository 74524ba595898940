"""`plait bench`: the figures of this machine. What measures is in scripts/bench/."""

from importlib.util import find_spec
from typing import Any, Final

import click

from plait.scripts.command_group import CommandsByName
from plait.scripts.errors import EnvironmentFailedError
from plait.scripts.options import examples

MEASUREMENTS: Final = {
    "match": "The matching index, compared with a scan of all subscriptions.",
    "detection": "The detection of conflicts, and how many publications wait in vain.",
    "audit": "The audit of generated histories: time, memory, growth.",
    "start": "The start of an overlay, compared with that of Python.",
    "overlay": "Brokers over TCP, compared with a relay that parses nothing.",
    "order": "The orderings: delays, messages and throughput, beside one another.",
    "topics": "Order among topics, beside the document that it comes from.",
    "noisy": "What clients that read nothing, or vanish by thousands, do to others.",
    "patterns": "Detectors of patterns: their speed, and whether two find the same.",
    "faults": "Brokers that fail: outages, what they cost, recoveries, losses.",
}


class Measurements(CommandsByName):
    """All measurements."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(
            package="plait.scripts.bench", lines=MEASUREMENTS, extra="bench", **attributes
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a measurement, from a clone: the wheel has none."""
        if find_spec("plait.scripts.bench") is None:
            raise EnvironmentFailedError(
                "measurements come with the source: clone it, and run ./scripts/demo there once"
            )
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=Measurements,
    epilog=examples("plait bench match", "plait bench overlay --help"),
)
def command() -> None:
    """Measure, and print the figures with what they are compared with.

    Every figure is a ratio of two things measured in one run, so that it says something about
    plait and not about the machine. Close other programs first.
    """
