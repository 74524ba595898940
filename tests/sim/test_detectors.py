"""Detectors of one pattern find the same, whenever they began, if all publications are ordered."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from plait.broker.client.core import ClientCore
from plait.broker.sim.hosts import HostCores
from plait.broker.sim.nodes import Node
from plait.broker.sim.world import World
from plait.faulttol.guarantees import Report, check
from plait.routing.ids import NodeId
from plait.routing.patterns.detection import Detection

TOPICS = "abc"
WHERE = {"A": "topic = 'a'", "B": "topic = 'b'", "C": "topic = 'c'"}
BROKERS = 6
PUBLICATIONS = 60
BEGIN = 10.0
SECONDS = 0.8


def detections() -> list[Detection]:
    return [
        Detection.of("A -> B -> C", WHERE, policy="contiguous"),
        Detection.of("A -> !C -> B", WHERE, policy="next"),
        Detection.of("A -> B", {k: WHERE[k] for k in "AB"}, policy="any", within=4),
    ]


class Scene:
    """A random tree, publishers at it, and detectors that begin at any time."""

    def __init__(self, seed: int, ordering: str, *, detectors: int = 3, crashes: int = 0) -> None:
        self.world = world = World(
            seed, cores=HostCores(), run=f"detectors-{seed}", delay_s=(0.002, 0.06)
        )
        self.random = world.random
        self.ordering = ordering
        policy = self.random.choice(("filter", "flooding"))
        names = [NodeId(f"b{n}") for n in range(BROKERS)]
        for n, name in enumerate(names):
            parent = names[self.random.randrange(n)] if n else None
            world.add_broker(name, parent, ordering=ordering, policy=policy)
        world.run(until=5.0)
        for n in range(4):
            self.add_publisher(NodeId(f"p{n}"), self.random.choice(names))
        world.run(until=BEGIN)
        for n in range(detectors):
            for number, detection in enumerate(detections()):
                self.add_detector(NodeId(f"s{n}.{number}"), self.random.choice(names), detection)
        for broker in self.random.sample(names, crashes):
            world.at(BEGIN + 1 + SECONDS / 2, world.crash, broker)
        world.run(until=60.0)

    def add_publisher(self, name: NodeId, broker: NodeId) -> None:
        world, node = self.world, self.world.add_client(name, broker)
        world.when_ready(node, lambda: self.call(node, "advertise", "topic IS NOT NULL"))
        for _ in range(PUBLICATIONS):
            at = BEGIN + 1 + self.random.uniform(0, SECONDS)
            content = {"topic": self.random.choice(TOPICS)}
            world.at(at, self.call, node, "publish", content)

    def add_detector(self, name: NodeId, broker: NodeId, detection: Detection) -> None:
        node = self.world.add_client(name, broker)
        begin = BEGIN + self.random.uniform(0.3, 1 + SECONDS)
        self.world.at(begin, self.call, node, "detect", detection)

    def call(self, node: Node, what: str, argument: Any) -> None:
        core = node.core
        assert isinstance(core, ClientCore)
        getattr(core, what)(self.world.now, argument)
        self.world.carry_out_calls(node)

    def report(self, ordering: str = "") -> Report:
        return check(self.world.records(), ordering=ordering or self.ordering)


@pytest.mark.parametrize("ordering", ["pairwise", "sequencer", "tno"])
def test_detectors_that_were_there_agree(ordering: str, seeds: Callable[[int, int], range]) -> None:
    found: Counter[str] = Counter()
    for seed in seeds(2, 100):
        report = Scene(seed, ordering).report()
        found.update(report.figures)

        assert report.is_clean, (seed, [str(violation) for violation in report.violations])
        assert report.guarantees[-1] == "detection"
    assert found["matches"] > 50


@pytest.mark.parametrize("ordering", ["pairwise", "tno"])
def test_a_crash_makes_no_difference(ordering: str, seeds: Callable[[int, int], range]) -> None:
    for seed in seeds(1, 30):
        scene = Scene(seed, ordering, crashes=1)
        report = scene.report()

        assert report.is_clean, (seed, [str(violation) for violation in report.violations])
        begun = [r["detector"] for r in scene.world.records() if r["kind"] == "detecting"]
        assert sorted(begun) == sorted({*begun})


def test_beyond_delta_each_still_finds_what_it_was_given() -> None:
    report = Scene(3, "pairwise", crashes=3).report()

    assert report.is_clean
    assert report.figures["matches"] > 0


@pytest.mark.parametrize("ordering", ["fifo", "tno-tagged"])
def test_elsewhere_each_finds_what_it_was_given(ordering: str) -> None:
    report = Scene(1, ordering).report()

    assert report.is_clean
    assert report.figures["matches alike"] < report.figures["matches"]


def test_the_judge_sees_that_detectors_disagree() -> None:
    violations = Scene(1, "fifo").report("pairwise").violations

    assert any(violation.guarantee == "detection" for violation in violations)
