"""What `plait pub` takes as content and as body."""

from pathlib import Path

import pytest

from plait.scripts.contents import body_of, content_of_attributes, content_of_json
from plait.scripts.errors import BadInputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("IBM", "IBM"),
        ("120", 120),
        ("-1.5e3", -1500.0),
        ("true", True),
        ('"120"', "120"),
        ("", ""),
        ("a=b", "a=b"),
        ("null", "null"),
        ("[1]", "[1]"),
        ("12:30", "12:30"),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: object) -> None:
    content = content_of_attributes([f"x={text}"])

    assert content == {"x": value}
    assert type(content["x"]) is type(value)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (["price"], "'price' found, ATTR=VALUE expected"),
        (["=3"], "'=3' found, ATTR=VALUE expected"),
        (["a=1", "a=2"], "a has a value already"),
        ([f"a={10**30}"], "content: "),
    ],
)
def test_what_is_no_content_is_refused_with_what_was_expected(
    attributes: list[str], words: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        content_of_attributes(attributes)

    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": null}', '{"a": {}}', '{"a": NaN}'])
def test_what_is_no_json_content_names_its_place(text: str) -> None:
    with pytest.raises(BadInputError, match=r"^--content: "):
        content_of_json(text)


def test_a_body_is_a_text_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x00\xff")

    assert body_of(None) == b""
    assert body_of("grüße") == "grüße".encode()
    assert body_of(f"@{tmp_path / 'picture'}") == b"\x00\xff"


def test_a_body_that_cannot_be_read_is_bad_input() -> None:
    with pytest.raises(BadInputError, match=r"^--body: .*no-such-file"):
        body_of("@no-such-file")
