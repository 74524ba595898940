from hypothesis import given
from hypothesis import strategies as st

from plait.routing.bits import numbers_in


@given(st.sets(st.integers(0, 300)))
def test_the_members_come_back_in_ascending_order(members: set[int]) -> None:
    assert list(numbers_in(sum(1 << member for member in members))) == sorted(members)
