"""`plait bench match` measures what it says, on a workload of the kind it describes."""

import json

from plait.scripts.bench.match import measure, report


def test_the_figures_can_be_written_down_and_shown() -> None:
    figures = measure(subscriptions=300, rounds=50, seed=1)

    assert json.loads(json.dumps(figures)) == figures
    assert figures["subscriptions"] == 300
    assert 0.2 < figures["matching_percent"] < 5
    assert figures["index_p50_us"] <= figures["index_p99_us"]
    assert figures["bytes_per_subscription"] > 0
    assert "scan of 300" in report(figures)
    assert "index of 30 " in report(figures)
