"""The world of clients."""

import pytest

from tests.client.world import World


@pytest.fixture
def world() -> World:
    return World()
