"""Two counters per link say what is confirmed and what is stable."""

import pytest

from plait.faulttol.stability import (
    CountError,
    Lag,
    LeafStream,
    StreamAbove,
    StreamBelow,
    Unstable,
)


def test_a_stream_below_yields_what_lacks_nothing_more() -> None:
    stream: StreamBelow[Unstable[str]] = StreamBelow()
    first, second = Unstable("p1", missing=1), Unstable("p2", missing=2)
    stream.append(first)
    stream.append(second)

    assert list(stream.confirm_up_to(2)) == [first]
    assert second.missing == 1
    assert stream.confirmed_count == 2


def test_the_stable_counter_waits_for_earlier_publications() -> None:
    stream: StreamBelow[Unstable[str]] = StreamBelow()
    first, second = Unstable("p1", missing=1), Unstable("p2", missing=1)
    stream.append(first)
    stream.append(second)
    list(stream.confirm_up_to(2))

    second.stable = True
    stream.advance_stable()
    assert stream.stable_count == 0
    first.stable = True
    stream.advance_stable()
    assert stream.stable_count == 2


def test_the_confirmed_counter_waits_for_earlier_publications() -> None:
    stream: StreamAbove[Unstable[str]] = StreamAbove()
    first, second = Unstable("p1", missing=1), Unstable("p2", missing=0)
    stream.append(first)
    stream.append(second)

    stream.advance_confirmed()
    assert stream.confirmed_count == 0
    first.missing = 0
    stream.advance_confirmed()
    assert stream.confirmed_count == 2
    assert list(stream.stable_up_to(2)) == [first, second]
    assert stream.stable_count == 2


@pytest.mark.parametrize("count", [-1, 0, 3])
def test_a_neighbour_that_counts_wrongly_is_caught(count: int) -> None:
    below: StreamBelow[Unstable[str]] = StreamBelow()
    above: StreamAbove[Unstable[str]] = StreamAbove()
    for name in ("p1", "p2"):
        below.append(Unstable(name, missing=1))
        above.append(Unstable(name))
    above.advance_confirmed()
    list(below.confirm_up_to(1))
    list(above.stable_up_to(1))

    with pytest.raises(CountError, match="expected"):
        list(below.confirm_up_to(count))
    with pytest.raises(CountError, match="expected"):
        list(above.stable_up_to(count))


def test_a_leaf_keeps_what_is_not_stable() -> None:
    stream: LeafStream[str] = LeafStream()
    for name in ("p1", "p2", "p3"):
        stream.append(name)

    assert stream.stable_up_to(2) == ["p1", "p2"]
    assert (stream.count, stream.stable_count, stream.kept) == (3, 2, ["p3"])
    with pytest.raises(CountError, match="1 publications stable, between 2 and 3 expected"):
        stream.stable_up_to(1)


def test_a_lag_is_the_age_of_the_first_that_is_not_confirmed() -> None:
    lag = Lag()
    assert lag.look(sent=0, confirmed=0, now=1.0) == 0.0
    assert lag.look(sent=3, confirmed=0, now=2.0) == 0.0
    assert lag.look(sent=5, confirmed=2, now=3.0) == 1.0
    assert lag.look(sent=5, confirmed=3, now=4.0) == 1.0
    assert lag.look(sent=9, confirmed=4, now=6.0) == 3.0
    assert lag.look(sent=9, confirmed=9, now=7.0) == 0.0
    assert lag.look(sent=9, confirmed=9, now=9.0) == 0.0


def test_a_lag_forgets_streams_that_begin_anew() -> None:
    lag = Lag()
    lag.look(sent=5, confirmed=0, now=0.0)

    assert lag.look(sent=2, confirmed=0, now=9.0) == 0.0
    assert lag.look(sent=2, confirmed=0, now=10.0) == 1.0
