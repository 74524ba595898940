"""Real brokers on loopback, in this process, and what a test needs to be nasty to them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.net.overlay import Overlay
from tests.patience import PATIENCE_S


@pytest.fixture
async def overlay(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Overlay]:
    """Brokers that are started as the test asks for them, and gone when it is over."""
    with trio.fail_after(PATIENCE_S):  # a test that hangs is to say where
        yield Overlay(nursery, tmp_path)
    nursery.cancel_scope.cancel()
