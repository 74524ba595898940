"""From a plain command into trio, and with one plain exception out of it."""

import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar, TypeVarTuple

import trio

from plait.broker.errors import BrokerError
from plait.routing.errors import RoutingError
from plait.scripts.errors import CommandError

FORESEEN: Final = (CommandError, BrokerError, RoutingError, OSError)
"""What is told in a sentence, the most telling first."""

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


def run_async(
    function: Callable[[*Arguments], Awaitable[Result]], *arguments: *Arguments
) -> Result:
    """Run `function` in trio; where tasks fail together, raise what is worth telling the user.

    That is Ctrl-C before anything else. A bug of ours is never hidden behind an error we foresaw:
    then the whole group goes on, with its traceback.
    """
    try:
        return trio.run(function, *arguments)
    except BaseExceptionGroup as group:
        errors = list(leaves(group))
        for error in errors:
            if isinstance(error, KeyboardInterrupt):
                raise error from None
        for foreseen in FORESEEN:
            for error in errors:
                if isinstance(error, foreseen) and _are_foreseen(errors):
                    raise error from None
        raise


async def end_by_signal(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    """Cancel a scope at Ctrl-C, or when asked to stop."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()


def _are_foreseen(errors: Iterable[BaseException]) -> bool:
    return all(isinstance(error, FORESEEN) for error in errors)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error
