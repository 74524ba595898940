"""Templates of what a stream publishes: a JSON object with `${n}` and `${random(a,b)}` in it.

A template may stand for a value (`"price": ${random(90,110)}`), which makes it a number, or
within a string (`"id": "order-${n}"`). In quotes and alone (`"${n}"`) it is a number too: JSON
editors insist on the quotes, and nobody compares prices as text.
"""

import json
import math
import random
import re
from typing import Final

import attrs

from plait.topologies.errors import Problem, ScriptError
from plait.topologies.language import Line, quoted

Value = str | int | float | bool

CLOSING: Final = re.compile(r"\}")
STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
LITERAL: Final = re.compile(r"true\b|false\b|-?[0-9][0-9.eE+-]*")
WHOLE: Final = re.compile(r"-?[0-9]+")
DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
TEMPLATE: Final = re.compile(r"\$\{[^}]*\}")
EVENT_NUMBER: Final = re.compile(r"\$\{\s*n\s*\}")
RANDOM_NUMBER: Final = re.compile(r"\$\{\s*random\s*\(([^,]*),([^)]*)\)\s*\}")

TEMPLATES_EXPECTED: Final = "${n} or ${random(a,b)} with a <= b"
VALUE_EXPECTED: Final = f"a string, a number, true, false, {TEMPLATES_EXPECTED}"

# What the wire and every language of a client can hold.
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1


@attrs.frozen
class EventNumber:
    """The number of the event in its stream, from 1."""

    def __str__(self) -> str:
        """Render as in a script."""
        return "${n}"


@attrs.frozen
class RandomNumber:
    """A number between two bounds, both included; whole if both bounds are."""

    low: int | float
    high: int | float

    def __str__(self) -> str:
        """Render as in a script."""
        return f"${{random({self.low},{self.high})}}"


Template = EventNumber | RandomNumber


@attrs.frozen
class Text:
    """A string with templates in it."""

    parts: tuple[str | Template, ...]

    def __str__(self) -> str:
        """Render as in a script, without the quotes."""
        return "".join(map(str, self.parts))


@attrs.frozen
class ContentTemplate:
    """Attribute names and what their values are made from, in the order written."""

    attributes: tuple[tuple[str, Value | Template | Text], ...]

    def __str__(self) -> str:
        """Render as in a script."""
        pairs = (f"{_json(name)}: {_rendered(value)}" for name, value in self.attributes)
        return f"{{{', '.join(pairs)}}}"


def _rendered(value: Value | Template | Text) -> str:
    match value:
        case EventNumber() | RandomNumber():
            return str(value)
        case Text():
            return _json(str(value))
        case _:
            return _json(value)


def _json(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


def render(template: ContentTemplate, n: int, rng: random.Random) -> dict[str, Value]:
    """Return the content of event number `n` of a stream."""
    return {name: _value(part, n, rng) for name, part in template.attributes}


def _value(part: Value | Template | Text, n: int, rng: random.Random) -> Value:
    match part:
        case EventNumber():
            return n
        case RandomNumber(int(low), int(high)):
            return rng.randint(low, high)
        case RandomNumber(low, high):
            return rng.uniform(low, high)
        case Text(parts):
            return "".join(str(_value(piece, n, rng)) for piece in parts)
        case _:
            return part


def read_content(line: Line) -> ContentTemplate:
    """Read a JSON object of scalars and templates, and leave the line behind it."""
    attributes: dict[str, Value | Template | Text] = {}
    _punctuation(line, "{", "a JSON object")
    if line.take(CLOSING):
        return ContentTemplate(())
    while True:
        at = line.here
        name = _string(line, "an attribute name in double quotes")
        if not name or name in attributes:
            raise ScriptError([Problem(at, quoted(name), "an attribute name not used before")])
        _punctuation(line, ":", "':'")
        attributes[name] = _attribute_value(line)
        if _punctuation(line, ",}", "',' or '}'") == "}":
            return ContentTemplate(tuple(attributes.items()))


def _punctuation(line: Line, characters: str, expected: str) -> str:
    mark = line.take(re.compile(f"[{characters}]"))
    if mark is None:
        raise line.wrong(expected)
    return mark[0]


def _string(line: Line, expected: str) -> str:
    at = line.here
    token = line.take(STRING)
    if token is None:
        raise line.wrong(expected)
    try:
        text = json.loads(token[0])
        text.encode()  # JSON may spell half a character, which nobody could send
    except ValueError:
        raise ScriptError([Problem(at, quoted(token[0]), "a JSON string")]) from None
    assert isinstance(text, str)
    return text


def _attribute_value(line: Line) -> Value | Template | Text:
    at = line.here
    if line.text.startswith('"', line.offset):
        text = _string(line, VALUE_EXPECTED)
        try:
            return _with_templates(text)
        except ValueError as error:
            raise ScriptError([Problem(at, quoted(str(error)), TEMPLATES_EXPECTED)]) from None
    token = line.take(TEMPLATE) or line.take(LITERAL)
    if token is None:
        raise line.wrong(VALUE_EXPECTED)
    try:
        return _template(token[0]) if token[0].startswith("$") else _scalar(token[0])
    except ValueError:
        raise ScriptError([Problem(at, quoted(token[0]), VALUE_EXPECTED)]) from None


def _with_templates(text: str) -> str | Template | Text:
    """Return the parts of a string; raise ValueError with the one that is no template."""
    parts: list[str | Template] = []
    end = 0
    while (start := text.find("${", end)) >= 0:
        token = TEMPLATE.match(text, start)
        if token is None:
            raise ValueError(text[start:])
        parts += [text[end:start], _template(token[0])]
        end = token.end()
    parts = [part for part in [*parts, text[end:]] if part != ""]
    match parts:
        case []:
            return ""
        case [alone]:
            return alone
        case _:
            return Text(tuple(parts))


def _template(token: str) -> Template:
    if EVENT_NUMBER.fullmatch(token):
        return EventNumber()
    bounds = RANDOM_NUMBER.fullmatch(token)
    if bounds is None:
        raise ValueError(token)
    try:
        low, high = _number(bounds[1].strip()), _number(bounds[2].strip())
    except ValueError:
        raise ValueError(token) from None
    if low > high or not math.isfinite(high - low):
        raise ValueError(token)
    return RandomNumber(low, high)


def _scalar(literal: str) -> int | float | bool:
    match literal:
        case "true":
            return True
        case "false":
            return False
        case _:
            return _number(literal)


def _number(literal: str) -> int | float:
    """Return a number that the wire can hold; raise ValueError if it is none."""
    if WHOLE.fullmatch(literal) and INTEGER_MIN <= int(literal) <= INTEGER_MAX:
        return int(literal)
    if not WHOLE.fullmatch(literal) and DECIMAL.fullmatch(literal):
        number = float(literal)
        if math.isfinite(number):
            return number
    raise ValueError(literal)
