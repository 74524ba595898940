"""Contents are checked before any filter is asked about them."""

from typing import Any

import pytest

from plait.routing.errors import RoutingError
from plait.routing.values import ContentError, check_content


def test_every_kind_of_value_is_accepted() -> None:
    check_content(
        {
            "class": "STOCK",
            "größe": -(2**63),
            "volume": 2**63 - 1,
            "price": 1.5,
            "limit": 1.7e308,
            "urgent": True,
            "note": "",
        }
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"": 1}, "attribute name '': expected a string that is not empty"),
        ({7: 1}, "attribute name 7: expected a string that is not empty"),
        (
            {"a": None},
            "attribute 'a': found a value of type NoneType, "
            "expected a string, integer, float or boolean",
        ),
        (
            {"a": [1]},
            "attribute 'a': found a value of type list, "
            "expected a string, integer, float or boolean",
        ),
        (
            {"a": 2**63},
            "attribute 'a': found 9223372036854775808, expected an integer of 64 bits",
        ),
        (
            {"a": float("nan")},
            "attribute 'a': found nan, expected a finite number; "
            "to say that there is no value, leave the attribute out",
        ),
        (
            {"a": float("-inf")},
            "attribute 'a': found -inf, expected a finite number; "
            "to say that there is no value, leave the attribute out",
        ),
        (
            {"a": "\ud800"},
            "attribute 'a': found half of a surrogate pair, expected text UTF-8 can hold",
        ),
        (
            {"\udfff": 1},
            "attribute name '\\udfff': found half of a surrogate pair, "
            "expected text UTF-8 can hold",
        ),
    ],
)
def test_an_error_names_the_attribute_what_was_found_and_what_is_expected(
    content: Any, message: str
) -> None:
    with pytest.raises(ContentError) as error:
        check_content(content)

    assert str(error.value) == message
    assert isinstance(error.value, RoutingError)
    assert isinstance(error.value, ValueError)


def test_a_subclass_of_a_value_type_is_refused() -> None:
    class Shouted(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    with pytest.raises(ContentError, match="type Shouted"):
        check_content({"a": Shouted("x")})
