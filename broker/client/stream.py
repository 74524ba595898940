"""What passes between a client and its broker, in steps, and what of it is kept.

Everything that the client emits between two calls of its driver is a *batch*, closed by the number
of the step. Publications are kept until they are stable, all else (`Control`) until the broker has
said that it will never need it again. So one number, the last step that was taken, says what has to
be sent again, after a lost connection as after a crash.

What comes from the broker is kept until the end of its step has come, and taken whole.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from plait.broker.errors import RemoteProtocolError
from plait.broker.inputs import LinkId
from plait.broker.limits import Limits
from plait.broker.log_codec import LogReader
from plait.broker.machine.neighbours import Control, Marks
from plait.broker.machine.rebuild import Attachment, StreamEnd, Told, Travelling
from plait.broker.messages import EndOfStep, Message, NodeKind, Progress, Publish, bytes_of
from plait.broker.outbox import Outbox
from plait.faulttol.stability import LeafStream
from plait.faulttol.steplog import StepLog
from plait.routing.ids import NodeId
from plait.routing.tables import Advertisement, Subscription

STEP_BYTES: Final = 64 << 10
"""Of publications in one step, or a single larger one: a broker takes a batch in one piece, for
which others have to wait."""


class Stream:
    """Both directions of a client's link to its broker."""

    def __init__(self, outbox: Outbox, limits: Limits) -> None:
        """Begin with nothing exchanged, and no connection."""
        self._outbox = outbox
        self._limits = limits
        self._log_reader = LogReader(limits)
        """Of what is told over this connection."""
        self._link: LinkId | None = None
        self.step = 0
        """The last one that is closed; it goes up through all sessions."""
        self._is_open = False
        """Whether there is something in the step after that,"""
        self._step_bytes = 0
        """and how much of publications."""
        self._batch: list[Message] = []
        """What has come of the broker's next step."""
        self._batch_bytes = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what was exchanged: whoever is the broker now knows nothing of it."""
        self.taken = 0
        """The last of the broker's steps that was taken here."""
        self.sent: LeafStream[Publish] = LeafStream()
        self.received: LeafStream[Publish] = LeafStream()
        self._sent_in, self._received_in = Marks(), Marks()
        self.controls: deque[Control] = deque()
        self.forgot = 0
        """The last step of this client's that the broker will never ask for again."""
        self.logs: dict[NodeId, StepLog] = {}
        """What is known of the step logs of brokers."""
        self.told: tuple[int, int] | None = None
        """How many publications had been received, and which step taken, when the broker was told
        last; None if it has not been on this connection."""
        self.counted: tuple[int, ...] = ()
        """How far all that is counted had come when it was last looked at."""

    # --- sending ----------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether what is sent goes out at once."""
        return self._link is not None

    def publish(self, publication: Publish) -> None:
        """Send a publication, in this step, or the next one if there is no room for more."""
        size = bytes_of(publication)
        if self._step_bytes + size > STEP_BYTES:
            self.end_step()
        self.sent.append(publication)
        self._is_open = True
        self._step_bytes += size
        if self._link is not None:
            self._outbox.send(self._link, publication)

    def request(
        self,
        message: Message,
        about: Advertisement | Subscription | None = None,
        told_in: int = 0,
    ) -> int:
        """Send anything else that belongs to a batch; returns the step.

        `about` is what it withdraws, and `told_in` when the broker had been told of that.
        """
        self._is_open = True
        step = self.step + 1
        self.controls.append(
            Control(step, self.sent.count, message, about, told_in=told_in),
        )
        if self._link is not None:
            self._outbox.send(self._link, message)
        return step

    def end_step(self) -> None:
        """Close what was sent since this was called last, if anything was."""
        if self._is_open:
            self._is_open, self._step_bytes = False, 0
            self.step += 1
            self._sent_in.add(self.step, self.sent.count)
            if self._link is not None:
                self._outbox.send(self._link, EndOfStep(step=self.step))

    def say(self, message: Message) -> None:
        """Send what belongs to no batch."""
        assert self._link is not None, f"nobody is there to hear {message}"
        self.end_step()
        self._outbox.send(self._link, message)

    def tell_progress(self) -> None:
        """Say how far things are: a client has confirmed what it has, and logs nothing."""
        self.told = (self.received.count, self.taken)
        self.end_step()
        self.say(
            Progress(
                received=self.received.count,
                sent=self.sent.count,
                forgotten=self.taken,
            )
        )

    # --- connections ------------------------------------------------------------------------

    def connect(self, link: LinkId) -> None:
        """From now on the broker is there; it has taken all that was ever sent to it."""
        self.end_step()
        self._link = link
        self._log_reader = LogReader(self._limits)
        self.told = None

    def go_on(self, link: LinkId, taken: int) -> None:
        """The broker is there again, and has taken so many steps: send the others, as one batch."""
        self.end_step()
        if taken > self.step:
            raise RemoteProtocolError(f"step {taken} was taken, {self.step} is the last there is")
        self.connect(link)
        self._send_since(taken)

    def _send_since(self, taken: int) -> None:
        """Send what was sent in later steps, several of them as one batch if they are small."""
        assert self._link is not None
        batch_bytes, last = 0, 0
        for step, message in self._since(taken):
            size = bytes_of(message)
            if step != last and batch_bytes + size > STEP_BYTES:
                self._outbox.send(self._link, EndOfStep(step=last))
                batch_bytes = 0
            batch_bytes, last = batch_bytes + size, step
            self._outbox.send(self._link, message)
        if last:
            self._outbox.send(self._link, EndOfStep(step=self.step))

    def disconnect(self) -> None:
        """The connection has ended; of what has no end yet, nothing has happened."""
        self._link = None
        self._batch, self._batch_bytes = [], 0

    def _since(self, step: int) -> list[tuple[int, Message]]:
        """What was sent in later steps, each with its step, as it was sent."""
        items: list[tuple[int, int, int, Message]] = [
            (each.number, 0, each.step, each.publication)
            for each in self.travelling()
            if each.step > step
        ]
        items += [(c.position, 1, c.step, c.message) for c in self.controls if c.step > step]
        items.sort(key=lambda item: item[:2])
        return [(step, message) for _, _, step, message in items]

    def sent_after(self, step: int) -> list[Publish]:
        """The publications that were sent in later steps."""
        return [each.publication for each in self.travelling() if each.step > step]

    # --- receiving --------------------------------------------------------------------------

    def keep(self, message: Message) -> None:
        """Keep a part of a batch until its end has come."""
        self._batch.append(message)
        self._batch_bytes += bytes_of(message)
        if self._batch_bytes > self._limits.batch_bytes_max:
            raise RemoteProtocolError(
                f"a batch of {self._batch_bytes} bytes, at most {self._limits.batch_bytes_max} "
                "allowed"
            )

    @property
    def is_within_batch(self) -> bool:
        """Whether something has come of a batch whose end has not."""
        return bool(self._batch)

    def take(self, end: EndOfStep) -> Sequence[Message]:
        """Take a batch whole; nothing, if it had been taken before."""
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if end.step <= self.taken:
            return ()
        for message in batch:
            if type(message) is Publish:
                self.received.append(message)
        self.taken = end.step
        self._received_in.add(end.step, self.received.count)
        return batch

    def on_progress(self, progress: Progress) -> list[Publish]:
        """The broker says how far things are; returns what of this client's is stable now."""
        confirmed = self.sent.stable_up_to(progress.received)
        self.received.stable_up_to(progress.sent)
        self._sent_in.forget(self.sent.stable_count)
        self._received_in.forget(self.received.stable_count)
        if progress.forgotten > self.forgot:
            self.forgot = progress.forgotten
            while self.controls and self.controls[0].step <= self.forgot:
                self.controls.popleft()
        return confirmed

    def learn(self, logs: bytes) -> None:
        """Take note of what is told of step logs, also with what was taken before."""
        if not logs:
            return
        for broker, part in self._log_reader.read(logs).items():
            log = self.logs.setdefault(broker, StepLog())
            if part.first > log.last and part.first != part.base:
                raise RemoteProtocolError(
                    f"the log of {broker} after step {part.first}, {log.last} is the last known"
                )
            log.learn(part)

    # --- what is kept -----------------------------------------------------------------------

    def travelling(self) -> list[Travelling]:
        """What was sent in steps that are closed, and is not stable."""
        return _travelling(self.sent, self._sent_in)

    def attachment(
        self,
        node: NodeId,
        incarnation: int,
        broker: NodeId,
        advertisements: Sequence[Told[Advertisement]],
        subscriptions: Sequence[Told[Subscription]],
    ) -> Attachment:
        """Everything that there is between a client and its broker, which has failed."""
        return Attachment(
            node=node,
            kind=NodeKind.CLIENT,
            incarnation=incarnation,
            to=broker,
            taken=self.taken,
            # A client has confirmed what it publishes by publishing it, and settles on arrival.
            sent=_end(self.sent, self.travelling()),
            received=_end(self.received, _travelling(self.received, self._received_in)),
            controls=tuple(self.controls),
            advertisements=tuple(advertisements),
            subscriptions=tuple(subscriptions),
            known_advertisements=frozenset(),
            known_subscriptions=frozenset(),
            logs=self.logs,
        )


def _travelling(stream: LeafStream[Publish], steps: Marks) -> list[Travelling]:
    return [
        Travelling(number, steps.step_of(number), publication)
        for number, publication in enumerate(stream.kept, stream.stable_count + 1)
    ]


def _end(stream: LeafStream[Publish], kept: Sequence[Travelling]) -> StreamEnd:
    return StreamEnd(stable=stream.stable_count, kept=tuple(kept))
