"""The `plait` command: names its subcommands, loads the one asked for, keeps the exit codes.

Exit codes: 0 done and clean; 1 a guarantee was violated; 2 bad usage or bad input; 3 the
environment failed. Beside those, 130 is Ctrl-C (`interrupts.py`), 141 a reader that went away, as
for any program in a shell, and 70 is a bug of ours, the only thing that shows a traceback.

Only what a subcommand needs is imported, and only when it is called: a broker starts without the
terminal tables, and `plait --help` without the network.
"""

import sys
import traceback
import warnings
from typing import Any, Final

import click

from plait.broker.errors import (
    AddressError,
    BadNameError,
    BrokerError,
    NotAdvertisedError,
    NoTopicError,
    RefusedError,
    UnusableFileError,
)
from plait.routing.errors import RoutingError, TrapWarning
from plait.scripts.command_group import CommandsByName
from plait.scripts.errors import (
    BadInputError,
    CommandError,
    EnvironmentFailedError,
    ProblemsFoundError,
)
from plait.scripts.interrupts import INTERRUPTED, end_at_once_when_interrupted, interrupts_raised
from plait.scripts.options import examples
from plait.scripts.standard_streams import (
    STANDARD_OUTPUT,
    give_up_standard_output,
    prepare_standard_streams,
)

# In the order in which people meet them; each has a module of its name in scripts/commands/.
COMMANDS: Final[dict[str, str]] = {
    "run": "Launch an overlay, execute a script, check what happened.",
    "up": "The same, with a prompt that takes script commands.",
    "events": "Follow what happens in a run.",
    "check": "Check a configuration and a script, or rules, and run nothing.",
    "can": "Who may do what by a file of rules, and by which line.",
    "conflicts": "What is going to wait where, and why; runs nothing.",
    "format": "Write a configuration or script in its canonical form.",
    "topology": "Build overlays of well-known shapes, and draw them.",
    "simulate": "Many random overlays in virtual time, every guarantee checked.",
    "chaos": "Kill or restart brokers under load, every guarantee checked.",
    "broker": "Run one broker.",
    "pub": "Publish from the shell.",
    "sub": "Subscribe from the shell.",
    "detect": "Look for a pattern, or at what those have found who did.",
    "certs": "Authorities, certificates and tokens for an overlay.",
    "users": "Who may connect with a password.",
    "status": "Every broker: who plays it, queues, what it holds and why.",
    "rank": "Have a topic rank above another one, where topics have an order.",
    "move": "Have a broker played by another process, while all goes on.",
    "audit": "The guarantees of any number of runs, checked on Spark.",
    "verify-order": "Order among topics, judged by stamps alone.",
    "bench": "Measure.",
    "sbom": "What this installation is made of, and under which licences.",
    "completion": "Print the completion script of a shell.",
}

READER_GONE: Final = 141
OUR_BUG: Final = 70


class Plait(CommandsByName):
    """All subcommands; whatever ends one early becomes a sentence and an exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(package="plait.scripts.commands", lines=COMMANDS, **attributes)

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Read the command line; help and the version are printed while that is done."""
        try:
            return super().make_context(*arguments, **extra)
        except OSError as error:
            sys.exit(_told(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            with interrupts_raised():
                return super().invoke(ctx)
        except ProblemsFoundError as error:
            # No program's name before the file's: editors and people read this as it is.
            click.echo(error, err=True)
            ctx.exit(error.exit_code)
        except CommandError as error:
            _complain(str(error))
            ctx.exit(error.exit_code)
        except RoutingError as error:
            _complain(str(error))
            ctx.exit(BadInputError.exit_code)
        except BrokerError as error:
            _complain(str(error))
            ctx.exit(_exit_code_of(error))
        except OSError as error:
            ctx.exit(_told(error))
        except KeyboardInterrupt:
            _complain("interrupted")
            ctx.exit(INTERRUPTED)


def _told(error: OSError) -> int:
    """Tell of what the machine did not do, and return the exit code."""
    is_reader_gone = isinstance(error, BrokenPipeError)  # `plait sub ... | head`
    if is_reader_gone or error.filename == STANDARD_OUTPUT:
        give_up_standard_output()
    if is_reader_gone:
        return READER_GONE
    _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return EnvironmentFailedError.exit_code


def _exit_code_of(error: BrokerError) -> int:
    is_bad_input = isinstance(
        error, AddressError | BadNameError | NotAdvertisedError | NoTopicError | UnusableFileError
    ) or (isinstance(error, RefusedError) and error.code == "bad-filter")
    return BadInputError.exit_code if is_bad_input else EnvironmentFailedError.exit_code


def _complain(sentence: str) -> None:
    if sentence:
        click.echo(f"plait: {sentence}", err=True)


EXIT_CODES: Final = """

Exit codes: 0 done and clean, 1 a guarantee was violated, 2 bad usage or bad input, 3 the
environment failed, 130 interrupted by Ctrl-C."""


@click.group(
    cls=Plait,
    epilog=examples(
        "plait run topologies/demo.conf topologies/demo.script",
        "plait simulate --seeds 0:200",
        "plait broker --name b1 --listen 127.0.0.1:4000",
        """plait sub --broker 127.0.0.1:4000 "symbol = 'IBM' AND price > 100\"""",
        "plait pub --broker 127.0.0.1:4000 symbol=IBM price=120.5",
    )
    + EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="plait", message="%(prog)s %(version)s")
def cli() -> None:
    """Content-based publish/subscribe over a tree of brokers.

    `plait COMMAND --help` explains each command, with examples.
    """


def main() -> None:
    """Run the command line and exit."""
    end_at_once_when_interrupted()
    prepare_standard_streams()
    # Commands warn of such filters themselves, where people wrote them.
    warnings.simplefilter("ignore", TrapWarning)
    try:
        cli(prog_name="plait")
    except Exception:
        traceback.print_exc()
        _complain("this is a bug in plait: please report it, with the lines above")
        sys.exit(OUR_BUG)


if __name__ == "__main__":
    main()
