"""What a core wants done, collected in order until its driver takes it."""

from typing import Any

from plait.broker.effects import Effect, Level, RecordHistory, SendMessage, SetTimer, WriteLog
from plait.broker.inputs import LinkId
from plait.broker.messages import Message


class Outbox:
    """Effects in the order in which they are to be carried out."""

    def __init__(self) -> None:
        """Begin empty."""
        self._effects: list[Effect] = []
        self._timer_at: float | None = None

    def add(self, effect: Effect) -> None:
        """Want anything done."""
        self._effects.append(effect)

    def send(self, link: LinkId, message: Message) -> None:
        """Want a message sent over one link."""
        self._effects.append(SendMessage((link,), message))

    def record(self, kind: str, **fields: Any) -> None:
        """Want a line in this node's history."""
        self._effects.append(RecordHistory(kind, fields))

    def log(self, level: Level, event: str, **fields: Any) -> None:
        """Want a line in this node's log."""
        self._effects.append(WriteLog(level, event, fields))

    def wake_at(self, *due: float | None) -> None:
        """Want to be woken at the earliest of these times, unless that is so already."""
        at = self._timer_at
        for time in due:
            if time is not None and (at is None or time < at):
                at = time
        if at is not None and at != self._timer_at:
            self._timer_at = at
            self._effects.append(SetTimer(at))

    def woken(self) -> None:
        """The timer has fired; none is set any more."""
        self._timer_at = None

    def take(self) -> list[Effect]:
        """Everything wanted since this was last called."""
        effects, self._effects = self._effects, []
        return effects
