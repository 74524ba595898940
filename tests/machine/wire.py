"""What hosts tell each other of links and logs, through the bytes that they would send."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import attrs

from plait.broker.codec import FrameDecoder, encode
from plait.broker.host.attaching import AttachmentReader, attachment_messages
from plait.broker.log_codec import LogReader, LogWriter
from plait.broker.machine.rebuild import Attachment, Told
from plait.faulttol.steplog import LogPart, StepLog
from plait.routing.ids import NodeId


def comparable(attachment: Attachment) -> dict[str, Any]:
    """All of an attachment that a rebuild reads, in a form that can be compared."""
    fields = {field.name: getattr(attachment, field.name) for field in attrs.fields(Attachment)}
    return fields | {
        "controls": [(c.step, c.position, c.message, c.key) for c in attachment.controls],
        "advertisements": list(map(_told, attachment.advertisements)),
        "subscriptions": list(map(_told, attachment.subscriptions)),
        "logs": {node: _log(log) for node, log in attachment.logs.items()},
    }


def _told(told: Told[Any]) -> tuple[Any, ...]:
    entry = told.entry
    # By which hop it lies is the receiver's to say.
    names = (entry.id, entry.client, entry.filter, entry.path, entry.ordered)
    return (*names, told.told_in, told.withdrawn_in)


def _log(log: StepLog) -> tuple[Any, ...]:
    return log.base, log.entries, log.neighbours_at_base()


def through_bytes(attachment: Attachment) -> Attachment:
    """The same, sent and received."""
    stream = b"".join(map(encode, attachment_messages(attachment, 3)))
    reader = AttachmentReader()
    answers = [reader.feed(message) for message in FrameDecoder().feed(stream)]
    received = answers.pop()
    assert received is not None
    assert answers == [None] * len(answers)
    assert reader.term == 3
    assert comparable(received) == comparable(attachment)
    return received


class Lines:
    """What hosts tell each other of logs, each pair over a connection of its own."""

    def __init__(self) -> None:
        self._ends: dict[tuple[NodeId, NodeId], tuple[LogWriter, LogReader]] = defaultdict(
            lambda: (LogWriter(), LogReader())
        )
        self.bytes = 0

    def tell(
        self, sender: NodeId, receiver: NodeId, parts: Mapping[NodeId, LogPart]
    ) -> dict[NodeId, LogPart]:
        """What of these parts arrives."""
        writer, reader = self._ends[sender, receiver]
        data = writer.write(parts)
        self.bytes += len(data)
        return reader.read(data)

    def end(self, sender: NodeId, receiver: NodeId) -> None:
        """A connection has ended."""
        self._ends.pop((sender, receiver), None)
