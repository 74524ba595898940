"""Each rule that a rebuild relies on is taken out, and missed.

`python -m tests.machine.mutations [NAME ...]` sees whether what the table has for a rule goes wrong
without it, and if it does not, looks for a random run (`overlay.py`) or a small system
(`exploration.py`) that does.
"""

import argparse
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
import pytest

from plait.broker.host import failover, takeover
from plait.broker.machine import attachments, joining
from plait.broker.machine import rebuild as rebuilding
from plait.broker.machine.interests import Interests
from plait.broker.machine.neighbours import Arrival, Control, Neighbour
from plait.broker.machine.publications import Publications, Remembered
from plait.broker.machine.rebuild import Rebuilding
from plait.broker.machine.requests import Requests
from plait.broker.machine.steps import Steps
from plait.broker.messages import Publish, Settled
from plait.faulttol.steplog import Entry, StepLog
from plait.routing.ids import NodeId
from tests.host.worlds import MS, Conversation
from tests.machine import automata, overlay
from tests.machine.automata import BrokerNode, Client
from tests.machine.exploration import (
    AT_ONCE,
    FORK,
    LINE,
    WHEN_QUIET,
    Explorer,
    System,
    publisher,
    subscriber,
)
from tests.machine.overlay import Leaf, World, crowded_world, random_world

Patch = pytest.MonkeyPatch


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of random runs."""

    is_crowded: bool = False
    is_uneven: bool = False
    crashes: int = 6
    deaths: int = 0
    """Of clients."""
    cuts: int = 0

    def run(self, seed: int) -> World:
        """One of them."""
        run = crowded_world if self.is_crowded else random_world
        return run(
            seed,
            delta=DELTA,
            crashes=self.crashes,
            is_uneven=self.is_uneven,
            deaths=self.deaths,
            cuts=self.cuts,
        )


DELTA: Final = 2
USUAL: Final = Kind()
DYING: Final = Kind(deaths=3)
UNEVEN: Final = Kind(is_uneven=True)
UNEVEN_AND_CUT: Final = Kind(is_uneven=True, deaths=2, cuts=4)
FULL: Final = Kind(is_crowded=True, crashes=8)
CROWDED: Final = Kind(is_crowded=True, is_uneven=True)
CROWDED_AND_CUT: Final = Kind(is_crowded=True, is_uneven=True, deaths=2, cuts=3)
KINDS: Final = (USUAL, DYING, UNEVEN, UNEVEN_AND_CUT, FULL, CROWDED, CROWDED_AND_CUT)


@attrs.frozen
class Mutation:
    """A rule, and how to do without it."""

    rule: str
    take_out: Callable[[Patch], None]
    seed: int | None = None
    """Of a run that is known to miss it, which `python -m tests.machine.mutations` found."""
    kind: Kind = USUAL
    """Of that run."""
    system: str = ""
    """A small system with a run that does."""
    story: Callable[[], list[str]] | None = None
    """A run made up for it; returns what goes wrong."""

    @property
    def is_found(self) -> bool:
        """Whether anything is known to miss it."""
        return self.seed is not None or bool(self.system) or self.story is not None

    @property
    def name(self) -> str:
        """The name of the function that takes it out."""
        return self.take_out.__name__


MUTATIONS: Final[list[Mutation]] = []


def rule(
    text: str,
    *,
    seed: int | None = None,
    kind: Kind = USUAL,
    system: str = "",
    story: Callable[[], list[str]] | None = None,
) -> Callable[[Any], Any]:
    """Enter a function into the table; it takes this rule out."""

    def enter(take_out: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTATIONS.append(Mutation(text, take_out, seed, kind, system, story))
        return take_out

    return enter


# How to take something out


def _nothing(patch: Patch, owner: Any, name: str, answer: Any = None) -> None:
    patch.setattr(owner, name, lambda *_, **__: answer)


def _attach_otherwise(
    patch: Patch, change: Callable[[rebuilding.Attachment], rebuilding.Attachment]
) -> None:
    """Let brokers and clients say something else when a neighbour has failed."""
    attach, of_leaf = rebuilding.attach, Leaf.attach
    for module in (overlay, automata, failover, takeover):
        patch.setattr(module, "attach", lambda *given: change(attach(*given)))
    patch.setattr(Leaf, "attach", lambda *given: change(of_leaf(*given)))


def _begin_otherwise(patch: Patch, change: Callable[[Entry], Entry]) -> None:
    """Let a step be taken again as if the log said something else."""
    begin = rebuilding._Again.begin
    patch.setattr(rebuilding._Again, "begin", lambda again, entry: begin(again, change(entry)))


def _result(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Let a function return something else, which depends on what it would have returned."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def otherwise(*given: Any) -> Any:
        return change(function(*given), *given)

    patch.setattr(owner, name, otherwise)


# Which log


@rule("the longest log that anybody has says which steps there were", seed=0)
def the_shortest_log_counts(patch: Patch) -> None:
    patch.setattr(
        rebuilding, "longest", lambda logs: min(list(logs)[1:], key=lambda log: log.last).copy()
    )


@rule("a log that forgets remembers how much was taken of each neighbour", seed=0)
def what_is_forgotten_was_not_taken(patch: Patch) -> None:
    _nothing(patch, StepLog, "taken_of", 0)


@rule("a log begins after the first step that took something which is not stable", seed=7)
def what_is_unstable_is_forgotten(patch: Patch) -> None:
    _nothing(patch, Publications, "first_unstable_step")


@rule("a log begins after the first step that took an operation which is not confirmed", seed=9)
def operations_under_way_are_forgotten(patch: Patch) -> None:
    patch.setattr(Requests, "first_step", None)


@rule("what is said of progress carries the log", seed=153)
def news_carry_no_log(patch: Patch) -> None:
    _nothing(patch, World, "logs_with_news", {})
    _nothing(patch, BrokerNode, "part_with_news")


# Tables


def somebody_who_is_away_has_subscribed_of_late() -> list[str]:
    """Something was published before a client subscribed, and is not stable yet.

    Its broker fails while the client is away, so what it had asked for is in the log only.
    """
    world = Conversation(delta=1)
    world.brokers("b0", b1="b0")
    far = world.client("far", "b0")
    ticker, slow, quick = (world.client(name, "b1") for name in ("ticker", "slow", "quick"))
    ticker.advertises("TRUE")
    slow.subscribes("TRUE")
    far.subscribes("x = 2")
    world.settle()
    world.freezes("slow")
    ticker.publishes(x=1)
    world.settle(0.1)
    quick.subscribes("TRUE")
    world.settle(0.1)
    world.world.off_the_net.add(quick.node.name)
    world.loses_connection("quick", "b1")
    world.settle(0.1)
    ticker.publishes(x=2)  # with which others hear that the client is away
    world.settle(0.1)
    world.crashes("b1")
    world.goes_on("slow")
    world.settle(3.0)
    world.world.off_the_net.clear()
    world.settle(40.0)
    return world.troubles()


@rule(
    "what was told before the log begins, and taken after that, is in the log by name",
    story=somebody_who_is_away_has_subscribed_of_late,
)
def nothing_is_installed_late(patch: Patch) -> None:
    _nothing(patch, Rebuilding, "_installed_in", 0)


@rule("an item was taken in the first batch whose step is at least its own", seed=6)
def a_batch_counts_for_its_last_step_only(patch: Patch) -> None:
    def taken_in(self: Rebuilding, node: NodeId, source: NodeId, step: int) -> int | None:
        return dict(self._indexes[node].taken.get(source, ())).get(step)

    patch.setattr(Rebuilding, "_taken_in", taken_in)


def _standing(told: Iterable[Any], *, but: Callable[[Any], bool]) -> tuple[Any, ...]:
    return tuple(each for each in told if each.withdrawn_in is None or not but(each))


def _without_withdrawn(patch: Patch, but: Callable[[Any], bool]) -> None:
    _attach_otherwise(
        patch,
        lambda each: attrs.evolve(
            each,
            advertisements=_standing(each.advertisements, but=but),
            subscriptions=_standing(each.subscriptions, but=but),
        ),
    )


@rule("what was withdrawn was known until that was taken", seed=3)
def what_was_withdrawn_was_never_known(patch: Patch) -> None:
    _without_withdrawn(patch, lambda told: told.withdrawn_in != attachments._NEVER)


def somebody_unsubscribes_while_something_is_held() -> list[str]:
    """A broker fails before what waits behind a held publication has been sent to it."""
    world = Conversation(delta=1)
    world.brokers("a", b="a", c="b")
    ticker, reader = world.client("ticker", "c"), world.client("reader", "c")
    other, leaving = world.client("other", "a"), world.client("leaving", "a")
    ticker.advertises("x = 0")
    other.advertises("x = 1")
    reader.subscribes("TRUE")
    wish = leaving.subscribes("TRUE")
    world.settle()
    ticker.publishes(x=0)
    world.passes(1 * MS)
    leaving.unsubscribes(wish)
    world.passes(2.5 * MS)
    cut = world.cuts("b", "a", outgoing=False)  # b does not hear that it is settled
    world.crashes("c")
    world.settle(3.0)
    world.heals(cut)
    world.settle(40.0)
    return world.troubles()


@rule(
    "what waits behind held publications to be withdrawn still stands",
    story=somebody_unsubscribes_while_something_is_held,
)
def what_waits_to_be_withdrawn_does_not_stand(patch: Patch) -> None:
    _without_withdrawn(patch, lambda told: told.withdrawn_in == attachments._NEVER)


@rule("what was withdrawn before the log begins is not known", seed=25)
def what_was_withdrawn_long_ago_stands(patch: Patch) -> None:
    span = Rebuilding._span

    def spanning(self: Rebuilding, source: NodeId, to: NodeId, told: Any) -> Any:
        neighbour = self.machines[to].neighbours.named(source)
        base = 0 if neighbour is None else neighbour.taken_at_base
        if told.withdrawn_in is not None and told.withdrawn_in <= base:
            told = attrs.evolve(told, withdrawn_in=None)
        return span(self, source, to, told)

    patch.setattr(Rebuilding, "_span", spanning)


@rule("a subscription was passed on when an advertisement drew it", seed=180)
def subscriptions_are_passed_on_at_once(patch: Patch) -> None:
    def at_once(told: Any, *given: Any) -> Any:
        return told and attrs.evolve(told, told_in=given[-1].told_in)

    _result(patch, Rebuilding, "_drawn", at_once)


@rule("a neighbour says what advertisements it knows from the lost broker", seed=0, kind=DYING)
def nobody_says_which_advertisements_it_knows(patch: Patch) -> None:
    _attach_otherwise(patch, lambda a: attrs.evolve(a, known_advertisements=frozenset()))


@rule("a neighbour says what subscriptions it knows from the lost broker", seed=23, kind=DYING)
def nobody_says_which_subscriptions_it_knows(patch: Patch) -> None:
    _attach_otherwise(patch, lambda a: attrs.evolve(a, known_subscriptions=frozenset()))


# Steps


@rule("a batch is taken in the order in which it was sent", seed=130)
def publications_come_before_controls(patch: Patch) -> None:
    _result(
        patch,
        rebuilding,
        "in_order",
        lambda items, *_: sorted(items, key=lambda item: isinstance(item, Control)),
    )


@rule("what was held is in the log", seed=97)
def nothing_was_held(patch: Patch) -> None:
    _begin_otherwise(patch, lambda entry: attrs.evolve(entry, held=()))


@rule("in which order things were settled is in the log", seed=130)
def the_order_of_settling_is_lost(patch: Patch) -> None:
    _begin_otherwise(patch, lambda entry: attrs.evolve(entry, order=()))


@rule("a publication that is settled is known by its key when its number is not", seed=130)
def what_is_settled_has_no_key(patch: Patch) -> None:
    def without(items: Sequence[Any], *_: Any) -> list[Any]:
        return [
            attrs.evolve(item, key=None)
            if isinstance(item, Control) and isinstance(item.message, Settled)
            else item
            for item in items
        ]

    _result(patch, rebuilding, "in_order", without)


@rule("what waits here has the number by which the child knows it", seed=4, kind=FULL)
def what_waits_is_counted_anew(patch: Patch) -> None:
    _remember_otherwise(patch, lambda each, source: attrs.evolve(each, number=_next_of(source)))


def _next_of(source: Neighbour) -> int:
    return source.received.count + 1


@rule("what waited for the parent was sent there, whoever wanted it", seed=9, kind=CROWDED_AND_CUT)
def what_waited_goes_up_only_if_somebody_is_known_to_want_it(patch: Patch) -> None:
    _remember_otherwise(patch, lambda each, _: attrs.evolve(each, has_waited=False))


def _remember_otherwise(
    patch: Patch, change: Callable[[Remembered, Neighbour], Remembered]
) -> None:
    """Let something else be known of publications that are taken in again."""
    on_publish = Publications.on_publish

    def otherwise(
        self: Publications,
        source: Neighbour,
        publication: Publish,
        now: float,
        remembered: Remembered | None = None,
    ) -> None:
        if remembered is not None:
            remembered = change(remembered, source)
        on_publish(self, source, publication, now, remembered)

    patch.setattr(Publications, "on_publish", otherwise)


@rule("what waited goes up as what waits does, for ever", seed=158)
def what_waited_goes_up_as_if_it_had_not(patch: Patch) -> None:
    towards = Arrival.towards

    def without(arrival: Arrival, neighbour: Neighbour) -> Publish:
        return towards(arrival, neighbour) if arrival.waits else arrival.publication

    patch.setattr(Arrival, "towards", without)


@rule("operations that begin in a step taken again have names of their own")
def operations_of_two_lives_have_one_name(patch: Patch) -> None:
    patch.setattr(Steps, "mark", property(lambda _: "", lambda _, value: None), raising=False)


# Streams


@rule("what was sent beside publications is kept until it is not needed any more", seed=3)
def controls_are_forgotten_at_once(patch: Patch) -> None:
    _attach_otherwise(patch, lambda each: attrs.evolve(each, controls=()))


@rule("what a boundary node had, and keeps no more, is stable", seed=68, kind=UNEVEN)
def what_is_kept_no_more_is_not_stable(patch: Patch) -> None:
    _nothing(patch, Publications, "note_stable")


@rule("what a neighbour in the region took before its log begins is stable", seed=39)
def what_was_taken_long_ago_is_kept(patch: Patch) -> None:
    _nothing(patch, Rebuilding, "_leave_out_what_is_stable")


@rule("what lacks nothing after the rebuild is complete", seed=123)
def what_lacks_nothing_stays(patch: Patch) -> None:
    _nothing(patch, Publications, "complete_what_lacks_nothing")


@rule("a boundary agrees with the rebuilt broker on tables", seed=0, kind=DYING)
def tables_are_not_agreed_on(patch: Patch) -> None:
    _nothing(patch, joining, "_agree_on_tables")


# Afterwards


@rule("each side asks again whatever it waits for", seed=5)
def nobody_is_asked_again(patch: Patch) -> None:
    _nothing(patch, Requests, "ask_again")


@rule("what has been overtaken is not asked again")
def what_is_outdated_is_asked_again(patch: Patch) -> None:
    _nothing(patch, Interests, "is_outdated", False)


@rule(
    "what waits for its turn is not asked again out of turn",
    system="unadvertising while something is held",
)
def what_waits_for_its_turn_is_asked_again(patch: Patch) -> None:
    ask_again = Requests.ask_again
    patch.setattr(
        Requests,
        "ask_again",
        lambda self, neighbour, unsent, is_outdated: ask_again(self, neighbour, [], is_outdated),
    )


@rule("neighbours of all brokers of the new host hear what it stands for", seed=20)
def only_the_rebuilt_tell_their_neighbours(patch: Patch) -> None:
    _nothing(patch, World, "announce")


# What misses it


def goes_wrong(seed: int, kind: Kind) -> bool:
    """Whether a random run shows that something is missing."""
    try:
        world = kind.run(seed)
        return not world.stats["nobody left"] and bool(world.troubles())
    except Exception:
        return True  # whatever breaks: it did not go unnoticed


def first_run(mutation: Mutation, seeds: Iterable[int], kind: Kind) -> int | None:
    """The first of these random runs that misses the rule, and goes well with it."""
    for seed in seeds:
        with Patch.context() as patch:
            mutation.take_out(patch)
            is_wrong = goes_wrong(seed, kind)
        if is_wrong and not goes_wrong(seed, kind):
            return seed
    return None


def small_systems() -> dict[str, System]:
    """Systems in which one rule or the other shows, the smallest first."""
    two = (publisher(0, "c", 1), publisher(1, "a", 1))
    meeting = (*two, subscriber(0, "a"), subscriber(1, "c"))
    leaving = Client("s1", "a", (("subscribe", "x >= 0"),), (("unsubscribe", 0),))
    coming = Client("p1", "a", (), (("advertise", "x = 1"),))
    going = Client("p1", "a", (("advertise", "x = 1"),), (("unadvertise", 0),))
    one, in_a_row = publisher(0, "c", 1), publisher(0, "c", 2)
    # What b holds, as above it something is published for b, does not concern c any more.
    between = Client("p1", "b", _asks("x = 1", "x >= 0"), (("publish", 1, 1), ("unadvertise", 0)))
    below = Client("p2", "c", _asks("x = 0", "x <= 1"), (("publish", 1, 0),))
    above = Client("p3", "a", _asks("x = 2", "x = 1"), ())
    return {
        "one publication": System(LINE, (one, subscriber(0, "a")), batch=AT_ONCE),
        "two in a row": System(LINE, (in_a_row, subscriber(0, "a")), batch=AT_ONCE),
        "subscribing": System(LINE, (one, subscriber(1, "a", is_late=True)), batch=WHEN_QUIET),
        "unsubscribing": System(LINE, (one, leaving), batch=WHEN_QUIET),
        "advertising": System(LINE, (one, coming, subscriber(0, "c")), batch=WHEN_QUIET),
        "unadvertising": System(LINE, (one, going, subscriber(0, "c")), batch=WHEN_QUIET),
        "meeting": System(LINE, meeting, batch=WHEN_QUIET),
        "meeting at a fork": System(FORK, meeting, batch=WHEN_QUIET),
        "unsubscribing while two meet": System(
            LINE, (*two, subscriber(0, "c"), leaving), batch=WHEN_QUIET
        ),
        "unadvertising while something is held": System(
            LINE, (between, below, above), batch=WHEN_QUIET, crashing=("c",)
        ),
        "meeting at once": System(LINE, meeting, batch=AT_ONCE),
    }


def _asks(advertised: str, wanted: str) -> tuple[tuple[str, str], ...]:
    return ("advertise", advertised), ("subscribe", wanted)


def has_failing_run(system: System) -> bool:
    """Whether some run of a small system goes wrong."""
    try:
        return bool(Explorer(system).explore().failures)
    except Exception:
        return True


def is_missed(mutation: Mutation) -> bool:
    """Whether what is entered in the table for a rule, or something like it, misses it."""
    if mutation.system:
        return misses(small_systems()[mutation.system], mutation)
    if mutation.story is not None:
        with Patch.context() as patch:
            mutation.take_out(patch)
            troubles = mutation.story()
        return bool(troubles) and not mutation.story()
    assert mutation.seed is not None
    # What a seed leads to changes with everything that a broker sends.
    return first_run(mutation, [mutation.seed, *range(300)], mutation.kind) is not None


def misses(system: System, mutation: Mutation) -> bool:
    """Whether a small system has a run that misses the rule, and none that goes wrong with it."""
    with Patch.context() as patch:
        mutation.take_out(patch)
        is_wrong = has_failing_run(system)
    return is_wrong and not has_failing_run(system)


def main() -> None:
    """Say of each rule what misses it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="of the functions that take a rule out")
    parser.add_argument("--anew", action="store_true", help="whatever the table says")
    parser.add_argument("--runs", type=int, default=10_000, help="of each kind")
    arguments = parser.parse_args()
    for mutation in MUTATIONS:
        if arguments.names and mutation.name not in arguments.names:
            continue
        started = time.process_time()
        if not arguments.anew and mutation.is_found and is_missed(mutation):
            found = "as the table says"
        else:
            found = search(mutation, arguments.runs)
        print(f"{mutation.name}: {found}; {time.process_time() - started:.0f} s", flush=True)


def search(mutation: Mutation, runs: int) -> str:
    """What misses a rule: a random run, or else a small system."""
    for kind in KINDS:
        seed = first_run(mutation, range(runs), kind)
        if seed is not None:
            return f"run {seed} of {kind}"
    systems = (name for name, each in small_systems().items() if misses(each, mutation))
    return next(systems, f"no small system, and none of {runs} runs of each kind")


if __name__ == "__main__":
    main()
