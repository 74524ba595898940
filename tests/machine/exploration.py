"""Every run of a small system with one crash: every interleaving, every moment, every broker.

The nodes are machines (`broker/machine`) and the simple clients of `overlay.py`; between them are
FIFO links. In each state every link may deliver what comes next, every client may make its next
call, and any broker may fail; when nothing else can happen, a broker tells how far things are.

*States.* A state of a node is what can still make a difference to what it does, in a canonical
form; two histories that lead to the same are one state. A state of the system is the states of its
nodes, and what is on its links. None is entered twice.

*A crash.* A broker fails, and at the same moment its neighbours stop listening to it, attach, and
it is rebuilt; each of them hears of that (`Welcome`) some time later. No run is left out by that:
what a neighbour still hears from a broker that has failed, it may hear before; what the broker
takes and nobody hears of, it may not have taken; and as the tree has no cycles, neighbours of a
broker that has failed have nothing to do with each other, so it does not matter who attaches first.
For the same reason what a crash leads to does not depend on the state of the broker that fails.
There is no second crash.

*Steps that cannot matter.* After the crash, a client that has no calls left only hears from its
broker. So it does not matter when: what it hears, it hears at once.

    python -m tests.machine.exploration [--jobs N] [FAMILY ...]
"""

import argparse
import itertools
import multiprocessing
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from plait.broker.limits import Limits
from plait.broker.machine.invariants import check_invariants
from plait.broker.machine.machine import Machine
from plait.broker.machine.rebuild import rebuild
from plait.broker.messages import Settings
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import BROKER, CLIENT, Standing, Taken
from plait.routing.conflicts import FAST
from plait.routing.ids import NodeId
from tests.machine.automata import (
    CALL,
    FAILED,
    FLUSH,
    LAZY,
    Automaton,
    BrokerNode,
    Client,
    LeafNode,
    Node,
    Outcome,
    Parcels,
    Welcome,
    count_of_published,
    described,
    got,
    number_of,
    wants,
)
from tests.machine.overlay import compare, disagreements, snapshot, wrong_in

MOST: Final = 10_000_000
"""So many states fit into 4 GB."""


@attrs.frozen
class System:
    """A tree of brokers, each with its parent, the root first; and its clients."""

    brokers: Mapping[str, str | None]
    clients: Sequence[Client]
    ordering: str = "pairwise"
    policy: str = "filter"
    detection: str = FAST
    batch: int = 1
    """How much progress there has to be before it is told while other things happen."""
    crashing: Sequence[str] | None = None
    """Of the brokers, those of which one may fail; None: any."""


@attrs.frozen(kw_only=True)
class Exploration:
    """What there was to be seen."""

    states: int
    """Before the crash, and without any."""
    crashes: int
    """That lead to different states."""
    states_after: int
    endings: int
    compared: int
    """Rebuilt brokers that were compared with the one that was lost, in different states."""
    uncompared: int
    failures: tuple[str, ...]
    """The first, with a shortest run that leads to it."""
    is_complete: bool = True
    """Whether there was nothing more to be seen."""


_States = tuple[int, ...]
_Queues = tuple[tuple[int, ...], ...]
_State = tuple[_States, _Queues, int, int]
"""States of all nodes; what is on each link; what is owed; the broker that has failed, or -1."""


class Explorer:
    """The automata of all nodes, and the links between them."""

    def __init__(self, system: System) -> None:
        """Begin before anything has happened."""
        self._system = system
        self._settings = Settings(
            ordering=system.ordering, policy=system.policy, delta=1, detection=system.detection
        )
        self._limits = Limits(progress_batch=system.batch)
        self._parent = {
            NodeId(node): None if parent is None else NodeId(parent)
            for node, parent in system.brokers.items()
        }
        self._brokers = list(self._parent)
        self._parent |= {NodeId(client.name): NodeId(client.at) for client in system.clients}
        self._nodes = list(self._parent)
        self._places = {node: place for place, node in enumerate(self._nodes)}
        crashing = system.crashing
        crashed = self._brokers if crashing is None else map(NodeId, crashing)
        self._crashing = [self._places[broker] for broker in crashed]
        self._around = {
            node: [n for n in self._nodes if self._parent[n] == node or n == self._parent[node]]
            for node in self._nodes
        }
        self._links = [(n, to) for n in self._nodes for to in self._around[n]]
        self._link = {pair: place for place, pair in enumerate(self._links)}
        self._into = [[self._link[n, node] for n in self._around[node]] for node in self._nodes]
        self._parcels = parcels = Parcels()
        self._automata = [Automaton(node, self._around[node], parcels) for node in self._nodes]
        self._contents = self._all_publications()
        self._debts: list[frozenset[Any]] = [frozenset()]
        self._debt_numbers: dict[frozenset[Any], int] = {frozenset(): 0}
        self._disagreed: dict[_States, list[str]] = {}
        self._rebuilt: dict[tuple[int, _States], tuple[Outcome, int, Any]] = {}
        self._compared: dict[tuple[int, _States], set[int]] = {}
        self.start = self._set_up()

    def _all_publications(self) -> dict[Any, tuple[int, int, int]]:
        contents = {}
        for client in self._system.clients:
            numbers = itertools.count(1)
            for call in (*client.before, *client.calls):
                if call[0] == "publish":
                    for _ in range(call[1]):
                        contents[NodeId(client.name), 1, next(numbers)] = (0, call[2], 0)
        return contents

    # --- set-up -----------------------------------------------------------------------------

    def _set_up(self) -> _State:
        states = []
        for place, node in enumerate(self._nodes):
            if node in self._brokers:
                bear: Callable[[], Node] = self._bear_broker(node)
            else:
                client = self._system.clients[place - len(self._brokers)]
                bear = self._bear_leaf(client)
            states.append(self._automata[place].born(bear).state)
        state: _State = (tuple(states), ((),) * len(self._links), 0, -1)
        for client in self._system.clients:
            for _ in client.before:
                state = self._settled(self._called(state, self._places[NodeId(client.name)]))
        return state

    def _bear_broker(self, name: NodeId) -> Callable[[], Node]:
        def bear() -> Node:
            machine = Machine(
                name,
                self._parent[name],
                settings=self._settings,
                limits=self._limits,
                outbox=Outbox(),
            )
            machine.has_joined = True
            for node in self._around[name]:
                if node != self._parent[name]:
                    is_broker = node in self._brokers
                    kind, incarnation = (BROKER, 0) if is_broker else (CLIENT, 1)
                    standing = Standing(kind=kind, incarnation=incarnation, has_joined=True)
                    machine.welcome(node, standing)
            return BrokerNode(machine)

        return bear

    def _bear_leaf(self, client: Client) -> Callable[[], Node]:
        return lambda: LeafNode(
            client, self._settings, self._contents, is_quiet=self._system.batch > 1
        )

    def _settled(self, state: _State) -> _State:
        """The state after all that is on its way has happened, in some order."""
        while True:
            steps = [step for step in self._steps(state) if step[1] != CALL]
            if not steps:
                return state
            state = self._taken(state, steps[0])

    # --- steps ------------------------------------------------------------------------------

    def _steps(self, state: _State) -> list[tuple[int, int]]:
        """What may happen next: to whom, and which link delivers, or what it does by itself."""
        states, queues, _, lost = state
        steps = []
        for place in range(len(self._nodes)):
            arriving = [(place, link) for link in self._into[place] if queues[link]]
            if lost >= 0 and arriving and self._all_speak(place, states, queues):
                return arriving
            if place >= len(self._brokers):
                if self._calls_left(place, states[place]):
                    arriving.append((place, CALL))
                elif arriving and lost >= 0:
                    return arriving  # it cannot matter when
            steps += arriving
        if not steps:
            steps = [
                (place, FLUSH)
                for place, automaton in enumerate(self._automata)
                if automaton.note(states[place], "lazy", lambda node: node.is_lazy())
            ]
            if lost >= 0 or self._system.batch > 1:
                return steps[:1]
        return steps

    def _all_speak(self, place: int, states: _States, queues: _Queues) -> bool:
        """Whether nothing else that happens can change what this broker may hear next."""
        return place < len(self._brokers) and all(
            queues[link] or self._is_silent(self._links[link][0], states)
            for link in self._into[place]
        )

    def _is_silent(self, node: NodeId, states: _States) -> bool:
        place = self._places[node]
        if place < len(self._brokers):
            return False
        return bool(self._automata[place].note(states[place], "silent", LeafNode.is_silent))

    def _calls_left(self, place: int, state: int) -> bool:
        return bool(self._automata[place].note(state, "calls", lambda leaf: len(leaf.calls)))

    def _taken(self, state: _State, step: tuple[int, int]) -> _State:
        place, what = step
        if what == CALL:
            return self._called(state, place)
        states, queues, owed, lost = state
        if what == FLUSH:
            outcome = self._automata[place].after(states[place], FLUSH, self._nodes[place])
        else:
            parcel, *rest = queues[what]
            queues = (*queues[:what], tuple(rest), *queues[what + 1 :])
            outcome = self._automata[place].after(states[place], parcel, self._links[what][0])
        return (*self._sent(states, queues, place, outcome), owed, lost)

    def _called(self, state: _State, place: int) -> _State:
        """The state after a client has made its next call."""
        states, queues, owed, lost = state
        outcome = self._automata[place].after(states[place], CALL, self._nodes[place])
        before = self._automata[place].note(states[place], "published", count_of_published)
        after = self._automata[place].note(outcome.state, "published", count_of_published)
        if after > before:
            keys = [(self._nodes[place], 1, seq) for seq in range(before + 1, after + 1)]
            owed = self._owed_too(owed, states, keys)
        sent = self._sent(states, queues, place, outcome)
        return (*sent, self._still_owed(owed, place, outcome.state), lost)

    def _owed_too(self, owed: int, states: _States, keys: Sequence[Any]) -> int:
        """What is owed, once these have been published to those who wait for them."""
        debts = set(self._debts[owed])
        for place in range(len(self._brokers), len(self._nodes)):
            wanted = self._automata[place].note(states[place], "wants", wants)
            debts |= {(self._nodes[place], key) for key in keys if self._is_wanted(key, wanted)}
        return self._number_of(frozenset(debts))

    def _still_owed(self, owed: int, place: int, state: int) -> int:
        """What is owed, if this client may have given something up."""
        wanted = self._automata[place].note(state, "wants", wants)
        node = self._nodes[place]
        return self._number_of(
            frozenset(
                (whom, key)
                for whom, key in self._debts[owed]
                if whom != node or self._is_wanted(key, wanted)
            )
        )

    def _is_wanted(self, key: Any, wanted: Sequence[Any]) -> bool:
        return any(each.matches({"x": self._contents[key][1]}) for each in wanted)

    def _number_of(self, frozen: frozenset[Any]) -> int:
        number = self._debt_numbers.setdefault(frozen, len(self._debts))
        if number == len(self._debts):
            self._debts.append(frozen)
        return number

    def _sent(
        self, states: _States, queues: _Queues, place: int, outcome: Outcome
    ) -> tuple[_States, _Queues]:
        if outcome.sent:
            longer = list(queues)
            for to, parcel in outcome.sent:
                longer[self._link[self._nodes[place], to]] += (parcel,)
            queues = tuple(longer)
        return (*states[:place], outcome.state, *states[place + 1 :]), queues

    # --- the crash --------------------------------------------------------------------------

    def _crash(self, state: _State, place: int) -> tuple[_State, list[str]]:
        """The state after a broker has failed and been rebuilt; and in what it is another one."""
        states, queues, owed, _ = state
        node = self._nodes[place]
        alive = list(states)
        boundary = [self._places[n] for n in self._around[node]]
        for each in range(len(self._nodes)):
            if each != place:
                alive[each] = self._automata[each].after(states[each], FAILED, node).state
        key = place, tuple(alive[each] for each in boundary)
        if key not in self._rebuilt:
            self._rebuilt[key] = self._rebuild(node, boundary, alive)
            self._compared[key] = set()
        outcome, known, found = self._rebuilt[key]
        differences: list[str] = []
        lost = states[place]
        number = self._automata[place].note(lost, "number", number_of)
        if number == known and lost not in self._compared[key]:
            self._compared[key].add(lost)
            was = self._automata[place].note(lost, "snapshot", lambda n: snapshot(n.machine))
            differences = compare(was, found, set())
        alive[place] = outcome.state
        links = list(queues)
        for other in self._around[node]:
            links[self._link[node, other]] = links[self._link[other, node]] = ()
        after, sent = self._sent(tuple(alive), tuple(links), place, outcome)
        return (after, sent, owed, place), differences

    def _rebuild(
        self, node: NodeId, boundary: Sequence[int], alive: Sequence[int]
    ) -> tuple[Outcome, int, Any]:
        attachments = [
            self._automata[each].note(alive[each], "attach", lambda n: n.attach(node))
            for each in boundary
        ]
        taken = {each.node: each.taken for each in attachments}
        states: list[Any] = []

        def bear() -> Node:
            new = rebuild(
                {node: self._parent[node]},
                attachments,
                settings=self._settings,
                limits=LAZY,
                outbox=Outbox(),
                now=0.0,
            )[node]
            states.append((new.steps.number, snapshot(new)))
            broker = BrokerNode(new)
            broker.is_after = True
            new.steps.begin(Taken.REPLAY)
            for neighbour in new.send_again():
                broker.out.append((neighbour.node, Welcome(neighbour.taken)))
                broker.send_since(neighbour, taken[neighbour.node])
            broker.tell(new.tell_all())
            check_invariants(new)
            return broker

        outcome = self._automata[self._places[node]].born(bear)
        known = max(each.logs[node].last for each in attachments)
        number, found = states[0]
        return outcome, known if known == number else -1, found

    # --- the search -------------------------------------------------------------------------

    def explore(self, most: int = MOST) -> Exploration:
        """Visit every state, in the order of the steps that it takes, or until one is wrong."""
        came_from: dict[int, tuple[int, tuple[int, int]]] = {hash(self.start): (0, (0, 0))}
        layer = [self.start]
        counts: Counter[str] = Counter()
        failures: list[str] = []
        while layer and len(came_from) < most and not failures:
            following: list[_State] = []
            for state in layer:
                counts["after" if state[3] >= 0 else "before"] += 1
                texts, nexts = self._look(state, counts)
                for text in texts:
                    failures.append("\n".join((text, *self._transcript(state, came_from))))
                for step, after in nexts:
                    number = hash(after)
                    if number not in came_from:
                        came_from[number] = hash(state), step
                        following.append(after)
                if failures:
                    break
            layer = following
        return Exploration(
            states=counts["before"],
            crashes=counts["crashes"],
            states_after=counts["after"],
            endings=counts["endings"],
            compared=sum(map(len, self._compared.values())),
            uncompared=sum(not lost for lost in self._compared.values()),
            failures=tuple(failures),
            is_complete=not layer,
        )

    def _look(
        self, state: _State, counts: Counter[str]
    ) -> tuple[list[str], list[tuple[tuple[int, int], _State]]]:
        """What is wrong with a state, and what follows it."""
        texts = self._disagreements(state[0])
        nexts = []
        steps = self._steps(state)
        for step in steps:
            try:
                nexts.append((step, self._taken(state, step)))
            except Exception as error:
                texts.append(f"{self._text(state, step)}: {type(error).__name__} {error}")
        if not steps:
            counts["endings"] += 1
            texts += self._judge(state)
        if state[3] < 0:
            for place in self._crashing:
                try:
                    after, differences = self._crash(state, place)
                except Exception as error:
                    texts.append(f"{self._nodes[place]} fails: {type(error).__name__} {error}")
                    continue
                texts += differences
                counts["crashes"] += 1
                nexts.append(((place, FAILED), after))
        return texts, nexts

    def _disagreements(self, states: _States) -> list[str]:
        """What clients have delivered twice, out of order, or in two orders."""
        first = len(self._brokers)
        heard = states[first:]
        if heard not in self._disagreed:
            orders = {
                self._nodes[place]: self._automata[place].note(states[place], "got", got)
                for place in range(first, len(self._nodes))
            }
            self._disagreed[heard] = [
                text for node, keys in orders.items() for text in wrong_in(node, keys)
            ] + disagreements(orders)
        return self._disagreed[heard]

    def _judge(self, state: _State) -> list[str]:
        """What is wrong with a run that has come to its end."""
        states, _, owed, _ = state
        texts = []
        for place, automaton in enumerate(self._automata):
            texts += automaton.note(states[place], "unfinished", lambda n: list(n.unfinished()))
        for node, key in sorted(self._debts[owed]):
            place = self._places[node]
            if key not in self._automata[place].note(states[place], "got", got):
                texts.append(f"{node} lacks {key[0]}:{key[2]}")
        return texts

    def _transcript(
        self, state: _State, came_from: Mapping[int, tuple[int, tuple[int, int]]]
    ) -> list[str]:
        """A shortest run that leads to a state."""
        steps, number = [], hash(state)
        while number != hash(self.start):
            number, step = came_from[number]
            steps.append(step)
        lines, state = [], self.start
        for step in reversed(steps):
            lines.append("  " + self._text(state, step))
            is_crash = step[1] == FAILED
            state = self._crash(state, step[0])[0] if is_crash else self._taken(state, step)
        return lines

    def _text(self, state: _State, step: tuple[int, int]) -> str:
        place, what = step
        node = self._nodes[place]
        if what == FAILED:
            return f"{node} fails, and is rebuilt"
        if what == FLUSH:
            return f"{node} tells how far things are"
        if what == CALL:
            call = self._automata[place].note(state[0][place], "call", lambda n: n.calls[0])
            return f"{node} calls {call}"
        parcel = self._parcels.parcels[state[1][what][0]]
        return f"{self._links[what][0]} -> {node}: {described(parcel)}"


# Families of systems

Tree = Mapping[str, str | None]

PAIR: Final[Tree] = {"a": None, "b": "a"}
LINE: Final[Tree] = {"a": None, "b": "a", "c": "b"}
"""Three in a row, with the root at one end."""
FORK: Final[Tree] = {"b": None, "a": "b", "c": "b"}
"""Three in a row, with the root in the middle."""
AT_ONCE, WHEN_QUIET = 1, 9
"""When progress is told: at once, or when nothing else is on its way."""


def publisher(number: int, at: str, count: int) -> Client:
    """One that advertises `x = number`, and publishes that so often."""
    publishes = (("publish", 1, number),) * count
    return Client(f"p{number}", at, (("advertise", f"x = {number}"),), publishes)


def subscriber(number: int, at: str, *wishes: str, is_late: bool = False) -> Client:
    """One that wants this or everything, from the beginning, or at some moment of the search."""
    calls = tuple(("subscribe", wish) for wish in wishes or ("x >= 0",))
    return Client(f"s{number}", at, () if is_late else calls, calls if is_late else ())


def placements(
    tree: Tree, counts: tuple[int, int], *, batch: int, is_late: bool = False
) -> Iterator[System]:
    """Two publishers and two subscribers at the three brokers, in every way up to symmetry."""
    seen: set[Any] = set()
    for publishing in itertools.product(tree, repeat=2):
        for subscribing in itertools.product(tree, repeat=2):
            key = _placement(counts, publishing, subscribing, is_late)
            mirror = str.maketrans("ac", "ca" if tree is FORK else "ac")
            there = [at.translate(mirror) for at in (*publishing, *subscribing)]
            if key in seen:
                continue
            seen |= {key, _placement(counts, there[:2], there[2:], is_late)}
            clients = [
                *(publisher(n, at, counts[n]) for n, at in enumerate(publishing)),
                *(
                    subscriber(n, at, is_late=is_late and n == 1)
                    for n, at in enumerate(subscribing)
                ),
            ]
            yield System(tree, clients, batch=batch)


def _placement(
    counts: tuple[int, int], publishing: Iterable[str], subscribing: Iterable[str], is_late: bool
) -> Any:
    """The same for all that differ in names only."""
    publishers = zip(counts, publishing, strict=True)
    subscribers = zip((False, is_late), subscribing, strict=True)
    return tuple(sorted(publishers)), tuple(sorted(subscribers))


FAMILIES: Final[Mapping[str, tuple[tuple[int, int], int, bool]]] = {
    "one-each": ((1, 1), WHEN_QUIET, False),
    "one-each-at-once": ((1, 1), AT_ONCE, False),
    "subscribing": ((1, 1), WHEN_QUIET, True),
    "two-and-one": ((2, 1), WHEN_QUIET, False),
    "two-each": ((2, 2), WHEN_QUIET, False),
}
"""How many each publishes, when progress is told, and whether a subscription is under way."""


@attrs.frozen
class Task:
    """One system of a family."""

    family: str
    tree: str
    system: System

    def __str__(self) -> str:
        places = " ".join(f"{client.name}@{client.at}" for client in self.system.clients)
        return f"{self.family}, {self.tree}, {places}"


def tasks(families: Iterable[str]) -> list[Task]:
    """Every placement of these families on both trees."""
    trees = {"line": LINE, "fork": FORK}
    return [
        Task(family, name, system)
        for family, (name, tree) in itertools.product(families, trees.items())
        for counts, batch, is_late in [FAMILIES[family]]
        for system in placements(tree, counts, batch=batch, is_late=is_late)
    ]


def explored(task: Task) -> tuple[Task, Exploration, float]:
    """What there was to be seen, and how long it took."""
    started = time.process_time()
    found = Explorer(task.system).explore()
    return task, found, time.process_time() - started


def main() -> None:
    """Explore every placement of these families on both trees, and say what there was."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("families", nargs="*", default=[*FAMILIES], metavar="family")
    parser.add_argument("--jobs", type=int, default=1, help="systems at a time")
    arguments = parser.parse_args()
    todo = tasks(arguments.families)
    totals: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    with multiprocessing.Pool(arguments.jobs, maxtasksperchild=1) as pool:
        for done, (task, found, seconds) in enumerate(pool.imap_unordered(explored, todo), 1):
            total = totals[task.family, task.tree]
            total["systems"] += 1
            total["failing"] += bool(found.failures)
            total["not complete"] += not (found.is_complete or found.failures)
            for each in ("states", "crashes", "states_after", "endings", "compared", "uncompared"):
                total[each] += getattr(found, each)
            total["seconds"] += round(seconds)
            states = found.states + found.states_after
            verdict = "FAILS" if found.failures else "ok" if found.is_complete else "not complete"
            print(
                f"{done} of {len(todo)}: {task}: {verdict}, {states:,} states, {seconds:.0f} s",
                *found.failures,
                flush=True,
            )
    for (family, tree), total in totals.items():
        counted = ", ".join(f"{each} {count:,}" for each, count in total.items())
        print(f"{family}, {tree}: {counted}", flush=True)


if __name__ == "__main__":
    main()
