"""Each rule that a rebuild relies on is taken out, and missed.

`python -m tests.machine.mutations [--runs N] [NAME ...]` looks for the first random run
(`overlay.py`), and for the first small system (`exploration.py`), that goes wrong without the rule.
"""

import argparse
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
import pytest

from plait.broker.machine import attachments, joining
from plait.broker.machine import rebuild as rebuilding
from plait.broker.machine.interests import Interests
from plait.broker.machine.neighbours import Arrival, Control, Neighbour
from plait.broker.machine.publications import Publications, Remembered
from plait.broker.machine.rebuild import Rebuilding
from plait.broker.machine.requests import Requests
from plait.broker.machine.steps import Steps
from plait.broker.messages import Message, Publish, Settled
from plait.faulttol.steplog import Entry, StepLog
from plait.routing.ids import NodeId
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
from tests.machine.overlay import Leaf, World, random_world

Patch = pytest.MonkeyPatch


@attrs.frozen
class Mutation:
    """A rule, and how to do without it."""

    rule: str
    take_out: Callable[[Patch], None]
    seed: int | None = None
    """Of a run that is known to miss it, which `python -m tests.machine.mutations` found."""
    deaths: int = 0
    """Of clients; some rules are only for these."""

    @property
    def name(self) -> str:
        """The name of the function that takes it out."""
        return self.take_out.__name__


MUTATIONS: Final[list[Mutation]] = []


def rule(text: str, *, seed: int | None = None, deaths: int = 0) -> Callable[[Any], Any]:
    """Enter a function into the table; it takes this rule out."""

    def enter(take_out: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTATIONS.append(Mutation(text, take_out, seed, deaths))
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
    for module in ("overlay", "automata"):
        patch.setattr(f"tests.machine.{module}.attach", lambda *given: change(attach(*given)))
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
    patch.setattr(StepLog, "taken", property(lambda log: {}))


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


@rule("what was told before the log begins, and taken after that, is in the log by name")
def nothing_is_installed_late(patch: Patch) -> None:
    _nothing(patch, Rebuilding, "_installed_in", 0)


@rule("what has been installed in its step is not installed once more by name")
def what_is_known_is_installed_again(patch: Patch) -> None:
    _nothing(patch, Interests, "knows", False)


@rule("what a batch installs and withdraws is not installed by name")
def what_is_withdrawn_at_once_is_installed(patch: Patch) -> None:
    _nothing(patch, rebuilding, "_withdrawn_by")


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


@rule("what waits behind held publications to be withdrawn still stands")
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


@rule("a subscription was passed on as long as an advertisement drew it")
def subscriptions_stay_passed_on(patch: Patch) -> None:
    def for_ever(told: Any, *given: Any) -> Any:
        return told and attrs.evolve(told, withdrawn_in=given[-1].withdrawn_in)

    _result(patch, Rebuilding, "_drawn", for_ever)


@rule("a neighbour says what advertisements it knows from the lost broker", seed=0, deaths=3)
def nobody_says_which_advertisements_it_knows(patch: Patch) -> None:
    _attach_otherwise(patch, lambda a: attrs.evolve(a, known_advertisements=frozenset()))


@rule("a neighbour says what subscriptions it knows from the lost broker", seed=23, deaths=3)
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


@rule("what waits here has the number by which the child knows it")
def what_waits_is_counted_anew(patch: Patch) -> None:
    _remember_otherwise(patch, lambda each, source: attrs.evolve(each, number=_next_of(source)))


def _next_of(source: Neighbour) -> int:
    return source.received.count + 1


@rule("what waited for the parent was sent there, whoever wanted it")
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


@rule("what is confirmed or withdrawn waits behind what is held")
def controls_are_sent_out_of_turn(patch: Patch) -> None:
    def at_once(
        self: Publications, neighbour: Neighbour, message: Message, about: Any = None
    ) -> None:
        self._steps.send(neighbour, message, about)

    patch.setattr(Publications, "send_in_turn", at_once)


# Streams


@rule("what was sent beside publications is kept until it is not needed any more", seed=3)
def controls_are_forgotten_at_once(patch: Patch) -> None:
    _attach_otherwise(patch, lambda each: attrs.evolve(each, controls=()))


@rule("what a boundary node had, and keeps no more, is stable")
def what_is_kept_no_more_is_not_stable(patch: Patch) -> None:
    _nothing(patch, Publications, "note_stable")


@rule("what a neighbour in the region took before its log begins is stable", seed=39)
def what_was_taken_long_ago_is_kept(patch: Patch) -> None:
    _nothing(patch, Rebuilding, "_leave_out_what_is_stable")


@rule("what a neighbour has confirmed is confirmed")
def confirmations_are_forgotten(patch: Patch) -> None:
    _nothing(patch, joining, "_confirm")


@rule("what lacks nothing after the rebuild is complete", seed=123)
def what_lacks_nothing_stays(patch: Patch) -> None:
    _nothing(patch, Publications, "complete_what_lacks_nothing")


@rule("a boundary agrees with the rebuilt broker on tables", seed=0, deaths=3)
def tables_are_not_agreed_on(patch: Patch) -> None:
    _nothing(patch, joining, "_agree_on_tables")


# Afterwards


@rule("each side asks again whatever it waits for", seed=5)
def nobody_is_asked_again(patch: Patch) -> None:
    _nothing(patch, Requests, "ask_again")


@rule("what has been overtaken is not asked again")
def what_is_outdated_is_asked_again(patch: Patch) -> None:
    _nothing(patch, Interests, "is_outdated", False)


@rule("what waits for its turn is not asked again out of turn")
def what_waits_for_its_turn_is_asked_again(patch: Patch) -> None:
    ask_again = Requests.ask_again
    patch.setattr(
        Requests,
        "ask_again",
        lambda self, neighbour, unsent, is_outdated: ask_again(self, neighbour, [], is_outdated),
    )


@rule("the new host knows what the neighbours know of others' logs")
def the_new_host_knows_no_other_logs(patch: Patch) -> None:
    _nothing(patch, World, "inherit_logs")


@rule("neighbours of all brokers of the new host hear what it stands for", seed=20)
def only_the_rebuilt_tell_their_neighbours(patch: Patch) -> None:
    _nothing(patch, World, "announce")


# What misses it

CRASHES: Final = 6
DELTA: Final = 2


def goes_wrong(seed: int, deaths: int) -> bool:
    """Whether a random run shows that something is missing."""
    try:
        world = random_world(seed, delta=DELTA, crashes=CRASHES, deaths=deaths)
        return not world.stats["nobody left"] and bool(world.troubles())
    except Exception:
        return True  # whatever breaks: it did not go unnoticed


def first_run(mutation: Mutation, seeds: Iterable[int]) -> int | None:
    """The first of these random runs that misses the rule, and goes well with it."""
    for seed in seeds:
        with Patch.context() as patch:
            mutation.take_out(patch)
            is_wrong = goes_wrong(seed, mutation.deaths)
        if is_wrong and not goes_wrong(seed, mutation.deaths):
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
        "meeting at once": System(LINE, meeting, batch=AT_ONCE),
    }


def has_failing_run(system: System) -> bool:
    """Whether some run of a small system goes wrong."""
    try:
        return bool(Explorer(system).explore().failures)
    except Exception:
        return True


def first_system(mutation: Mutation) -> str | None:
    """The first of the small systems that has a run which misses the rule, and none with it."""
    for name, system in small_systems().items():
        with Patch.context() as patch:
            mutation.take_out(patch)
            is_wrong = has_failing_run(system)
        if is_wrong and not has_failing_run(system):
            return name
    return None


def main() -> None:
    """Say of each rule what misses it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="of the functions that take a rule out")
    parser.add_argument("--runs", type=int, default=10_000)
    arguments = parser.parse_args()
    for mutation in MUTATIONS:
        if arguments.names and mutation.name not in arguments.names:
            continue
        started = time.process_time()
        system = first_system(mutation)
        seed = first_run(mutation, range(arguments.runs))
        runs = f"not in {arguments.runs} runs" if seed is None else f"run {seed}"
        seconds = time.process_time() - started
        print(
            f"{mutation.name}: {runs}; {system or 'no small system'}; {seconds:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()
