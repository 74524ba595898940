"""The time of a host, which goes on only while the host does."""

from hypothesis import given
from hypothesis import strategies as st

from plait.broker.host.waking import WakingTime


def test_it_shows_what_the_clock_does_as_long_as_ticks_come_in_time() -> None:
    time = WakingTime()
    time.expect(11.0)

    assert [time.at(10.0), time.at(10.5), time.at(11.0)] == [10.0, 10.5, 11.0]


def test_no_more_passes_than_until_the_next_tick() -> None:
    time = WakingTime()
    time.expect(11.0)
    assert [time.at(500.0), time.at(501.0)] == [11.0, 11.0]
    time.expect(12.0)

    assert [time.at(501.5), time.at(502.5)] == [11.5, 12.0]


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_timer_that_fires_when_it_should_is_due(slept: float, wait: float) -> None:
    time = WakingTime()
    time.expect(1.0)
    now = time.at(1.0 + slept)
    time.expect(now + wait)

    assert time.at(time.when(now + wait)) >= now + wait
