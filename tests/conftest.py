"""What all tests share: how hypothesis behaves on machines that differ in speed, and `--slow`."""

import pytest
from hypothesis import settings

# A deadline would be an assertion on the clock.
settings.register_profile("plait", deadline=None)
settings.load_profile("plait")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run what takes minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes minutes; --slow runs it"))
