"""What several subcommands take: addresses, ranges of seeds, `--json`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from plait.routing.conflicts import DETECTIONS, FAST
from plait.routing.orderings import MANAGERS, ORDERINGS_OF_HOSTS, SUMMIT

LOOPBACK: Final = "127.0.0.1"


class AddressType(click.ParamType[str]):
    """HOST:PORT; without a host it is this machine. Port 0 is only for who listens."""

    name = "HOST:PORT"

    def __init__(self, *, listens: bool = False) -> None:
        self._port_min = 0 if listens else 1

    _PATTERN: Final = re.compile(r"(?:(?P<host>\[[^\]]+\]|[^:]*):)?(?P<port>[0-9]+)")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Complete an address with what goes without saying."""
        match = self._PATTERN.fullmatch(value)
        if match is None or not self._port_min <= int(match["port"]) <= 65535:
            self.fail(f"{value!r} found, HOST:PORT expected, like 127.0.0.1:4000 or :4000.")
        return f"{match['host'] or LOOPBACK}:{match['port']}"


class SeedRangeType(click.ParamType[range]):
    """A:B, from A up to and without B; N alone is that one."""

    name = "A:B"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        """Parse a range of seeds."""
        if isinstance(value, range):
            return value
        match = re.fullmatch(r"([0-9]+):([0-9]+)", value)
        if match is None or int(match[1]) >= int(match[2]):
            self.fail(f"{value!r} found, A:B with A < B expected; 0:1000 are the first thousand.")
        return range(int(match[1]), int(match[2]))


def examples(*commands: str) -> str:
    """Return the end of a help text: commands to copy."""
    # The first character tells click to leave line breaks as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


def json_option(what: str) -> Callable[[Any], Any]:
    """Return the decorator for `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} as JSON.")


broker_option: Final = click.option(
    "--broker",
    "broker",
    type=AddressType(),
    required=True,
    help="The broker to connect to; :4000 is port 4000 of this machine.",
)

ordering_option: Final = click.option(
    "--ordering",
    type=click.Choice(list(ORDERINGS_OF_HOSTS)),
    help="What is promised, instead of what the configuration says.",
)
delta_option: Final = click.option(
    "--delta",
    type=click.IntRange(min=0),
    help="Crashes to survive, instead of what the configuration says.",
)
detection_option: Final = click.option(
    "--detection",
    type=click.Choice(DETECTIONS),
    default=FAST,
    show_default=True,
    help="How to find out what has to wait: quickly, or never in vain; the same on all brokers.",
)
managers_option: Final = click.option(
    "--managers",
    type=click.Choice(MANAGERS),
    default=SUMMIT,
    show_default=True,
    help="Where topics are managed under tno: at the lowest broker above all subscribers, or at "
    "the root; the same on all brokers.",
)
out_option: Final = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="The run directory; runs/NAME-TIME if it is not given.",
)


def machine_options(command: Any) -> Any:
    """Add the options that say where brokers run."""
    for option in (
        click.option(
            "--use-urls",
            is_flag=True,
            help="Let brokers listen where their URLs say, instead of on free ports.",
        ),
        click.option(
            "--remote-plait",
            default="plait",
            show_default=True,
            envvar="PLAIT_REMOTE",
            help="The command that is plait on those machines.",
        ),
        click.option(
            "--ssh",
            default="ssh",
            show_default=True,
            envvar="PLAIT_SSH",
            help="The command that reaches them.",
        ),
        click.option(
            "--hosts",
            metavar="FILE",
            help="Start brokers through ssh; lines of FILE are [user@]host[=address] [site ...].",
        ),
    ):
        command = option(command)
    return command
