"""Lines of an `events.log`: who published, forwarded and was given which publication.

That file is for people to read along, and its format is older than this project. What proves
something is the history.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from plait.broker.codec import decode_content
from plait.broker.effects import Effect, SendMessage
from plait.broker.inputs import LinkId
from plait.broker.messages import Publish
from plait.routing.values import Content


def describe(content: Mapping[str, Any]) -> str:
    """Return the attributes as people write them for `plait pub`."""
    return " ".join(f"{printable(name)}={_value(value)}" for name, value in content.items())


def printable(text: str) -> str:
    """Return a text as it is, or as JSON has it if it could move a terminal's cursor."""
    return text if text.isprintable() else json.dumps(text)


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))


def event_line(kind: str, who: str, publisher: str, content: Content, seq: int) -> str:
    """Return `KIND who, publisher, topic, n`; what has no topic is described by its attributes."""
    topic = str(content["topic"]) if "topic" in content else describe(content)
    shown = topic if topic.isprintable() else ascii(topic)
    return f"{kind} {who}, {publisher}, {shown}, {seq}\n"


def forward_lines(broker_at: Callable[[LinkId], str], effects: Iterable[Effect]) -> Iterator[str]:
    """Yield a line for every publication that is sent on with these effects.

    What goes from one broker to another one that the same host plays is sent nowhere.
    """
    for effect in effects:
        if type(effect) is SendMessage and type(effect.message) is Publish:
            message = effect.message
            content = decode_content(message.content)
            broker = broker_at(effect.links[0])
            yield event_line("BroEvent", broker, message.publisher, content, message.seq)
