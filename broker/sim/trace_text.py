"""One line of text per event; `grep alice:7` gives the life of alice's seventh publication."""

import attrs

from broker.codec import decode_content
from broker.effects import Delivery
from broker.messages import Message, Progress, Publish


def describe_message(message: Message) -> str:
    """A message, on one line."""
    match message:
        case Publish(publisher=publisher, seq=seq, content=content):
            return f"Publish {publisher}:{seq} {decode_content(content)}"
        case Progress(received, sent):
            return f"Progress received={received} sent={sent}"
        case _:
            fields = attrs.asdict(message, recurse=False)
            told = " ".join(f"{name}={_short(value)}" for name, value in fields.items())
            return f"{type(message).__name__} {told}".rstrip()


def describe_delivery(delivery: Delivery) -> str:
    """A delivery, on one line."""
    return (
        f"delivers {delivery.publisher}:{delivery.seq} at position {delivery.position} "
        f"for {', '.join(delivery.subscriptions)}"
    )


def _short(value: object) -> str:
    text = ">".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
