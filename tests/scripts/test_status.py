"""`plait status` on what real brokers say, without processes: held publications are explained."""

import pytest
from click.testing import CliRunner

import scripts.commands.status
from broker.limits import Limits
from scripts.main import cli
from tests.conversation import LINK_DELAY_S, Conversation


@pytest.fixture
def _held_at_b2(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = Conversation(limits=Limits(status_held_max=2))
    overlay.brokers("b1", b2="b1")
    p, q = overlay.client("p", at="b2"), overlay.client("q", at="b1")
    for publisher in (p, q):
        publisher.advertises("TRUE")
    for name, at in (("s", "b1"), ("t", "b2")):
        overlay.client(name, at=at).subscribes("TRUE")
    overlay.settle()
    for x in range(3):
        p.publishes(x=x)
    overlay.settle(1.5 * LINK_DELAY_S)
    reports = [overlay.broker(name).status() for name in ("b1", "b2")]
    monkeypatch.setattr(scripts.commands.status, "run_async", lambda *_: reports)


@pytest.mark.usefixtures("_held_at_b2")
def test_what_is_held_is_explained_below_the_table() -> None:
    result = CliRunner().invoke(cli, ["status", "--broker", ":4000"])

    table, explained = result.output.splitlines()[:3], result.output.splitlines()[3:]
    assert [line.split()[-1] for line in table] == ["held", "0", "3"]
    assert explained == [
        "b2 holds p:1 until b1 has settled it, 0.0 ms so far",
        "b2 holds p:2 until b1 has settled it and behind p:1 (same publisher), 0.0 ms so far",
        "b2 holds 1 more",
    ]
