"""What may go wrong in simulated runs, as options: read from a command line, and written to one."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs
import click

from plait.broker.sim.faults import Troubles
from plait.broker.sim.workloads import SHAPES, Workload

F = TypeVar("F", bound=Callable[..., Any])

_COUNT: Final = click.IntRange(min=0)
_PLAIN: Final = Workload()


@attrs.frozen
class Option:
    """An option, and the field of `Workload` or of its `Troubles` that it sets."""

    field: str
    kind: click.ParamType[Any] | None
    """None for a flag."""
    help: str
    name: str = ""
    """Other than the field's."""

    @property
    def flag(self) -> str:
        """As it is written."""
        return self.name or f"--{self.field.replace('_', '-')}"


WORKLOAD_OPTIONS: Final = (
    Option(
        "crashes",
        _COUNT,
        "Brokers killed in a run, at most; never more than δ before the tree is whole again.",
    ),
    Option("recoveries", _COUNT, "Of these, how many are started again, at most."),
    Option("freezes", _COUNT, "Times that a broker is stopped for a while; it counts as a crash."),
    Option("moves", _COUNT, "Times that a host hands a broker over to another one, at most."),
    Option("standbys", _COUNT, "Brokers for which another one stands by, at most."),
    Option(
        "client_crashes",
        _COUNT,
        "Clients killed, at most, publishers in the middle of what they publish at once; "
        "most come back in another life.",
    ),
    Option(
        "liars",
        _COUNT,
        "Brokers that lie now and then, at most; judged is what clients exchange without them, "
        "and that nobody is ended by it.",
    ),
    Option("brokers", click.IntRange(1, 200), "How many there are."),
    Option("shape", click.Choice(SHAPES), "Of the tree."),
)
TROUBLE_OPTIONS: Final = (
    Option(
        "drift",
        click.FloatRange(0, 50),
        "Percent by which a clock may run too fast or too slow; clocks begin anywhere.",
    ),
    Option("jumps", _COUNT, "Times that a clock goes forward, at most."),
    Option(
        "pauses",
        _COUNT,
        "Times that a machine stands still with its clock for 0.05 to 0.9 heartbeat timeouts, "
        "at most; others do while a neighbour crashes.",
    ),
    Option(
        "step_cost_ms",
        click.FloatRange(min=0),
        "Milliseconds that a node takes for a message, half as many to twice as many.",
        name="--step-cost",
    ),
    Option(
        "cuts",
        _COUNT,
        "Times that two nodes, or one and all others, do not reach each other, in one way or "
        "both, for 0.5 to 5 timeouts, at most; it counts as a crash.",
    ),
    Option("twins", _COUNT, "Brokers started a second time while they run, at most; each counts."),
    Option("pairs", _COUNT, "Times that two brokers far from each other are killed at once."),
    Option("bad_disks", None, "Who is started again may have an old state file, or none."),
)


def workload_options(command: F) -> F:
    """Add all of these to a command, which gets their values by the names of the fields."""
    for option in reversed((*WORKLOAD_OPTIONS, *TROUBLE_OPTIONS)):
        default = getattr(_PLAIN if option in WORKLOAD_OPTIONS else _PLAIN.troubles, option.field)
        if option.kind is None:
            add = click.option(option.flag, option.field, is_flag=True, help=option.help)
        else:
            shown = option.field in ("brokers", "shape")
            add = click.option(
                option.flag,
                option.field,
                type=option.kind,
                default=default,
                show_default=shown,
                help=option.help,
            )
        command = add(command)
    return command


def workload_of(values: Mapping[str, Any], *, is_limited: bool) -> Workload:
    """Return what these values of the options ask for."""
    return Workload(
        **{option.field: values[option.field] for option in WORKLOAD_OPTIONS},
        troubles=Troubles(**{option.field: values[option.field] for option in TROUBLE_OPTIONS}),
        is_limited=is_limited,
    )


def words_of(workload: Workload) -> list[str]:
    """Return the options that ask for this, those left out that are as usual."""
    words = []
    for options, have, usual in (
        (WORKLOAD_OPTIONS, workload, _PLAIN),
        (TROUBLE_OPTIONS, workload.troubles, _PLAIN.troubles),
    ):
        for option in options:
            value = getattr(have, option.field)
            if value == getattr(usual, option.field):
                continue
            told = str(value).removesuffix(".0")
            words.append(option.flag if option.kind is None else f"{option.flag} {told}")
    if not workload.is_limited:
        words.append("--beyond")
    return words
