"""What goes wrong in a random run beside crashes: clocks, pauses, cuts, twins, two far apart.

Each kind is drawn from random numbers of its own. Whatever may make somebody be taken for failed,
rightly or not, counts as a failure, and is left out while as many are not over as may be.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from plait.broker.sim.cuts import Cut
from plait.broker.sim.nodes import DiskState, Node
from plait.broker.sim.world import World
from plait.routing.ids import NodeId

PAUSE: Final = (0.05, 0.9)
"""For how many heartbeat timeouts a machine is paused: nobody may be taken for failed on that."""
JUMP: Final = (0.05, 3.0)
"""By how many of them a clock goes forward."""
CUT: Final = (0.5, 5.0)
"""For how many of them nothing gets through."""
APART: Final = 3
"""So many links from each other, two brokers have no neighbour in common: they fail by themselves,
each within its own δ."""


@attrs.frozen(kw_only=True)
class Troubles:
    """How much of it there is."""

    drift: float = 0.0
    """By how many percent a clock may run too fast or too slow."""
    jumps: int = 0
    """Times that a clock goes forward, at most."""
    pauses: int = 0
    """Times that a machine stands still, clock and all, at most, beside those while a neighbour
    crashes."""
    step_cost_ms: float = 0.0
    """How long a node takes for a message, more or less."""
    cuts: int = 0
    """Times that nothing gets through between two nodes, or one and all others, at most."""
    twins: int = 0
    """Brokers that are started a second time while they run, at most."""
    pairs: int = 0
    """Times that two brokers far from each other are killed at once, at most."""
    bad_disks: bool = False
    """Whether a broker that is started again may have an old state, or none."""

    @property
    def are_timed(self) -> bool:
        """Whether they show only where time passes, and heartbeats."""
        return bool(self.drift or self.jumps or self.pauses or self.cuts)


NO_TROUBLES: Final = Troubles()


class Faults:
    """Puts the troubles of a run on the calendar of its world."""

    def __init__(
        self,
        world: World,
        troubles: Troubles,
        *,
        may_fail: Callable[[], bool],
        kill: Callable[[NodeId], None],
    ) -> None:
        """With `may_fail` asking whether one more may fail, and `kill` killing a broker."""
        self._world = world
        self._troubles = troubles
        self._may_fail = may_fail
        self._kill = kill

    def begin(self, first: float, last: float) -> None:
        """Let things happen between these times of the world."""
        troubles = self._troubles
        for about, most, happen in (
            ("jumps", troubles.jumps, self._jump),
            ("pauses", troubles.pauses, self._pause),
            ("cuts", troubles.cuts, self._cut),
            ("twins", troubles.twins, self._start_twin),
            ("pairs", troubles.pairs, self._kill_two),
        ):
            chance = self._world.chance(about)
            for _ in range(chance.randint(1, most) if most else 0):
                self._world.at(chance.uniform(first, last), happen, chance)

    def before_crash(self, victim: NodeId) -> None:
        """Somebody is about to be killed: a machine next to it may stand still just then."""
        chance = self._world.chance("pauses beside crashes")
        near = [name for link in self._world.links() if victim in link for name in link]
        near = [name for name in near if name != victim]
        if self._troubles.pauses and near and chance.random() < 0.5:
            delay = chance.choice((0.0, 0.02, 0.1)) * chance.random()
            seconds = self._timeouts(chance, PAUSE)
            self._world.after(delay, self._world.pause, chance.choice(near), seconds)

    def disk(self) -> DiskState:
        """What a broker that is started again finds."""
        if not self._troubles.bad_disks:
            return DiskState.KEPT
        return self._world.chance("disks").choice(list(DiskState))

    def restart(self, address: NodeId) -> None:
        """Start a broker again that was killed, with what is on its disk."""
        disk = self.disk()
        somebody = [node.address for node in self._hosts() if node.address != address]
        if disk is not DiskState.KEPT and somebody:
            # Whoever starts it knows where the others are: it may have nothing to go by.
            self._world.restart(address, disk, join=self._world.chance("disks").choice(somebody))
        else:
            self._world.restart(address, disk)

    def _timeouts(self, chance: Random, how_many: tuple[float, float]) -> float:
        return chance.uniform(*how_many) * self._world.limits.heartbeat_timeout_s

    def _hosts(self) -> list[Node]:
        return [
            node
            for node in self._world.hosts
            if node.is_alive and node.is_ready and node.frozen is None
        ]

    def _somebody(self, chance: Random) -> Node | None:
        """Any node, a host more often than not."""
        clients = [
            node
            for node in self._world.residents()
            if node.client is not None and node.is_alive and node.frozen is None
        ]
        nodes = clients if clients and chance.random() < 0.25 else self._hosts()
        return chance.choice(nodes) if nodes else None

    def _jump(self, chance: Random) -> None:
        node = self._somebody(chance)
        if node is not None:
            self._world.jump(node.address, self._timeouts(chance, JUMP))

    def _pause(self, chance: Random) -> None:
        node = self._somebody(chance)
        if node is not None:
            self._world.pause(node.address, self._timeouts(chance, PAUSE))

    def _cut(self, chance: Random) -> None:
        links, hosts = self._world.links(), self._hosts()
        if not (links and hosts and self._may_fail()):
            return
        outgoing, incoming = chance.choice(((True, True), (True, False), (False, True)))
        other: NodeId | None = None
        if chance.random() < 0.5:
            one, other = chance.choice(links)
            if self._world.nodes[other].client is not None:
                one, other = other, one
            if self._world.nodes[one].client is not None:
                self._world.have_been_away.add(one)
        else:
            one = chance.choice(hosts).address
        cut = Cut(one=one, other=other, outgoing=outgoing, incoming=incoming)
        self._world.cut(cut)
        self._world.after(self._timeouts(chance, CUT), self._world.heal, cut)

    def _start_twin(self, chance: Random) -> None:
        taken = {node.name for node in self._world.twins.values()}
        hosts = [
            node for node in self._hosts() if node.name not in taken and node.name == node.address
        ]
        if hosts and self._may_fail():
            node = chance.choice(hosts)
            disk = self.disk()
            if disk is DiskState.LOST:
                self._world.start_twin(node.name, disk, join=node.address)
            else:
                self._world.start_twin(node.name, disk)

    def _kill_two(self, chance: Random) -> None:
        if self._world.vulnerable() or not self._may_fail():
            return
        distances = _distances(self._world)
        hosts = [node.name for node in self._hosts() if node.name in distances]
        pairs = [
            (one, other)
            for number, one in enumerate(hosts)
            for other in hosts[:number]
            if distances[one].get(other, 0) >= APART
        ]
        if pairs:
            for name in chance.choice(pairs):
                self._kill(name)


def _distances(world: World) -> dict[NodeId, dict[NodeId, int]]:
    """How many connections hosts are from each other; who is not connected is not there."""
    near: dict[NodeId, list[NodeId]] = defaultdict(list)
    for one, other in world.links():
        if world.nodes[one].host is not None and world.nodes[other].host is not None:
            near[one].append(other)
            near[other].append(one)
    distances = {}
    for one in list(near):
        known, queue = {one: 0}, deque([one])
        while queue:
            name = queue.popleft()
            for beside in near[name]:
                if beside not in known:
                    known[beside] = known[name] + 1
                    queue.append(beside)
        distances[one] = known
    return distances
