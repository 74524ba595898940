"""A publisher's window: it adapts to the overlay, and to nobody who reads nothing."""

import math

from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.broker.window import Window

LIMITS = Limits(
    publish_window=4,
    publish_window_bytes=1000,
    publish_rate_min=10,
    publish_bytes_rate_min=1000,
    publish_window_max=8,
    publish_window_bytes_max=3000,
    publish_burst=1,
)


def filled(count: int, size: int = 0) -> Window:
    window = Window(LIMITS)
    for _ in range(count):
        assert window.has_room
        window.add(size, now=0.0)
    return window


def test_a_window_has_room_for_so_many() -> None:
    window = filled(4)
    assert not window.has_room
    window.confirm(1)

    assert window.has_room


def test_a_window_has_room_for_so_many_bytes() -> None:
    window = filled(2, size=500)
    assert not window.has_room
    window.confirm(1)

    assert window.has_room


def test_beyond_a_full_window_publishing_goes_on_at_the_lowest_rate() -> None:
    window = filled(4)
    assert window.lets_in(0.0)
    window.add(0, now=5.0)

    assert not window.lets_in(5.09)
    assert window.lets_in(5.11)


def test_beyond_it_large_bodies_take_their_time_too() -> None:
    window = filled(2, size=500)
    window.add(500, now=5.0)

    assert not window.lets_in(5.49)
    assert window.lets_in(5.51)


def test_who_has_been_slow_may_make_up_for_it_but_not_for_all_of_it() -> None:
    window = Window(Limits(publish_window=0, publish_rate_min=10, publish_burst=3))
    accepted = 0
    while window.lets_in(100.0):
        window.add(0, now=100.0)
        accepted += 1

    assert accepted == 3


def test_there_is_an_end_to_it_in_number_and_in_bytes() -> None:
    many, large = filled(4), filled(2, size=500)
    for now in range(1, 5):
        many.add(0, now=now)
        large.add(500, now=now)

    assert many.opens_at == large.opens_at == math.inf
    many.confirm(1)
    large.confirm(1)
    assert 4.0 < many.opens_at < 4.2
    assert large.opens_at < math.inf


def test_a_publisher_reaches_its_end_only_after_who_is_slow_has_been_isolated() -> None:
    limits = DEFAULT_LIMITS
    slow_s = limits.stall_timeout_s + 2 * limits.heartbeat_interval_s
    beyond = limits.publish_rate_min * slow_s
    bytes_beyond = limits.publish_bytes_rate_min * slow_s

    assert limits.publish_window + beyond < limits.publish_window_max
    assert limits.publish_window_bytes + bytes_beyond < limits.publish_window_bytes_max
    assert limits.publish_window_max < limits.unconfirmed_publications_max
    assert limits.publish_window_bytes_max + limits.frame_bytes_max < limits.send_buffer_bytes_max
