"""What `plait pub` publishes: contents and bodies, from the command line or from lines of JSON."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.routing.errors import ContentError
from plait.routing.values import Content, check_content
from plait.scripts.errors import BadInputError


def content_of_attributes(attributes: Sequence[str]) -> Content:
    """Read `ATTR=VALUE ...`; a value that is a JSON number, true, false or string is that."""
    content: dict[str, Any] = {}
    for attribute in attributes:
        name, equals, text = attribute.partition("=")
        if not equals or not name:
            raise BadInputError(f"{attribute!r} found, ATTR=VALUE expected, like price=120.5")
        if name in content:
            raise BadInputError(f"{attribute!r} found, but {name} has a value already")
        content[name] = _value(text)
    return _checked(content, "content")


def _value(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def content_of_json(text: str, place: str = "--content") -> Content:
    """Read a JSON object."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise BadInputError(f"{place}: a JSON object expected: {error}") from None
    if not isinstance(content, dict):
        raise BadInputError(f"{place}: a JSON object expected, {type(content).__name__} found")
    return _checked(content, place)


def _checked(content: dict[str, Any], place: str) -> Content:
    try:
        check_content(content)
    except ContentError as error:
        raise BadInputError(f"{place}: {error}") from None
    return content


def body_of(text: str | None) -> bytes:
    """Return the bytes of `--body`: the text itself, those of `@FILE`, or those that `@-` reads."""
    if text is None:
        return b""
    if not text.startswith("@"):
        return text.encode()
    if text == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise BadInputError(f"--body: {error}") from None
