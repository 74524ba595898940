"""`plait bench detection` measures what it says."""

import json

from plait.scripts.bench.detection import Figures, measure_times, measure_waits, report


def test_the_figures_can_be_written_down_and_shown() -> None:
    times = measure_times(30, 200, rounds=50)
    waits = measure_waits("ticker", overlays=3)
    figures = Figures(seed=0, small=times, large=times, waits=[waits])

    assert json.loads(json.dumps(figures.to_json())) == figures.to_json()
    assert 0 < times.exactly_conflicting_percent <= times.conflicting_percent < 100
    assert times.fast_p50_us <= times.fast_p99_us
    assert "30 adv., 200 subs." in report(figures)
    assert "ticker" in report(figures)


def test_the_exact_test_never_makes_more_wait_than_the_fast_one() -> None:
    waits = measure_waits("random", overlays=3)

    assert waits.publications > 300
    assert 0 < waits.exact <= waits.fast
