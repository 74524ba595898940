"""The world of clients."""

import pytest

from tests.client.world import JoiningMachine, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("broker.machine.rebuild.Machine", JoiningMachine)
    return World()
