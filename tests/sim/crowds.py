"""Crowded runs: all that is hard at once, in the time of a few messages.

Subscriptions come and go while publications that they match are under way, and δ brokers fail, one
a moment after the other, on links some of which are a hundred times as slow as others. Runs of the
simulator in which that comes about by chance are few.

    python -m tests.sim.crowds 0:100000

With --moves, brokers hand over children meanwhile, and somebody advertises in the middle of it.
With --mixed, half of the subscriptions ask for no order.
"""

import math
import sys
from collections.abc import Callable
from functools import partial
from random import Random

from broker.sim.workloads import move_some
from broker.sim.world import SIMULATED_LIMITS, World
from routing.ids import NodeId, SubscriptionId
from tests.conversation import Client, Conversation

FASTEST_S, SLOWEST_S = 0.0005, 0.05


class _Delays(Random):
    """As many links have a delay of one to two milliseconds as have one of ten to twenty."""

    def uniform(self, a: float, b: float) -> float:
        if (a, b) == (FASTEST_S, SLOWEST_S):
            return math.exp(super().uniform(math.log(a), math.log(b)))
        return super().uniform(a, b)


def _world(seed: int) -> World:
    world = World(
        seed,
        limits=SIMULATED_LIMITS,
        delay_s=(FASTEST_S, SLOWEST_S),
        jitter=0.3,
        is_traced=False,
    )
    world.random = _Delays(seed)
    return world


class _Moves:
    """What brokers and publishers do beside all else, from a source of chance of its own."""

    def __init__(self, seed: int, overlay: Conversation, brokers: list[str]) -> None:
        self._overlay = overlay
        self._random = Random(~seed)
        self._newcomer = overlay.client("late", at=self._random.choice(brokers))

    def begin(self, duration: float) -> None:
        world, random = self._overlay.world, self._random
        for _ in range(random.randint(1, 3)):
            world.after(duration * random.random(), move_some, world, random)
        world.after(duration * random.random(), self._advertise)

    def _advertise(self) -> None:
        self._newcomer.advertises("TRUE")
        self._publish_when_confirmed()

    def _publish_when_confirmed(self) -> None:
        if self._newcomer.answered:
            self._newcomer.publishes(x=self._random.randrange(2))
        else:
            self._overlay.world.after(FASTEST_S, self._publish_when_confirmed)


def crowded_run(seed: int, *, has_moves: bool = False, is_mixed: bool = False) -> list[str]:
    """What is wrong at the end of this run."""
    random = Random(seed)
    random_order = Random(f"order {seed}")
    delta = random.choice((1, 2, 2, 2, 3))
    overlay = Conversation(world=_world(seed), delta=delta)
    names = [f"b{number}" for number in range(random.randint(3, 7))]
    likes_chains = random.random()
    overlay.brokers(
        names[0],
        **{
            name: names[number]
            if random.random() < likes_chains
            else random.choice(names[: number + 1])
            for number, name in enumerate(names[1:])
        },
    )
    wants_all = random.random()

    def some_filter() -> str:
        return "TRUE" if random.random() < wants_all else f"x = {random.randrange(2)}"

    def subscribe(subscriber: Client) -> SubscriptionId:
        is_ordered = not is_mixed or random_order.random() < 0.5
        return subscriber.subscribes(some_filter(), ordered=is_ordered)

    publishers = [
        overlay.client(f"p{number}", at=random.choice(names))
        for number in range(random.randint(1, 3))
    ]
    subscribers = [
        overlay.client(f"s{number}", at=random.choice(names))
        for number in range(random.randint(2, 5))
    ]
    choices: dict[Client, tuple[int, ...]] = {}
    for number, publisher in enumerate(publishers):
        choices[publisher] = (0, 1) if random.random() < 0.4 else (number % 2,)
        publisher.advertises("TRUE" if len(choices[publisher]) > 1 else f"x = {number % 2}")
    subscriptions: dict[Client, SubscriptionId] = {}
    for subscriber in subscribers:
        if random.random() < 0.5:
            subscriptions[subscriber] = subscribe(subscriber)
    overlay.settle()
    moves = _Moves(seed, overlay, names) if has_moves else None

    begun = overlay.world.now
    duration = random.choice((0.03, 0.1, 0.2, 0.4))
    calendar: list[tuple[float, int, Callable[[], object]]] = []

    def sometime(action: Callable[[], object], *, after: float = 0.0, before: float = 1.0) -> None:
        at = begun + duration * random.uniform(after, before)
        calendar.append((at, len(calendar), action))

    def publish(publisher: Client) -> None:
        publisher.publishes(x=random.choice(choices[publisher]))

    for _ in range(random.randint(1, 2)):
        publisher = random.choice(publishers)
        sometime(partial(publish, publisher), before=0.3)
    for _ in range(random.randint(1, 4)):
        publisher = random.choice(publishers)
        sometime(partial(publish, publisher), after=0.3)
    for _ in range(random.randint(1, 4)):
        subscriber = random.choice(subscribers)
        sometime(partial(subscribe, subscriber), before=0.6)
    if subscriptions and random.random() < 0.3:
        subscriber = random.choice(list(subscriptions))
        sometime(partial(subscriber.unsubscribes, subscriptions[subscriber]))
    for broker in random.sample(names, min(delta, len(names) - 1)):
        sometime(partial(overlay.crashes, broker), after=0.2)
        if random.random() < 0.3:
            at = begun + 2 * duration + random.choice((0.001, 0.02, 0.5))
            overlay.world.at(at, overlay.world.restart, NodeId(broker))
    if moves is not None:
        moves.begin(duration)
    for at, _, action in sorted(calendar, key=lambda event: event[:2]):
        overlay.world.run(until=max(at, overlay.world.now))
        action()
    overlay.settle(random.choice((0.1, 0.5)))
    for publisher in publishers:
        publish(publisher)
    overlay.settle(40)
    return overlay.troubles()


if __name__ == "__main__":
    first, end = map(int, sys.argv[1].split(":"))
    failed = 0
    for seed in range(first, end):
        troubles = crowded_run(
            seed, has_moves="--moves" in sys.argv, is_mixed="--mixed" in sys.argv
        )
        if troubles:
            failed += 1
            print(f"seed {seed}: {troubles[0]}", flush=True)
    print(f"{end - first} crowded runs, {failed} of them went wrong.")
    sys.exit(failed > 0)
