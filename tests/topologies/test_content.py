import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.topologies.content import (
    ContentTemplate,
    EventNumber,
    RandomNumber,
    Text,
    Value,
    read_content,
    render,
)
from plait.topologies.errors import ScriptError
from plait.topologies.language import Line


def read(text: str) -> ContentTemplate:
    line = Line("x", 1, text)
    content = read_content(line)
    line.end()
    return content


def test_values_are_those_a_publication_may_have() -> None:
    content = read('{"s": "a\\u00e9\\n", "i": -3, "f": 2.5e-1, "t": true, "u": false}')
    rendered = render(content, 1, random.Random(0))

    assert rendered == {"s": "aé\n", "i": -3, "f": 0.25, "t": True, "u": False}
    assert list(map(type, rendered.values())) == [str, int, float, bool, bool]


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
            lambda name: "${" not in name
        ),
        st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "${" not in text)
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.booleans(),
    ),
    st.booleans(),
)
def test_flat_json_objects_mean_what_they_mean_to_json(
    content: dict[str, Value], ensure_ascii: bool
) -> None:
    text = json.dumps(content, ensure_ascii=ensure_ascii)

    assert render(read(text), 1, random.Random(0)) == content


def test_n_is_the_number_of_the_event() -> None:
    content = read('{"n": ${n}, "id": "order-${ n }"}')

    assert content.attributes == (
        ("n", EventNumber()),
        ("id", Text(("order-", EventNumber()))),
    )
    assert render(content, 7, random.Random(0)) == {"n": 7, "id": "order-7"}


def test_random_is_whole_between_whole_bounds_and_includes_them() -> None:
    content = read('{"price": ${random(1, 3)}}')
    rng = random.Random(0)

    assert {render(content, 1, rng)["price"] for _ in range(100)} == {1, 2, 3}


def test_random_is_fractional_if_a_bound_is() -> None:
    price = render(read('{"price": ${random(1.0,3)}}'), 1, random.Random(0))["price"]

    assert isinstance(price, float)
    assert 1 <= price <= 3


def test_the_same_seed_renders_the_same() -> None:
    content = read('{"a": ${random(1,1000000)}, "b": "${random(1,1000000)}-${random(0.0,1.0)}"}')

    assert render(content, 1, random.Random(9)) == render(content, 1, random.Random(9))


def test_a_template_alone_in_quotes_is_a_number_too() -> None:
    assert read('{"a": "${n}", "b": "${random(2,5)}"}') == read('{"a": ${n}, "b": ${random(2,5)}}')


def test_a_template_is_written_as_it_is_read() -> None:
    text = '{"s": "IBM", "p": ${random(-1,2.5)}, "id": "a-${n}-${random(1,9)}", "ok": true}'

    assert str(read(text)) == text


def test_an_empty_object_is_a_publication_without_attributes() -> None:
    assert read("{ }") == ContentTemplate(())


def test_bounds_may_be_equal() -> None:
    assert read('{"a": ${random(4,4)}}').attributes == (("a", RandomNumber(4, 4)),)


VALUE = "a string, a number, true, false, ${n} or ${random(a,b)} with a <= b"
TEMPLATE = "${n} or ${random(a,b)} with a <= b"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", "1: found '[1]', expected a JSON object"),
        ("", "1: found end of line, expected a JSON object"),
        ("{", "2: found end of line, expected an attribute name in double quotes"),
        ("{a: 1}", "2: found 'a:', expected an attribute name in double quotes"),
        ('{"a" 1}', "6: found '1}', expected ':'"),
        ('{"a": 1 "b": 2}', "9: found '\"b\":', expected ',' or '}'"),
        ('{"a": 1', "8: found end of line, expected ',' or '}'"),
        ('{"a": 1} Interval', "10: found 'Interval', expected end of line"),
        ('{"a": 1, "a": 2}', "10: found 'a', expected an attribute name not used before"),
        ('{"": 1}', "2: found '', expected an attribute name not used before"),
        ('{"a": "\\x"}', "7: found '\"\\x\"', expected a JSON string"),
        ('{"a": "\\ud800"}', "7: found '\"\\ud800\"', expected a JSON string"),
        ('{"a": "b}', f"7: found '\"b}}', expected {VALUE}"),
        ('{"a": null}', f"7: found 'null}}', expected {VALUE}"),
        ('{"a": {"b": 1}}', f"7: found '{{\"b\":', expected {VALUE}"),
        ('{"a": NaN}', f"7: found 'NaN}}', expected {VALUE}"),
        ('{"a": 1e999}', f"7: found '1e999', expected {VALUE}"),
        ('{"a": 1-2}', f"7: found '1-2', expected {VALUE}"),
        ('{"a": 9223372036854775808}', f"7: found '9223372036854775808', expected {VALUE}"),
        ('{"a": ${m}}', f"7: found '${{m}}', expected {VALUE}"),
        ('{"a": ${random(5,1)}}', f"7: found '${{random(5,1)}}', expected {VALUE}"),
        ('{"a": ${random(-1e308,1e308)}}', "7: found '${random(-1e308,1e308)}', expected " + VALUE),
        ('{"a": "x${random(a,b)}"}', f"7: found '${{random(a,b)}}', expected {TEMPLATE}"),
        ('{"a": "x${n"}', f"7: found '${{n', expected {TEMPLATE}"),
    ],
)
def test_what_is_not_content_is_refused_where_it_stands(text: str, problem: str) -> None:
    with pytest.raises(ScriptError) as caught:
        read(text)

    assert str(caught.value) == f"x:1:{problem}"
