"""What a client publishes, from the call until it is stable everywhere, or given up."""

import zlib
from collections import deque
from collections.abc import Sequence

from plait.broker.client.interests import Interests
from plait.broker.client.journal import Journal
from plait.broker.client.stream import Stream
from plait.broker.codec import encode_content
from plait.broker.effects import ReportConfirmed, ReportSkipped
from plait.broker.errors import NotAdvertisedError
from plait.broker.limits import Limits
from plait.broker.messages import Flag, Publish
from plait.broker.outbox import Outbox
from plait.broker.window import Window
from plait.routing.errors import shortened
from plait.routing.ids import NodeId
from plait.routing.values import Content, check_content


class Publishing:
    """The publications of one client, which counts them."""

    def __init__(
        self,
        node: NodeId,
        incarnation: int,
        limits: Limits,
        stream: Stream,
        interests: Interests,
        journal: Journal,
        outbox: Outbox,
    ) -> None:
        """Begin with none."""
        self._node = node
        self._incarnation = incarnation
        self._stream = stream
        self._interests = interests
        self._journal = journal
        self._outbox = outbox
        self.seq = 0
        """Of the last one."""
        self.handed_over = 0
        """The last that was ever sent over a connection, whatever became of it."""
        self.window = Window(limits)
        self.waiting: deque[Publish] = deque()
        """Those that are not in the stream, as the session does not stand."""
        self._may_flow = False

    @property
    def unconfirmed(self) -> int:
        """How many are not stable yet."""
        return len(self._stream.sent.kept) + len(self.waiting)

    @property
    def stable(self) -> int:
        """Up to which number all are stable, or given up."""
        return self.seq - self.unconfirmed

    def publish(
        self, now: float, content: Content, body: bytes, *, ordered: bool, urgent: bool
    ) -> int:
        """Take one; returns its number."""
        check_content(content)
        if not self._interests.allow(content):
            raise NotAdvertisedError(self._why_not(content))
        encoded = encode_content(content)  # may refuse; a number once taken has to be sent
        self.seq = seq = self.seq + 1
        flags = (0 if ordered else Flag.UNORDERED) | (Flag.URGENT if urgent else 0)
        publication = Publish(self._node, self._incarnation, seq, flags, encoded, body)
        self.window.add(len(body), now)
        if self._journal.is_kept:
            crc = zlib.crc32(body)
            self._journal.of_publication(
                "published", seq, content=dict(content), ordered=ordered, crc=crc
            )
        if self._may_flow:
            self._stream.publish(publication)
            if self._stream.is_connected:
                self.handed_over = seq
        else:
            self.waiting.append(publication)
        return seq

    def _why_not(self, content: Content) -> str:
        advertised = self._interests.advertised
        if not advertised:
            return f"{self._node} has advertised nothing yet: call advertise() and wait for it"
        return (
            f"{shortened(repr(dict(content)))} lies outside what {self._node} has advertised: "
            f"{shortened('; '.join(advertised))}"
        )

    def let_flow(self) -> None:
        """The session stands: from now on publications go into the stream."""
        self._may_flow = True
        while self.waiting:
            self._stream.publish(self.waiting.popleft())
        self.note_handed_over()

    def note_handed_over(self) -> None:
        """What is in the stream has been sent over a connection."""
        if self._stream.sent.kept:
            self.handed_over = self._stream.sent.kept[-1].seq

    def on_stable(self, publications: Sequence[Publish]) -> None:
        """Everybody who was owed these has them."""
        if not publications:
            return
        self.window.confirm(len(publications))
        last = publications[-1].seq
        if self._journal.is_kept:
            for publication in publications:
                self._journal.of_publication("confirmed", publication.seq)
        self._outbox.add(ReportConfirmed(last))
        self._interests.withdraw_up_to(last)

    def begin_anew(self, never_taken: Sequence[Publish]) -> None:
        """The session is lost. What may have been taken in it is given up.

        To send that again might deliver it twice, or after what others have got since. What was
        never handed over, or is known never to have been taken, waits for the next session.
        """
        first = never_taken[0].seq if never_taken else self.handed_over + 1
        kept = self._stream.sent.kept
        lost = [p for p in kept if p.seq < first and p.seq <= self.handed_over]
        self.waiting.extendleft(reversed(kept[len(lost) :]))
        self._may_flow = False
        self._skip(lost, "the session was lost")

    def give_up(self, reason: str) -> None:
        """This is the end: say of what is not confirmed that it never will be."""
        self._skip([*self._stream.sent.kept, *self.waiting], reason)

    def _skip(self, publications: Sequence[Publish], reason: str) -> None:
        """Who got them, nobody can tell."""
        self.window.confirm(len(publications))
        for publication in publications:
            seq = publication.seq
            self._journal.of_publication("skipped", seq, subscriber=None, reason=reason)
            self._outbox.add(ReportSkipped(seq, reason))
