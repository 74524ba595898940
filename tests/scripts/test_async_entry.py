"""Of several errors at once, the one that the user is told."""

import pytest
import trio

from plait.scripts.async_entry import run_async
from plait.scripts.errors import BadInputError, EnvironmentFailedError


async def fail(*errors: BaseException) -> None:
    """Raise them all, each in a task of its own, some deeper than others."""

    async def raise_it(error: BaseException) -> None:
        raise error

    async with trio.open_nursery() as nursery:
        for error in errors[:-1]:
            nursery.start_soon(raise_it, error)
        async with trio.open_nursery() as inner:
            inner.start_soon(raise_it, errors[-1])


def test_a_result_is_returned() -> None:
    async def answer(number: int) -> int:
        return number + 1

    assert run_async(answer, 41) == 42


def test_one_error_comes_alone() -> None:
    with pytest.raises(BadInputError, match="no such thing"):
        run_async(fail, BadInputError("no such thing"))


def test_an_interruption_comes_first() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_async(fail, BadInputError("bad"), KeyboardInterrupt(), ValueError("bug"))


def test_a_sentence_of_ours_comes_before_one_of_the_system() -> None:
    with pytest.raises(EnvironmentFailedError):
        run_async(fail, ConnectionError("reset"), EnvironmentFailedError("broker b1 ended"))


def test_a_bug_is_not_hidden_behind_an_expected_error() -> None:
    with pytest.raises(BaseExceptionGroup):
        run_async(fail, BadInputError("bad"), ValueError("bug"))
