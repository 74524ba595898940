"""What managers of topics say to each other, from broker to broker, and what a log has of that.

A manager is found from the root: it was put where it is on the way down, broker by broker, by a
hash; each broker on that way knows by which child, and all others ask their parents. It stays there
as long as the broker is in the tree, so all that is said to it by one comes in the order in which
it was said. An asker is found by the way that the question has come, which is written on it.

What is known of managers, and what was said and may have to be said again, is a *memory*: texts by
name, of which a step log has the changes. So nothing of it is worked out again in a rebuild, and it
does not matter what else is missing by then.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from plait.broker.errors import RemoteProtocolError
from plait.broker.machine.neighbours import Below, Neighbour, Neighbours, is_client
from plait.broker.machine.steps import Steps
from plait.broker.messages import Errand, To
from plait.faulttol.steplog import remembering
from plait.routing.ids import NodeId
from plait.routing.topics.protocol import Topic

PLACE: Final = "place "
SAID: Final = "said "
"""What a name begins with, and what of."""
NOTHING: Final = b"null"
"""Is said."""


class Memory:
    """What a broker knows of managers, by name, and what of it has changed in this step."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.known: dict[str, str] = {}
        self._changed: dict[str, None] = {}

    def put(self, name: str, text: str) -> None:
        """Know something; nothing, if the text is empty."""
        if self.known.get(name, "") != text:
            remembering(self.known, [(name, text)])
            self._changed[name] = None

    def under(self, beginning: str) -> list[tuple[str, str]]:
        """What is known with such a name, without that beginning."""
        size = len(beginning)
        found = (each for each in self.known.items() if each[0].startswith(beginning))
        return [(name[size:], text) for name, text in found]

    def take_changes(self) -> tuple[tuple[str, str], ...]:
        """What has changed since this was last called."""
        changed, self._changed = self._changed, {}
        return tuple((name, self.known.get(name, "")) for name in changed)

    def learn(self, changes: Iterable[tuple[str, str]]) -> None:
        """Know what a log says."""
        remembering(self.known, changes)


class Errands:
    """Takes errands from broker to broker."""

    def __init__(
        self,
        node: NodeId,
        neighbours: Neighbours,
        steps: Steps,
        memory: Memory,
        carry_out: Callable[[Errand], None],
    ) -> None:
        """Begin with none; what is for this broker is carried out at once."""
        self.node = node
        self.memory = memory
        self._neighbours = neighbours
        self._steps = steps
        self._carry_out = carry_out
        self.places: dict[Topic, NodeId] = {}
        """Where managers are that are not above: the child, or this broker."""
        self._here: deque[Errand] = deque()
        """What is being carried out here, and what is to be carried out after that."""
        self._out: list[tuple[Neighbour, Errand]] = []
        """What is to be sent in this step."""
        self._said: list[tuple[str, NodeId, int]] = []
        """What may have to be sent again, to whom, and in which step it was."""

    # --- from broker to broker --------------------------------------------------------------

    def take(self, source: Neighbour, errand: Errand) -> None:
        """Take one that comes from a neighbour."""
        if errand.to is not To.ASKER:
            way = errand.way
            back = way[:-1] if way[-1:] == (source.node,) else (*way, source.node)
            errand = attrs.evolve(errand, way=back)
        self.go(errand, source)

    def go(self, errand: Errand, source: Neighbour | None = None) -> None:
        """Carry it out here, or send it on; one from here has no source, and no way behind it."""
        match errand.to:
            case To.ASKER if errand.way:
                next_one = self._neighbours.named(errand.way[-1])
                if next_one is not None:  # else it has left, with nobody below it
                    self._send(next_one, attrs.evolve(errand, way=errand.way[:-1]))
            case To.EVERYBODY | To.EPOCH:
                for other in self._neighbours.other_brokers(source):
                    self._send(other, errand)
                self._do(errand)
            case To.MANAGER:
                self._towards(self._place_of(errand.topic), errand)
            case To.COORDINATOR:
                parent = self._neighbours.parent
                self._towards(self.node if parent is None else parent.node, errand)
            case To.PLACE:
                place = self._choose(errand.topic)
                self.places[errand.topic] = place
                self.memory.put(PLACE + errand.topic, place)
                self._towards(place, errand)
            case _:
                self._do(errand)

    def _towards(self, node: NodeId, errand: Errand) -> None:
        if node == self.node:
            self._do(errand)
            return
        neighbour = self._neighbours.named(node)
        assert neighbour is not None, f"{node} was to be a neighbour of {self.node} for ever"
        self._send(neighbour, errand)

    def _place_of(self, topic: Topic) -> NodeId:
        parent = self._neighbours.parent
        if topic not in self.places and parent is not None:
            return parent.node
        self.place(topic)
        return self.places[topic]

    def place(self, topic: Topic) -> None:
        """At the root: have somebody manage a topic, if nobody does."""
        if topic not in self.places:
            self.go(Errand(to=To.PLACE, topic=topic, asker="", way=(), said=NOTHING))

    def _choose(self, topic: Topic) -> NodeId:
        """This broker or a child, whoever has the largest hash together with the topic."""
        here = [self.node, *(child.node for child in self._neighbours.children())]
        return max(here, key=lambda name: hashlib.sha256(f"{topic}\n{name}".encode()).digest())

    def introduce(self, newcomer: Below, errand: Errand) -> None:
        """Tell a broker that has just joined."""
        self._send(newcomer, errand)

    def _send(self, neighbour: Neighbour, errand: Errand) -> None:
        if is_client(neighbour):
            raise RemoteProtocolError(f"an errand for {neighbour.node}, which is a client")
        self._out.append((neighbour, errand))

    def _do(self, errand: Errand) -> None:
        """Carry out what is for this broker: what comes of it after what was to be done before."""
        self._here.append(errand)
        if len(self._here) == 1:
            while self._here:
                self._carry_out(self._here[0])
                self._here.popleft()

    # --- what a log has of it -----------------------------------------------------------------

    def end_step(self) -> None:
        """Send what is to be sent."""
        for neighbour, errand in self._out:
            self._steps.send(neighbour, errand)
            name = f"{SAID}{self._steps.number} {len(self._said)}"
            self._said.append((name, neighbour.node, self._steps.number))
            self.memory.put(name, _text_of(neighbour.node, errand))
        self._out.clear()

    def forget_what_is_over(self) -> None:
        """Forget what was said that nobody will ask for again."""
        kept = []
        for name, node, step in self._said:
            neighbour = self._neighbours.named(node)
            if neighbour is None or step <= neighbour.forgot:
                self.memory.put(name, "")
            else:
                kept.append((name, node, step))
        self._said = kept

    def begin_life(self) -> None:
        """Know where managers are, and say again what was said before a log begins."""
        self.places = {Topic(name): NodeId(text) for name, text in self.memory.under(PLACE)}
        self._say_again(self.memory.under(SAID))

    def end_again(self, changes: Mapping[str, str]) -> None:
        """Say again what was said in this step."""
        for name, text in changes.items():
            if name.startswith(PLACE):
                self.places[Topic(name.removeprefix(PLACE))] = NodeId(text)
        said = {n: text for n, text in changes.items() if n.startswith(SAID)}
        gone = {name for name, text in said.items() if not text}
        self._said = [each for each in self._said if each[0] not in gone]
        self._say_again((n.removeprefix(SAID), text) for n, text in said.items() if text)

    def _say_again(self, said: Iterable[tuple[str, str]]) -> None:
        """Have the messages of these steps among what is kept for neighbours."""
        number = self._steps.number
        for name, text in sorted(said, key=lambda each: [int(n) for n in each[0].split()]):
            node, errand = _errand_of(text)
            step = self._steps.number = int(name.split()[0])
            neighbour = self._neighbours.named(node)
            if neighbour is not None:
                self._steps.send(neighbour, errand)
                self._said.append((SAID + name, node, step))
        self._steps.number = number


def _text_of(node: NodeId, errand: Errand) -> str:
    to, topic, asker, way, said = attrs.astuple(errand)
    return json.dumps([node, to, topic, asker, way, said.decode()], ensure_ascii=False)


def _errand_of(text: str) -> tuple[NodeId, Errand]:
    node, to, topic, asker, way, said = json.loads(text)
    errand = Errand(to=To(to), topic=topic, asker=asker, way=tuple(way), said=said.encode())
    return node, errand
