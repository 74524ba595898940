"""Real brokers under load, some of which are killed, frozen or restarted; and the verdict.

A *blow* is struck against as many brokers, next to each other in the tree, as the overlay is made
to survive; or all of them are restarted, one after the other. Publishers publish at a steady rate
all the while, whatever becomes of it. The history is judged strictly: brokers that failed excuse no
loss, and at the end everything is confirmed.

What a subscriber sees of a crash is a *stall*: the longest time that any publication took from its
publisher to any subscriber. Detection, re-forming and catching up are all in it.
"""

import enum
import random
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import attrs
import trio

from plait.broker.errors import BrokerError
from plait.broker.net.client import Client, connect
from plait.broker.net.logs import LogWriter
from plait.broker.net.outlets import Outlet
from plait.broker.net.subscription import Subscription
from plait.broker.sim.runs import NEVER_TOO_MANY
from plait.broker.sim.world import LAUNCHER
from plait.faulttol.guarantees import Excuse, check
from plait.faulttol.history import (
    HistoryWriter,
    Manifest,
    Record,
    publication_of,
    read_run,
    write_manifest,
)
from plait.scripts.async_entry import leaves
from plait.scripts.happenings import BrokerLost, Happening
from plait.scripts.launcher import BrokerPlan, RunningOverlay, launch
from plait.scripts.monitor import ask, split
from plait.scripts.run_directory import LOG_FOLDER, state_file
from plait.scripts.status_reports import players
from plait.topologies.builders import random_tree
from plait.topologies.overlay import Overlay

ORDERING: Final = "pairwise"
PUBLISHERS: Final = 10
SUBSCRIBERS: Final = 10
RATE: Final = 50.0
"""Publications of each publisher a second."""
BODY: Final = bytes(200)
VALUES: Final = 100
"""Contents are `n`, from 0 up to this."""
WANTED: Final = ("n >= 0", "n < 60", "n >= 40")
"""Any two subscribers share publications, and most brokers have to keep an order."""

BEFORE_S: Final = (0.5, 1.5)
"""How long there has been load when the blow falls."""
DOWN_S: Final = 1.0
"""How long a broker that was killed stays away; the region re-forms long before."""
STOPPED_S: Final = (3.5, 12.0)
"""How long a broker is stopped: from just more than `heartbeat_timeout_s`, when others are about to
take it for failed, to more than clients may be absent."""
AFTER_S: Final = 1.0
"""How long the load goes on afterwards."""
PATIENCE_S: Final = 45.0
"""For what comes about by itself: confirmations, a broker's return. Seconds are usual."""
POLL_S: Final = 0.05
BLOWS: Final = ("crashed", "frozen", "stopped")
"""What a history says of the beginning of one."""
UNFINISHED_WORK: Final = ("unstable", "held_count", "operations_pending")
"""What a broker counts in its status report, and has none of in the end."""


class Blow(enum.StrEnum):
    """What is done to brokers."""

    KILL = "killed"
    KILL_AND_RECOVER = "killed and recovered"
    STOP = "stopped"
    """SIGSTOP; they go on when the others have gone on without them."""
    RESTART = "restarted in turn"
    """SIGTERM, all of them one after the other: that is no failure."""


@attrs.frozen(kw_only=True)
class Attack:
    """One run: an overlay with its clients, and what happens to whom."""

    overlay: Overlay
    delta: int
    victims: tuple[str, ...]
    blow: Blow
    seed: int
    stopped_s: float = STOPPED_S[0]
    """How long brokers are stopped, if that is what happens to them."""

    def lives_of(self, broker: str) -> Sequence[int]:
        """In which of its lives a broker may be in the end.

        Who was stopped for no longer than the others took to be certain is still in its first.
        """
        if broker not in self.victims:
            return (1,)
        return (1, 2) if self.blow is Blow.STOP else (2,)

    def describe(self) -> str:
        """Say who is struck, and what depended on them."""
        overlay = self.overlay
        if self.blow is Blow.RESTART:
            return f"{len(self.victims)} brokers {self.blow}"
        return (
            " and ".join(
                f"{victim} ({len(overlay.children_of(victim))} children, "
                f"{len(overlay.site_of(victim).publishers + overlay.site_of(victim).subscribers)} "
                f"clients{', the root' if victim == overlay.root else ''})"
                for victim in self.victims
            )
            + f" {self.blow}"
        )


@attrs.frozen(kw_only=True)
class Outcome:
    """What an attack led to."""

    failures: tuple[str, ...]
    published: int
    delivered: int
    stall_ms: float
    """The longest time from a publication to a delivery of it."""
    calm_ms: float
    """The same, of publications that were delivered before the blow."""

    @property
    def is_clean(self) -> bool:
        """Whether every guarantee held, and everything came to its end."""
        return not self.failures


def random_attack(seed: int, *, brokers: int, delta: int, blow: Blow) -> Attack:
    """Draw a tree, the places of the clients, and `delta` neighbours in the tree as victims.

    Or the order in which all are restarted.
    """
    rng = random.Random(seed)
    tree = random_tree(brokers, seed)
    p_homes = [rng.choice(tree.brokers) for _ in range(PUBLISHERS)]
    s_homes = [rng.choice(tree.brokers) for _ in range(SUBSCRIBERS)]
    overlay = Overlay(
        tuple(
            attrs.evolve(
                site,
                publishers=_who_lives_at(site.broker, "p", p_homes),
                subscribers=_who_lives_at(site.broker, "s", s_homes),
            )
            for site in tree.sites
        )
    )
    victims = [rng.choice(overlay.brokers)]
    if blow is Blow.RESTART:
        victims = rng.sample(overlay.brokers, brokers)
    while len(victims) < delta:
        around = {other for victim in victims for other in overlay.neighbours_of(victim)}
        victims.append(rng.choice(sorted(around - set(victims))))
    return Attack(
        overlay=overlay,
        delta=delta,
        victims=tuple(victims),
        blow=blow,
        seed=seed,
        stopped_s=rng.uniform(*STOPPED_S),
    )


def _who_lives_at(broker: str, letter: str, homes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{letter}{n}" for n, home in enumerate(homes) if home == broker)


async def perform(attack: Attack, directory: Path) -> Outcome:
    """Launch the overlay, load it, strike, wait until all is stable, and judge."""
    overlay, run_id = attack.overlay, f"chaos-{attack.seed}-{secrets.token_hex(4)}"
    manifest = Manifest(
        run=run_id,
        topology={broker: overlay.parent_of(broker) for broker in overlay.brokers},
        ordering=ORDERING,
        delta=attack.delta,
        seed=attack.seed,
        started=time.time(),
        simulated=False,
    )
    write_manifest(directory, manifest)
    epoch = time.time() - trio.current_time()
    with HistoryWriter(directory, run_id, LAUNCHER, incarnation=1) as history:

        def note(kind: str, about: str) -> None:
            history.write(epoch + trio.current_time(), kind, about=about)
            history.flush()

        failures: list[str] = []

        def tell(happening: Happening) -> None:
            if isinstance(happening, BrokerLost) and not brokers.is_in_hurry:
                failures.append(f"{happening.broker} {happening.reason}")

        plans = _broker_plans(attack, directory, run_id)
        logs = directory / LOG_FOLDER
        async with launch(plans, log_directory=logs, tell=tell, note=note) as brokers:
            failures += await _strike_under_load(attack, brokers, directory, run_id)
            brokers.is_in_hurry = True
    write_manifest(directory, attrs.evolve(manifest, ended=time.time()))
    return judge(directory, failures)


def _broker_plans(attack: Attack, directory: Path, run_id: str) -> list[BrokerPlan]:
    return [
        BrokerPlan(
            name=broker,
            parent=attack.overlay.parent_of(broker),
            arguments=(
                *("--ordering", ORDERING, "--delta", str(attack.delta)),
                *("--run-dir", str(directory), "--run-id", run_id),
                *("--state", str(state_file(directory, broker))),
            ),
        )
        for broker in attack.overlay.brokers
    ]


async def _strike_under_load(
    attack: Attack, brokers: RunningOverlay, directory: Path, run_id: str
) -> list[str]:
    """Return what did not come to its end."""
    failures: list[str] = []
    try:
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            log = stack.enter_context(Outlet.append_to(directory / LOG_FOLDER / "clients.log"))

            async def client(name: str) -> Client:
                history = stack.enter_context(HistoryWriter(directory, run_id, name, incarnation=1))
                address = brokers.address_of(attack.overlay.broker_of(name))
                writer = LogWriter(name, log)
                return await stack.enter_async_context(
                    connect(address, name=name, incarnation=1, history=history, log=writer)
                )

            publishers = [await client(name) for name in attack.overlay.publishers]
            for publisher in publishers:
                await publisher.advertise(f"n BETWEEN 0 AND {VALUES}")
            wanted = random.Random(attack.seed)
            for name in attack.overlay.subscribers:
                subscriber = await client(name)
                nursery.start_soon(_take, await subscriber.subscribe(wanted.choice(WANTED)))
            await _publish_and_strike(attack, brokers, publishers)
            failures += await _unconfirmed(publishers)
            failures += await _unfinished(attack, brokers)
            if failures:
                nursery.cancel_scope.cancel()  # clients that leave in order would wait in vain
    except* BrokerError as group:
        failures += [f"a client was left alone: {error}" for error in leaves(group)]
    return failures


async def _publish_and_strike(
    attack: Attack, brokers: RunningOverlay, publishers: Sequence[Client]
) -> None:
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        for number, publisher in enumerate(publishers):
            values = random.Random(f"{attack.seed} {number}")
            nursery.start_soon(_publish, publisher, values, over)
        await trio.sleep(random.Random(attack.seed).uniform(*BEFORE_S))
        await _strike(attack, brokers)
        await trio.sleep(AFTER_S)
        over.set()


async def _publish(publisher: Client, values: random.Random, over: trio.Event) -> None:
    due = trio.current_time() + values.random() / RATE
    while not over.is_set():
        await trio.sleep_until(due)
        await publisher.publish({"n": values.randrange(VALUES)}, BODY)
        due += 1 / RATE


async def _take(subscription: Subscription) -> None:
    async for _ in subscription:
        pass


async def _strike(attack: Attack, brokers: RunningOverlay) -> None:
    """Do to the victims what is to be done, all at once, and undo what is to be undone."""
    if attack.blow is Blow.RESTART:
        for victim in attack.victims:
            await _restart(victim, brokers)
        return
    if attack.blow is Blow.STOP:
        for victim in attack.victims:
            brokers.freeze(victim)
        await trio.sleep(attack.stopped_s)
        for victim in attack.victims:
            brokers.unfreeze(victim)
        return
    for victim in attack.victims:
        brokers.crash(victim)
    await trio.sleep(DOWN_S)
    if attack.blow is Blow.KILL_AND_RECOVER:
        async with trio.open_nursery() as nursery:
            for victim in attack.victims:
                nursery.start_soon(brokers.recover, victim)


async def _restart(broker: str, brokers: RunningOverlay) -> None:
    """Stop a process, start it again, and wait until it has its place back, and all know that."""
    await brokers.stop(broker)
    await brokers.recover(broker)
    with trio.move_on_after(PATIENCE_S):  # what it has not got by then is a failure in the end
        while not await _has_its_place(broker, brokers):  # noqa: ASYNC110 - another process
            await trio.sleep(POLL_S)


async def _has_its_place(broker: str, brokers: RunningOverlay) -> bool:
    """Whether a broker is played by its own process, and no failure would be one too many."""
    others = [name for name in brokers.processes if name != broker]
    try:
        for name in (broker, *others):
            report = await ask(*split(brokers.address_of(name)))
            if report["vulnerable"] or (name == broker and broker not in players([report])):
                return False
    except OSError:
        return False
    return True


async def _unconfirmed(publishers: Sequence[Client]) -> list[str]:
    """Wait for confirmations; return who has not got all of them."""
    with trio.move_on_after(PATIENCE_S):
        for publisher in publishers:
            await publisher.flush()
    return [
        f"{publisher.name}: {publisher.unconfirmed} publications were never confirmed"
        for publisher in publishers
        if publisher.unconfirmed
    ]


async def _unfinished(attack: Attack, brokers: RunningOverlay) -> list[str]:
    """Wait until all brokers are idle, also those who are to come back; return who is not."""
    waiting = dict.fromkeys(attack.overlay.brokers, "")
    if attack.blow is Blow.KILL:
        for victim in attack.victims:
            del waiting[victim]
    with trio.move_on_after(PATIENCE_S):
        while waiting:
            for broker in list(waiting):
                lives = attack.lives_of(broker)
                waiting[broker] = await _work_of(brokers.address_of(broker), lives)
                if not waiting[broker]:
                    del waiting[broker]
            await trio.sleep(POLL_S)
    return [f"{broker} is not idle: {work}" for broker, work in waiting.items()]


async def _work_of(address: str, lives: Sequence[int]) -> str:
    """Say what a broker in one of these lives is busy with; empty if with nothing."""
    try:
        report = await ask(*split(address))
    except OSError as error:
        return str(error)
    if report["incarnation"] not in lives or report["state"] != "operational":
        expected = " or ".join(map(str, lives))
        return f"{report['state']}, incarnation {report['incarnation']}, {expected} expected"
    busy = [f"{what} {report[what]}" for what in UNFINISHED_WORK if report[what]]
    return ", ".join(busy)


def judge(directory: Path, failures: Iterable[str] = ()) -> Outcome:
    """Judge a history strictly; `failures` are known from elsewhere."""
    history = read_run(directory)
    records = list(history.records)
    report = check(records, ordering=ORDERING, delta=NEVER_TOO_MANY, problems=history.problems)
    excused = [
        f"{count} publications were not delivered: {excuse}"
        for excuse, count in report.excused.items()
        if excuse is not Excuse.SIMULTANEOUS
    ]
    stall, calm = longest_times(records)
    return Outcome(
        failures=(*failures, *map(str, report.violations), *excused),
        published=report.figures["published"],
        delivered=report.figures["delivered"],
        stall_ms=stall,
        calm_ms=calm,
    )


def longest_times(records: Iterable[Record]) -> tuple[float, float]:
    """Return how long deliveries took at most, in ms: all of them, and those before the blow."""
    records = list(records)
    blow_at = min(
        (record["at"] for record in records if record["kind"] in BLOWS),
        default=float("inf"),
    )
    published = {
        publication_of(record): record["at"] for record in records if record["kind"] == "published"
    }
    took = [
        (record["at"], record["at"] - published[publication_of(record)])
        for record in records
        if record["kind"] == "delivered"
    ]
    longest = max((time for _, time in took), default=0.0)
    calm = max((time for at, time in took if at < blow_at), default=0.0)
    return 1000 * longest, 1000 * calm
