"""One exchange between two clients, told step by step, and what must have come of it."""

from collections.abc import Callable
from typing import Final

from plait.broker.client.states import ClientState, Session
from tests.client.world import BROKER, World

Fault = Callable[["Story"], None]


HOSTS: Final = 20


class Story:
    """A ticker, a reader, and whatever happens to their connections and their broker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names = [f"h{number:02}" for number in range(HOSTS)]
        for name in self.names:
            world.host(name, BROKER if name == self.names[0] else None)
        self.ticker = world.client("ticker", *self.names)
        self.reader = world.client("reader", *self.names)
        self.happened = 0
        self.faults: dict[int, Fault] = {}

    # --- what happens -----------------------------------------------------------------------

    def run(self, faults: dict[int, Fault]) -> int:
        """Tell the story, with faults after so many things have happened; returns how many did."""
        self.faults = dict(faults)
        ticker, reader = self.ticker, self.reader
        ticker.advertises("TRUE")
        self.until(lambda: not ticker.unanswered)
        reader.subscribes("x >= 2")
        self.until(lambda: not reader.unanswered)
        ticker.publishes(1, 2, 3)
        self.go_on(4)
        narrow = reader.subscribes("x = 5")
        ticker.publishes(4)
        self.go_on(3)
        wide = ticker.advertises("x > 100")
        ticker.publishes(5)
        self.go_on(5)
        reader.unsubscribes(narrow)
        ticker.publishes(6, 7)
        self.until(lambda: not ticker.unanswered)
        ticker.publishes(500)
        ticker.unadvertises(wide)
        self.go_on(2)
        ticker.publishes(8)
        self.until(lambda: self.is_over() and not self.faults_due())
        return self.happened

    def faults_due(self) -> bool:
        return any(at > self.happened for at in self.faults)

    def is_over(self) -> bool:
        return all(
            client.core.state is ClientState.READY
            and not client.unanswered
            and not client.core.unconfirmed
            and not client.core.kept
            and not client.core.stream.controls
            for client in (self.ticker, self.reader)
        )

    def go_on(self, count: int) -> None:
        """Let so many things happen."""
        for _ in range(count):
            self._fault()
            if not self.world.carry(1):
                self.world.passes(0.1)
            self.happened += 1
        self._fault()

    def until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until something is so."""
        for _ in range(5000):
            if condition():
                return
            self.go_on(1)
        raise AssertionError(f"never: {[c.core.state for c in (self.ticker, self.reader)]}")

    def _fault(self) -> None:
        fault = self.faults.pop(self.happened, None)
        if fault is not None:
            fault(self)

    # --- what goes wrong --------------------------------------------------------------------

    def broker_fails(self) -> None:
        """Its host ends, and another one takes it up."""
        self.crash()
        self.passes(0.3)
        self.rebuild()

    def crash(self) -> None:
        world = self.world
        before = self.names.pop(0)
        world.crash(before)
        world.failed.add(before)
        world.hosts[self.names[0]].takes_up(BROKER)

    def passes(self, seconds: float) -> None:
        self.world.passes(seconds)

    def rebuild(self) -> None:
        """Rebuild the broker from what those say who have a session with it."""
        around = [c for c in (self.ticker, self.reader) if c.core.session.session not in _APART]
        self.world.hosts[self.names[0]].rebuilds(*around)

    # --- what has come of it ----------------------------------------------------------------

    def check(self) -> None:
        ticker, reader = self.ticker, self.reader
        assert reader.received == [f"ticker:{n}" for n in (2, 3, 4, 5, 6, 7, 8, 9)]
        assert ticker.confirmed == 9
        assert not ticker.skipped
        for client in (ticker, reader):
            assert not any(client.answers.values())
            assert client.stopped is None
        assert [r["filter"] for r in ticker.recorded("unadvertised")] == ["x > 100"]
        assert [r["seq"] for r in ticker.recorded("confirmed")] == list(range(1, 10))


_APART: Final = (Session.NONE, Session.OVER)


def cut_ticker(story: Story) -> None:
    story.world.cut(story.ticker)


def cut_reader(story: Story) -> None:
    story.world.cut(story.reader)


def cut_both(story: Story) -> None:
    story.world.cut(story.ticker)
    story.world.cut(story.reader)
