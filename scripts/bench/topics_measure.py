"""What `plait bench topics` tries, and what it notes of each try: a point in one of its figures."""

import enum
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import attrs

from plait.routing.orderings import HASH, HASH_COUNT, HASH_RATE, ORDERINGS_OF_HOSTS
from plait.routing.patterns.detection import Detection
from plait.routing.patterns.detector import Detector
from plait.routing.topics.popularity import ALPHA, BETA
from plait.scripts.bench.topics_model import NONE, TAGGING, TOTAL, Model, Modelled
from plait.scripts.bench.topics_swaps import SHUFFLED_AT, Order, Shuffle, shuffle, swap
from plait.scripts.bench.topics_workload import (
    ADSL,
    COST_WORKLOADS,
    SUBSCRIBERS_MAX,
    Event,
    Law,
    Scene,
    cost_scene,
    detectors,
    everybody_wants_everything,
    moving_topics,
    some_want_some,
)
from plait.scripts.bench.topics_world import Played, play

FIFO: Final = "fifo"
PAIRWISE: Final = "pairwise"
SEQUENCER: Final = "sequencer"
TNO: Final = "tno"
TNO_TAGGED: Final = "tno-tagged"
TNO_HASHED: Final = f"{TNO}, {HASH}"
MOVED: Final = (TNO_HASHED, f"{TNO}, {HASH_COUNT}", f"{TNO}, {HASH_RATE}")
"""Where topics have an order of their own: it stays, moves as published, moves by rates."""
_WISHED: Final = (
    FIFO,
    PAIRWISE,
    SEQUENCER,
    TNO,
    TNO_HASHED,
    TNO_TAGGED,
    "tno-published-2011",
    "tno-published-2015",
)
COMPARED: Final = tuple(name for name in _WISHED if name.split(", ")[0] in ORDERINGS_OF_HOSTS)
"""Those that there are, in the order in which they are shown: an ordering, and where managers are,
if not at the summits of their topics.
"""

AS_REPORTED: Final = "document's, modelled"
UNORDERED_MODEL: Final = "SCRIBE, modelled"
TOTAL_MODEL: Final = "total, modelled"
JGROUPS: Final = "sequencer, star"

LAWS: Final = (Law.WORST, Law.UNIFORM, Law.STEEP)
TOPICS: Final = 50
TOPICS_FEW: Final = 5
BUFFERS: Final = (0, 1, 2, 5, 10, 20, 50)
DETECTORS_BUFFERS: Final = (0, 5, 30, math.inf)
INFINITE_S: Final = 1e9
PATTERN_EVENTS: Final = 1_000
RATES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
PROTOTYPE_SIZES: Final = (1, 2, 4, 6, 8, 10)
PROTOTYPE_RATES: Final = (5.0, 10.0, 20.0, 50.0, 100.0)
PROTOTYPE_FANOUT: Final = 3
"""Less than in large overlays: ten brokers would all be below the root."""
BODY_BYTES: Final = 200
"""Of publications, where lines are narrow; the document does not say."""
EACH: Final = (5, 10, 20, 30, 40, 50)
ALPHAS: Final = (0.1, 0.3, 0.5)
BETAS: Final = (0.1, 0.2, 0.3)
SHUFFLES_S: Final = (300, 900, 1_800, 3_600)


class Study(enum.StrEnum):
    """What is tried, each for some figures."""

    COST = "cost"
    SIZES = "sizes"
    SUBSCRIPTIONS = "subscriptions"
    BUFFERS = "buffers"
    MOVING = "moving"
    PATTERNS = "patterns"
    PROTOTYPE = "prototype"
    RATES = "rates"


@attrs.frozen(kw_only=True)
class Point:
    """One system in one scene."""

    study: Study
    system: str
    law: str = ""
    x: float
    """What is varied."""
    is_model: bool = False
    latency_s: float = math.nan
    """Until the last subscriber has it."""
    stamping_s: float = math.nan
    """That part of it that it takes to get a stamp; where that is known."""
    delay_s: float = math.nan
    """Of all deliveries."""
    within_1_s: float = math.nan
    """The share of publications that all their subscribers have within a second."""
    tagged: float = math.nan
    """The share of deliveries that come out of order, and are said to."""
    entries: float = math.nan
    """Of a stamp."""
    stamp_bytes: float = math.nan
    """Of a message with a stamp."""
    stamp_sizes: dict[int, int] = attrs.field(factory=dict)
    messages: float = math.nan
    """With a publication, or about its order."""
    sendings: float = math.nan
    """How often one node sends another one any of these."""
    for_others: float = math.nan
    """Of what managers are asked, the share on account of other topics."""
    contiguous: float = math.nan
    """The share of the patterns that any detector finds, that all find."""
    following: float = math.nan
    """The same, if anything may stand between."""
    disagreements: int = 0


@attrs.frozen(kw_only=True)
class Moving:
    """One run of topics that move: means over several."""

    order: str
    alpha: float
    beta: float
    shuffled_at: int | None
    swaps: float
    latency: Sequence[tuple[float, float]]
    bytes: Sequence[tuple[float, float]]
    visited_last: float
    """Managers visited in the last 300 s."""


@attrs.frozen(kw_only=True)
class MovingOnCores:
    """One run of topics that move on hosts, with a shuffle of popularity."""

    system: str
    shuffled_at: float
    latency: Sequence[tuple[float, float]]
    """Of some publications at a time, with when they were published."""

    def mean_s(self, first: float, last: float) -> float:
        """Of those published between two moments; NaN if there are none."""
        part = [latency for at, latency in self.latency if first <= at < last]
        return statistics.fmean(part) if part else math.nan


@attrs.frozen(kw_only=True)
class TopicSession:
    """What to measure."""

    studies: Sequence[Study] = tuple(Study)
    orderings: Sequence[str] = COMPARED
    sizes: Sequence[int] = (10, 30, 100, 300, 1_000)
    """On the cores."""
    model_sizes: Sequence[int] = (10, 30, 100, 300, 1_000, 3_000, 10_000)
    publications: int = 100
    rounds: int = 3
    """Of a model, which takes no time: another ring of nodes each."""
    each: Sequence[int] = EACH
    subscribing: int = 30
    """Brokers on the cores where everybody has a subscription of its own."""
    rates: Sequence[float] = RATES
    prototype_sizes: Sequence[int] = PROTOTYPE_SIZES
    prototype_rates: Sequence[float] = PROTOTYPE_RATES
    rates_s: float = 10.0
    """For so long at least; else nothing could pile up."""
    detecting: int = 40
    """Brokers among which detectors and publishers are."""
    placements: int = 6
    """Of these: how often detectors disagree depends on where they are."""
    pattern_events: int = PATTERN_EVENTS
    shuffles_s: Sequence[int] = SHUFFLES_S
    moving_runs: int = 10
    moving_on_cores: int = 1_200
    """Publications, one a second; in the middle of them popularity is shuffled."""
    workloads: Sequence[str] = COST_WORKLOADS
    seed: int = 0
    tell: Callable[[str], None] = lambda _: None
    """Is told what comes next."""


QUICK: Final = TopicSession(
    sizes=(10,),
    model_sizes=(10, 100),
    publications=20,
    rounds=1,
    orderings=(FIFO, PAIRWISE, SEQUENCER, TNO, TNO_TAGGED),
    each=(5, 50),
    subscribing=10,
    rates=(5.0,),
    prototype_sizes=(1, 4),
    prototype_rates=(5.0, 100.0),
    rates_s=1.0,
    detecting=10,
    placements=2,
    pattern_events=100,
    workloads=COST_WORKLOADS[2:3],
    shuffles_s=(300,),
    moving_runs=2,
    moving_on_cores=60,
)
"""In seconds: that all of it works, and little more."""


def points(session: TopicSession) -> Iterator[Point]:
    """All points of a session, but those of topics that move."""
    studies: dict[Study, Callable[[TopicSession], Iterable[Point]]] = {
        Study.COST: _costs,
        Study.SIZES: _sizes,
        Study.SUBSCRIPTIONS: _subscriptions,
        Study.BUFFERS: _buffers,
        Study.PATTERNS: _patterns,
        Study.PROTOTYPE: _prototype,
        Study.RATES: _rates,
    }
    for study, measure in studies.items():
        if study in session.studies:
            yield from measure(session)


# --- what there is to note ------------------------------------------------------------------------


def _of_played(study: Study, system: str, x: float, law: str, played: Played) -> Point:
    is_stamped = bool(played.stamps)
    return Point(
        study=study,
        system=system,
        law=law,
        x=x,
        latency_s=played.mean_latency_s,
        delay_s=played.mean_delay_s,
        within_1_s=played.share_within_1_s,
        tagged=played.share_tagged,
        entries=played.mean_entries if is_stamped else math.nan,
        stamp_bytes=played.mean_stamp_bytes if is_stamped else math.nan,
        stamp_sizes=dict(played.stamp_sizes),
        messages=played.messages_per_publication,
        sendings=played.batches / len(played.fates),
        disagreements=played.disagreements,
    )


def _of_modelled(study: Study, system: str, x: float, law: str, all_: Sequence[Modelled]) -> Point:
    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(all_)

    return Point(
        study=study,
        system=system,
        law=law,
        x=x,
        is_model=True,
        latency_s=mean(one.mean_latency_s for one in all_),
        stamping_s=mean(one.mean_stamping_s for one in all_),
        delay_s=mean(one.mean_delay_s for one in all_),
        within_1_s=mean(one.share_within_1_s for one in all_),
        tagged=mean(one.share_tagged for one in all_),
        entries=mean(one.mean_entries for one in all_),
        for_others=mean(one.share_for_others for one in all_),
    )


def _model_all(
    study: Study, x: float, session: TopicSession, make: Callable[[int], Scene]
) -> Iterator[Point]:
    """Play all parts of a scene in the model, several times."""
    played: dict[str, list[Modelled]] = {}
    for seed in range(session.seed, session.seed + session.rounds):
        scene = make(seed)
        model = Model(scene, is_judged=False)
        for part in scene.events:
            played.setdefault(part, []).append(model.play(part))
    for part, all_ in played.items():
        yield _of_modelled(study, AS_REPORTED, x, part, all_)


# --- studies --------------------------------------------------------------------------------------


def _costs(session: TopicSession) -> Iterator[Point]:
    for number, workload in enumerate(session.workloads):
        scene = cost_scene(workload, session.seed)
        for ordering in session.orderings:
            session.tell(f"cost: {workload}, {ordering}")
            played = play(scene, ordering, is_judged=True)[workload]
            yield _of_played(Study.COST, ordering, number, workload, played)


def _sizes(session: TopicSession) -> Iterator[Point]:
    def scene(brokers: int, most: int, seed: int) -> Scene:
        return everybody_wants_everything(
            brokers,
            LAWS,
            topics=TOPICS,
            count=session.publications,
            subscribers=most,
            seed=seed,
        )

    for brokers in session.model_sizes:
        session.tell(f"{brokers:,} nodes, in the model")
        yield from _model_all(Study.SIZES, brokers, session, partial(scene, brokers, brokers))
    for brokers in session.sizes:
        for ordering in session.orderings:
            session.tell(f"{brokers:,} brokers, {ordering}")
            ours = scene(brokers, SUBSCRIBERS_MAX, session.seed)
            for law, played in play(ours, ordering).items():
                yield _of_played(Study.SIZES, ordering, brokers, law, played)


BEST_ORDER: Final = "power law, best order"
WORST_ORDER: Final = "power law, worst order"
UNIFORM: Final = "uniform"
_LAWS_OF_SUBSCRIPTIONS: Final = {
    BEST_ORDER: (Law.STEEP, False),
    WORST_ORDER: (Law.STEEP, True),
    UNIFORM: (Law.UNIFORM, False),
}


def _subscriptions(session: TopicSession) -> Iterator[Point]:
    for each in session.each:
        for name, (law, is_worst) in _LAWS_OF_SUBSCRIPTIONS.items():
            session.tell(f"{each} topics each, {name}")
            for system, brokers in ((AS_REPORTED, 100), (TNO, session.subscribing)):
                scene = some_want_some(
                    brokers,
                    law,
                    topics=TOPICS,
                    each=each,
                    count=session.publications,
                    is_worst_order=is_worst,
                    seed=session.seed,
                )
                if system == AS_REPORTED:
                    modelled = Model(scene, is_judged=False).play(law)
                    yield _of_modelled(Study.SUBSCRIPTIONS, system, each, name, [modelled])
                else:
                    played = play(scene, system)[law]
                    yield _of_played(Study.SUBSCRIPTIONS, system, each, name, played)


def _buffers(session: TopicSession) -> Iterator[Point]:
    scene = some_want_some(
        min(100, 10 * session.publications // 20),
        Law.STEEP,
        topics=20,
        each=10,
        count=5 * session.publications,
        rate=10.0,
        seed=session.seed,
    )
    for buffer in BUFFERS:
        session.tell(f"a buffer of {buffer}, in the model")
        modelled = Model(scene, buffer=buffer).play(Law.STEEP)
        yield _of_modelled(Study.BUFFERS, AS_REPORTED, buffer, "", [modelled])
    for ordering in (PAIRWISE, TNO, TNO_TAGGED):
        session.tell(f"{ordering} beside buffers")
        played = play(scene, ordering)[Law.STEEP]
        yield _of_played(Study.BUFFERS, ordering, 0, "", played)


def _patterns(session: TopicSession) -> Iterator[Point]:
    found: dict[tuple[str, str], list[Point]] = {}
    for seed in range(session.seed, session.seed + session.placements):
        scene = detectors(session.detecting, session.rates, count=session.pattern_events, seed=seed)
        for point in _patterns_of(scene, session):
            found.setdefault((point.system, point.law), []).append(point)
    for points_ in found.values():
        yield _mean_of(points_)


def _patterns_of(scene: Scene, session: TopicSession) -> Iterator[Point]:
    session.tell(f"patterns, placement {scene.seed}, in the model")
    models = {UNORDERED_MODEL: Model(scene, NONE), TOTAL_MODEL: Model(scene, TOTAL)}
    for most in DETECTORS_BUFFERS:
        limit_s = INFINITE_S if math.isinf(most) else 5.0
        models[buffered(most)] = Model(scene, TAGGING, buffer=most, limit_s=limit_s)
    for name, model in models.items():
        for rate in session.rates:
            one = model.play(f"{rate:g}")
            point = _of_modelled(Study.PATTERNS, name, rate, f"{rate:g}", [one])
            yield _with_patterns(point, list(one.streams.values()))
    for ordering in session.orderings:
        session.tell(f"patterns, placement {scene.seed}, {ordering}")
        for part, played in play(scene, ordering).items():
            point = _of_played(Study.PATTERNS, ordering, float(part), part, played)
            yield _with_patterns(point, list(played.streams.values()))


def buffered(most: float) -> str:
    """The name of the document's algorithm with a buffer."""
    return f"{AS_REPORTED}, buffer {'infinite' if math.isinf(most) else format(most, 'g')}"


def _mean_of(points_: Sequence[Point]) -> Point:
    """One point for the same system in several scenes."""
    means = {
        name: sum(getattr(point, name) for point in points_) / len(points_)
        for name in ("latency_s", "delay_s", "within_1_s", "tagged", "contiguous", "following")
    }
    return attrs.evolve(points_[0], **means)


def _with_patterns(point: Point, streams: Sequence[Sequence[Event]]) -> Point:
    return attrs.evolve(
        point,
        contiguous=agreement(streams, "contiguous"),
        following=agreement(streams, "next"),
    )


def agreement(streams: Sequence[Sequence[Event]], policy: str) -> float:
    """Of the patterns that anybody finds in a stream of its own, the share that all find."""
    letters = {kind: f"kind = '{kind}'" for kind in "ABC"}
    detection = Detection.of("A -> B -> C", letters, policy=policy)
    found = []
    for stream in streams:
        detector: Detector[Event] = Detector(detection)
        matches = [m for event in stream for m in detector.take(event, {"kind": event.kind})]
        found.append({match.events for match in matches})
    return len(set.intersection(*found)) / max(1, len(set.union(*found)))


def _prototype(session: TopicSession) -> Iterator[Point]:
    for brokers in session.prototype_sizes:
        session.tell(f"prototype: {brokers} brokers")
        yield from _of_prototype(session, Study.PROTOTYPE, brokers, brokers, 1.0, LAWS)


def _rates(session: TopicSession) -> Iterator[Point]:
    for rate in session.prototype_rates:
        session.tell(f"prototype: {rate:g} publications a second")
        brokers = max(session.prototype_sizes)
        yield from _of_prototype(session, Study.RATES, rate, brokers, rate, (Law.WORST, Law.STEEP))


def _of_prototype(
    session: TopicSession, study: Study, x: float, brokers: int, rate: float, laws: Sequence[Law]
) -> Iterator[Point]:
    def scene(seed: int, fanout: int = PROTOTYPE_FANOUT, laws: Sequence[Law] = laws) -> Scene:
        return everybody_wants_everything(
            brokers,
            laws,
            topics=TOPICS_FEW,
            count=max(session.publications, round(session.rates_s * rate)),
            rate=rate,
            publishers=1,
            fanout=fanout,
            links=ADSL,
            body_bytes=BODY_BYTES,
            seed=seed,
        )

    yield from _model_all(study, x, session, scene)
    # On the cores all publish by the power law: where managers are does not depend on it.
    ours = scene(session.seed, laws=(Law.STEEP,))
    star = scene(session.seed, fanout=max(1, brokers - 1), laws=(Law.STEEP,))
    for name, one in (*((ordering, ours) for ordering in session.orderings), (JGROUPS, star)):
        played = play(one, SEQUENCER if name == JGROUPS else name)[Law.STEEP]
        yield _of_played(study, name, x, Law.STEEP, played)


# --- topics that move -----------------------------------------------------------------------------


def moving(session: TopicSession) -> Iterator[Moving]:
    """Figures 16 to 20."""
    if Study.MOVING not in session.studies:
        return
    tries: list[tuple[Order, float, float, int | None]] = [
        *((Order.COUNTED, alpha, BETA, None) for alpha in ALPHAS),
        *((Order.COUNTED, ALPHA, beta, None) for beta in BETAS),
        *((order, ALPHA, BETA, None) for order in Order),
        *((order, ALPHA, BETA, SHUFFLED_AT) for order in (Order.COUNTED, Order.RATED)),
    ]
    for order, alpha, beta, at in dict.fromkeys(tries):
        session.tell(f"topics that move: {order}, α = {alpha}, β = {beta}")
        runs = [
            swap(order, alpha=alpha, beta=beta, shuffled_at=at, seed=session.seed + number)
            for number in range(session.moving_runs)
        ]
        yield Moving(
            order=order,
            alpha=alpha,
            beta=beta,
            shuffled_at=at,
            swaps=sum(run.swaps for run in runs) / len(runs),
            latency=_means([list(run.averaged_s()) for run in runs]),
            bytes=_means([list(run.averaged_bytes()) for run in runs]),
            visited_last=sum(run.mean_visited(-300, len(run.visited)) for run in runs) / len(runs),
        )


def moving_on_cores(session: TopicSession) -> Iterator[MovingOnCores]:
    """Figure 20 on the cores, with fewer topics."""
    if Study.MOVING not in session.studies:
        return
    scene = moving_topics(MOVING_BROKERS, MOVING_TOPICS, session.moving_on_cores, session.seed)
    for system in MOVED:
        session.tell(f"topics that move, on the cores: {system}")
        played = play(scene, system)[Law.STEEP]
        latencies = [(fate.event.at, fate.latency_s) for fate in played.fates]
        every = max(1, len(latencies) // _DRAWN_ON_CORES)
        parts = [latencies[first : first + every] for first in range(0, len(latencies), every)]
        yield MovingOnCores(
            system=system,
            shuffled_at=scene.events[Law.STEEP][len(latencies) // 2].at,
            latency=[
                (statistics.fmean(x for x, _ in part), statistics.fmean(y for _, y in part))
                for part in parts
            ],
        )


def shuffles(session: TopicSession) -> Iterator[tuple[str, Shuffle]]:
    """How far stamps travel when popularity was shuffled, early and late."""
    if Study.MOVING not in session.studies:
        return
    seeds = range(session.seed, session.seed + session.moving_runs)
    for order in (Order.COUNTED, Order.RATED):
        for at in session.shuffles_s:
            session.tell(f"popularity shuffled after {at} s: {order}")
            yield order, shuffle(order, at, seeds)


MOVING_BROKERS: Final = 10
MOVING_TOPICS: Final = 20
_DRAWN_ON_CORES: Final = 40
"""Points of a line."""
_DRAWN: Final = 6
"""Of so many points of a run one is drawn, their mean: the document draws 180, which is a "
"thicket."""


def _means(runs: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Points of several runs as one."""
    means = [(both[0][0], sum(y for _, y in both) / len(both)) for both in zip(*runs, strict=True)]
    return [
        (sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part))
        for part in (means[first : first + _DRAWN] for first in range(0, len(means), _DRAWN))
    ]
