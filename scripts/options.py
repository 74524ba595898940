"""What several subcommands take: addresses, ranges of seeds, `--json`."""

import re
from collections.abc import Callable
from functools import wraps
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

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


def credential_options(command: Any) -> Any:
    """Add the options that say who this is, where brokers want to know; as one, `credentials`."""

    @wraps(command)
    def with_credentials(
        *arguments: Any,
        profile: Path | None,
        tls_ca: Path | None,
        tls_cert: Path | None,
        tls_key: Path | None,
        user: str,
        password_file: Path | None,
        token_file: Path | None,
        **others: Any,
    ) -> Any:
        if profile is not None and (tls_ca or tls_cert or user or token_file):
            raise click.UsageError("--profile has all that is to be shown: give it alone.")
        # `plait --help` is to need no network.
        from plait.broker.net.credentials import Credentials

        credentials = None if profile is None else Credentials.read(profile)
        if tls_ca is not None:
            credentials = Credentials(
                tls_ca=tls_ca,
                tls_cert=tls_cert,
                tls_key=tls_key,
                user=user,
                password_file=password_file,
                token_file=token_file,
            )
        elif tls_cert or tls_key or user or password_file or token_file:
            raise click.UsageError(
                "Say with --tls-ca which brokers may be told who this is: brokers-ca.pem."
            )
        return command(*arguments, credentials=credentials, **others)

    for option in (
        click.option("--token-file", type=_FILE, help="A file with a token to show."),
        click.option("--password-file", type=_FILE, help="A file with the password."),
        click.option("--user", default="", help="Whose password that is."),
        click.option("--tls-key", type=_FILE, help="Its key, if that is in another file."),
        click.option("--tls-cert", type=_FILE, help="A certificate to show, with its key."),
        click.option("--tls-ca", type=_FILE, help="Speak TLS with brokers of this authority."),
        click.option(
            "--profile",
            type=_FILE,
            envvar="PLAIT_PROFILE",
            help="A file with all that follows; `plait certs issue` makes it.",
        ),
    ):
        with_credentials = option(with_credentials)
    return with_credentials


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
    help="Where topics are managed under tno: at the lowest broker above all subscribers, at the "
    "root, or anywhere; the same on all brokers.",
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
            "--insecure",
            is_flag=True,
            help="With --hosts or --use-urls, do without certificates: whoever comes is believed.",
        ),
        click.option(
            "--hosts",
            metavar="FILE",
            help="Start brokers through ssh; lines of FILE are [user@]host[=address] [site ...].",
        ),
    ):
        command = option(command)
    return command
