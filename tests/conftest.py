"""What all tests share: hypothesis where machines differ in speed, options, what was skipped."""

from collections import Counter

import pytest
from hypothesis import settings

from tests.sweeps import Seeds

# A deadline would be an assertion on the clock.
settings.register_profile("plait", deadline=None)
settings.load_profile("plait")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run what takes minutes")
    parser.addoption(
        "--rewrite-golden", action="store_true", help="write down what is said in tests/golden now"
    )
    parser.addoption(
        "--rewrite-samples", action="store_true", help="let README and docs show what is so now"
    )


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Seeds:
    """The seeds of a sweep: a few, enough to notice what is broken, and with --slow many."""
    is_slow = request.config.getoption("--slow")
    return lambda few, many: range(many if is_slow else few)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes minutes; --slow runs it"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was skipped: nobody has to look at a hundred times the same reason."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
    )
    if reasons:
        what = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"skipped on purpose: {what}")
