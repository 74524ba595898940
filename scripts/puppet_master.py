"""Performs a script on a stage: what each command means, whatever the stage is made of."""

import random
from collections.abc import Iterable, Iterator
from typing import assert_never

from routing.filter_text import parse_filter, topic_filter
from routing.filters import Filter
from routing.values import Content
from scripts.errors import ProblemsFoundError
from scripts.happenings import Stable, StatusTaken, Tell
from scripts.narration import describe
from scripts.scenario import problem_of_fault
from scripts.stage import Stage
from topologies.content import render
from topologies.errors import Problem
from topologies.script import (
    Advertise,
    AwaitStable,
    Command,
    Crash,
    Freeze,
    PublishStream,
    Recover,
    Status,
    Subscribe,
    Topic,
    Unfreeze,
    Unsubscribe,
    Wait,
    Where,
)


class PuppetMaster:
    """Executes commands one after the other; streams of publications go on meanwhile."""

    def __init__(self, stage: Stage, *, seed: int, tell: Tell) -> None:
        self._stage = stage
        self._seed = seed
        self._tell = tell
        self._advertised: dict[str, list[Filter]] = {}
        self._streams = 0
        self._last_told: Stable | None = None

    async def perform(self, commands: Iterable[Command]) -> None:
        """Execute all commands, then wait until nothing is in flight."""
        for command in commands:
            await self.execute(command)
        await self._settle()

    async def execute(self, command: Command) -> None:
        """Execute one command; it has taken effect when this returns."""
        match command:
            case Subscribe(process, interest):
                await self._stage.subscribe(process, filter_of(interest).sql)
            case Unsubscribe(process, interest):
                await self._stage.unsubscribe(process, filter_of(interest).sql)
            case Advertise(process, where):
                await self._advertise(process, filter_of(where))
            case PublishStream():
                await self._publish(command)
            case Wait(milliseconds):
                await self._stage.pass_time(milliseconds / 1000)
            case AwaitStable():
                await self._settle()
            case Status():
                self._tell(StatusTaken(await self._stage.status()))
            case Crash() | Recover() | Freeze() | Unfreeze():
                raise ProblemsFoundError(str(problem_of_fault(command)))
            case _:
                assert_never(command)

    async def _settle(self) -> None:
        stable = await self._stage.settle()
        if stable != self._last_told:
            self._last_told = stable
            self._tell(stable)

    async def _advertise(self, publisher: str, filter_: Filter) -> None:
        await self._stage.advertise(publisher, filter_.sql)
        self._advertised.setdefault(publisher, []).append(filter_)

    async def _publish(self, command: PublishStream) -> None:
        topic = command.content
        # Whoever publishes on a topic does not have to say so twice.
        if isinstance(topic, Topic) and not self._is_advertised(
            command.process, {"topic": topic.name}
        ):
            await self._advertise(command.process, topic_filter(topic.name))
        await self._stage.begin_stream(
            command.process, self._contents(command), command.interval_ms / 1000
        )

    def _contents(self, command: PublishStream) -> Iterator[Content]:
        self._streams += 1
        # Of each stream its own, so that they stay the same when another one is added.
        rng = random.Random(f"{self._seed} {self._streams}")
        for n in range(1, command.count + 1):
            match command.content:
                case Topic(name):
                    content: Content = {"topic": name}
                case template:
                    content = render(template, n, rng)
            if not self._is_advertised(command.process, content):
                raise ProblemsFoundError(str(_not_advertised(command, content)))
            yield content

    def _is_advertised(self, publisher: str, content: Content) -> bool:
        return any(filter_.matches(content) for filter_ in self._advertised.get(publisher, ()))


def filter_of(interest: Topic | Where) -> Filter:
    """Return the filter of what a script says of events."""
    match interest:
        case Topic(name):
            return topic_filter(name)
        case Where(text):
            return parse_filter(text)


def _not_advertised(command: PublishStream, content: Content) -> Problem:
    return Problem(
        command.at,
        f"a publication of {command.process} outside what it has advertised: {describe(content)}",
        f"a line like 'Publisher {command.process} Advertise WHERE ...' before it",
    )
