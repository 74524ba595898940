"""Publications that wait where they are published, until the root has said something about them.

A request goes up as a notice, and its answer comes back the way that the request went. Both are
controls, and not about the stream in which they travel: the publication itself goes nowhere before
it is answered. Nobody forgets the step of a request while its answer may be needed once more, and
whoever asked may need that until the publication is stable.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import attrs

from plait.broker.machine.neighbours import Arrival, Below, Neighbour
from plait.broker.machine.queues import QueuedPublications
from plait.broker.messages import Message
from plait.faulttol.steplog import Entry, Key
from plait.routing.ids import NodeId


class About(Protocol):
    """A message about a publication."""

    @property
    def publisher(self) -> NodeId:
        """Who published it."""

    @property
    def incarnation(self) -> int:
        """In which life."""

    @property
    def seq(self) -> int:
        """As what."""


Request = TypeVar("Request", bound=About)
Answer = TypeVar("Answer", bound=About)


def key_of(message: About) -> Key:
    """What identifies the publication that a message is about."""
    return message.publisher, message.incarnation, message.seq


@attrs.frozen
class _Asked(Generic[Request]):
    """What somebody asked, and is to be answered."""

    source: Neighbour
    step: int
    request: Request


class AskingPublications(QueuedPublications, Generic[Request, Answer]):
    """The publications under way at a broker that has the root asked about them."""

    request_type: ClassVar[type[Any]]

    def __init__(self, **parts: Any) -> None:
        """Begin with none; the parts are those of `Publications`."""
        super().__init__(**parts)
        self._unanswered: dict[Key, Arrival] = {}
        """What was published here, until the root has answered."""
        self._asked: dict[Key, _Asked[Request]] = {}
        """The requests of others, until the root has answered."""
        self._asked_in: dict[Key, int] = {}
        """The steps of those requests of which the answer may be needed once more."""
        self._answered_again: Sequence[Key] = ()
        """While steps are taken again: what was answered in the present one."""

    # --- what there is to say ---------------------------------------------------------------

    @staticmethod
    def answer_in(message: Message) -> Any:
        """The message, if it answers somebody."""
        raise NotImplementedError

    def _answer(self, request: Request) -> Answer:
        """At the root: what there is to say."""
        raise NotImplementedError

    def _take_answer(self, arrival: Arrival, answer: Answer) -> None:
        """Now it may go on."""
        raise NotImplementedError

    # --- asking -----------------------------------------------------------------------------

    def _ask(self, arrival: Arrival, request: Request) -> None:
        """Hold it until the root has answered."""
        self.ordering.hold(arrival, {})
        self._unanswered[arrival.key] = arrival
        parent = self.neighbours.parent
        if parent is None:
            self._note_asked(arrival.source, request)
        else:
            self._steps.send(parent, request)  # type: ignore[arg-type]

    def _note_asked(self, source: Neighbour, request: Request) -> None:
        self._asked[key_of(request)] = _Asked(source, self._steps.number, request)

    def on_notice(self, source: Neighbour, notice: Message) -> None:
        """Take in a request, or an answer."""
        if isinstance(notice, self.request_type):
            self._note_asked(source, notice)
            if self.neighbours.parent is not None:
                self._steps.send(self.neighbours.parent, notice)
            return
        answer = self.answer_in(notice)
        if answer is None:
            super().on_notice(source, notice)
        else:
            self._pass_answer(answer)

    def _pass_answer(self, answer: Answer) -> None:
        """Pass it on to whoever asked, which may be this broker."""
        key = key_of(answer)
        if key in self._unanswered:
            self._note_answered(key)
            arrival = self._unanswered.pop(key)
            self.ordering.take_out(arrival)
            self._take_answer(arrival, answer)
        elif key in self._asked:
            self._note_answered(key)
            asked = self._asked.pop(key)
            self._asked_in[key] = asked.step
            asker = asked.source
            if isinstance(asker, Below) and self.neighbours.below.get(asker.node) is asker:
                self._steps.send(asker, answer)  # type: ignore[arg-type]

    def _note_answered(self, key: Key) -> None:
        """The answer came in this step: whoever gave it may forget it when that is stable."""
        self._steps.order = [*(self._steps.order or ()), key]

    def _answer_all(self) -> None:
        """At the root, answer the requests of this step, in an order that follows from them."""
        if self.neighbours.parent is None:
            for key in sorted(self._asked):
                asked = self._asked.pop(key)
                answer = self._answer(asked.request)
                if key in self._unanswered:
                    self._pass_answer(answer)
                else:
                    self._steps.send(asked.source, answer)  # type: ignore[arg-type]

    def end_step(self) -> None:
        """Answer what was asked in this step."""
        self._answer_all()
        super().end_step()

    def first_unstable_step(self) -> int | None:
        """Nor is a request forgotten of which the answer is to be given, or may be once more."""
        steps = [super().first_unstable_step(), *(asked.step for asked in self._asked.values())]
        needed = {}
        for neighbour in self.neighbours.children():
            for control in neighbour.controls:
                answer = self.answer_in(control.message)
                if answer is not None:
                    key = key_of(answer)
                    needed[key] = self._asked_in.get(key, control.step)
        self._asked_in = needed
        return min((step for step in (*steps, *needed.values()) if step is not None), default=None)

    def waits_for(self, arrival: Arrival) -> str | None:
        """The parent, by which answers come."""
        parent = self.neighbours.parent
        return parent.node if parent is not None and arrival.key in self._unanswered else None

    # --- in a rebuild -----------------------------------------------------------------------

    def begin_again(self, entry: Entry) -> None:
        """Take the step of this entry once more."""
        super().begin_again(entry)
        self._answered_again = entry.order

    def end_again(self) -> None:
        """What was answered in this step, and is not any more, is stable."""
        self._answer_all()
        super().end_again()
        for key in self._answered_again:
            self._asked.pop(key, None)
            arrival = self._unanswered.pop(key, None)
            if arrival is not None:  # nobody has the answer any more, so it is stable
                self.ordering.take_out(arrival)
                arrival.settled_in = self._steps.number
                arrival.missing, arrival.is_over = 0, True
                arrival.stable = True
                self._pass_on_stable(arrival)

    def state(self) -> Mapping[str, Mapping[Any, Any]]:
        """What it knows beyond streams, to be compared."""
        return {**super().state(), "unanswered": dict.fromkeys(self._unanswered)}
