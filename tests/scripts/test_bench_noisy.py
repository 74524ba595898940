"""`plait bench noisy` measures what it says. Nothing here looks at how fast anything is."""

import pytest

pytest.importorskip("psutil", reason="only `plait bench` needs it")

from plait.scripts.bench.noisy import HonestLoad, measure_slow, measure_vanishing, report


@pytest.mark.processes
@pytest.mark.parametrize("every_s", [None, 0.1])
async def test_what_is_due_is_delivered_beside_a_slow_subscriber(every_s: float | None) -> None:
    figures = await measure_slow(every_s, rate=50, seconds=0.5)

    assert figures["missing"] == 0
    assert figures["isolated_after_s"] is None
    assert figures["times"] == figures["beside_p99_ms"] / figures["before_p99_ms"]
    assert figures["times"] > 0


@pytest.mark.processes
async def test_clients_that_vanish_are_gone_in_the_end() -> None:
    figures = await measure_vanishing(clients=3)

    assert figures["gone_after_s"] is not None
    assert figures["longest_step_ms"] > 0


def test_a_figure_is_of_what_was_due_in_its_time() -> None:
    load = HonestLoad(rate=1)
    load.taken = [(0.5, 9.0), *((1.0 + n / 100, n / 1000) for n in range(100)), (2.0, 9.0)]

    assert load.p99_ms(1.0, 2.0) == 99.0


def test_a_report_says_what_was_wanted() -> None:
    slow = {"before_p99_ms": 2.0, "beside_p99_ms": 5.0, "times": 2.5, "isolated_after_s": 10.5}
    gone = {"clients": 4000, "before_step_ms": 3.0, "longest_step_ms": 40.0, "gone_after_s": 7.0}

    assert report({"nothing": slow}, gone).splitlines() == [
        "a subscriber that confirms nothing, isolated after 10.5 s:",
        "      2.0 ms  p99 from due to delivered, before",
        "      5.0 ms  beside it, from the second second on: 2.5 times as long (wanted: at most 3)",
        "4,000 clients that vanish at once, all gone after 7.0 s:",
        "      3.0 ms  the longest step of their broker, before",
        "     40.0 ms  from then on (wanted: at most 100)",
    ]
