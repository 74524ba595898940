"""Figures 9 to 24 of the document, drawn anew, each with a sentence on where ours differs."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from plait.routing.topics.popularity import ALPHA, BETA
from plait.scripts.bench.plots import Chart, Line
from plait.scripts.bench.topics_document import Reported, reported_of, value_of
from plait.scripts.bench.topics_goals import DETECTED_AT
from plait.scripts.bench.topics_measure import (
    AS_REPORTED,
    BEST_ORDER,
    DETECTORS_BUFFERS,
    FIFO,
    JGROUPS,
    MOVING_BROKERS,
    MOVING_TOPICS,
    PAIRWISE,
    SEQUENCER,
    TNO,
    TNO_HASHED,
    TNO_TAGGED,
    TOTAL_MODEL,
    UNIFORM,
    UNORDERED_MODEL,
    WORST_ORDER,
    Moving,
    Point,
    Study,
    buffered,
)
from plait.scripts.bench.topics_results import Results
from plait.scripts.bench.topics_swaps import ENTRY_BYTES, Order
from plait.scripts.bench.topics_workload import Law

_SYSTEMS: Final = (FIFO, PAIRWISE, SEQUENCER, TNO, TNO_HASHED, TNO_TAGGED)
"""Those that are drawn; the others are in the JSON."""


@attrs.frozen(kw_only=True)
class Figure:
    """One of the document's, with what came of it here."""

    number: int
    title: str
    how: str
    """What was played where."""
    charts: dict[str, Chart]
    """By the name of a file without its ending."""
    differs: str
    """Where ours differs, and why."""
    ours: dict[str, float] = attrs.field(factory=dict)
    """What the document has a number for (`Reported.about`)."""

    @property
    def reported(self) -> list[Reported]:
        """What the document says."""
        return reported_of(self.number)


def figures_of(results: Results) -> list[Figure]:
    """All that can be drawn of what was measured."""
    drawn: list[Figure] = []
    for study, draw in _DRAWN_OF.items():
        if results.of(study) or (study is Study.MOVING and results.moving):
            drawn += draw(results)
    return sorted(drawn, key=lambda figure: figure.number)


def _line(
    name: str, points: Iterable[Point], y: Callable[[Point], float], *, is_grey: bool = False
) -> list[Line]:
    """A line, if there is anything to be drawn."""
    places = [(point.x, y(point)) for point in points]
    places = [place for place in places if not math.isnan(place[1])]
    return [Line(name, places, is_reference=is_grey)] if places else []


def _systems(
    results: Results, study: Study, law: str | None, y: Callable[[Point], float]
) -> list[Line]:
    lines = [_line(name, results.of(study, name, law), y) for name in _SYSTEMS]
    return list(itertools.chain(*lines))


def _latency(point: Point) -> float:
    return point.latency_s


def _within(point: Point) -> float:
    return 100 * point.within_1_s


def _text(value: float, unit: str = "s", digits: str = ".2f") -> str:
    return "-" if math.isnan(value) else f"{value:{digits}} {unit}"


def _ends(points: Sequence[Point], y: Callable[[Point], float] = _latency) -> str:
    """From the first to the last."""
    if not points:
        return "-"
    return (
        f"{_text(y(points[0]))} at {points[0].x:,g} to {_text(y(points[-1]))} at {points[-1].x:,g}"
    )


def _of_sizes(results: Results) -> Iterator[Figure]:
    study = Study.SIZES
    how = _how(results.of(study))
    modelled = {
        law: results.of(study, AS_REPORTED, law) for law in (Law.WORST, Law.UNIFORM, Law.STEEP)
    }
    tno, fifo, tagged = (results.of(study, name, Law.STEEP) for name in (TNO, FIFO, TNO_TAGGED))
    pairwise = results.of(study, PAIRWISE, Law.STEEP)
    x, log = "brokers, or nodes of the model", True
    reported = [
        line
        for law, points in modelled.items()
        for line in _line(law, points, _latency, is_grey=True)
    ]
    yield Figure(
        number=9,
        title="Latency, by the number of brokers",
        how=how,
        charts={
            "figure-9-document": Chart(
                title="The document's algorithm, modelled: latency to the last subscriber",
                x=x,
                y="s",
                is_log_x=log,
                lines=[attrs.evolve(line, is_reference=False) for line in reported],
            ),
            "figure-9": Chart(
                title="On the cores, power law: latency to the last subscriber",
                x="brokers",
                y="s",
                is_log_x=log,
                lines=_systems(results, study, Law.STEEP, _latency),
            ),
        },
        differs=f"The document's algorithm behaves as reported: from {_ends(modelled[Law.WORST])} "
        f"in the worst case, from {_ends(modelled[Law.STEEP])} under the power law. Ours does not "
        "depend on the law, as no stamp travels: what is published passes its topic's manager "
        f"anyway. So tno takes {_ends(tno)}, as pairwise does ({_ends(pairwise)}); without order "
        f"it is {_ends(fifo)}. tno-tagged fetches its stamps from the root, and takes "
        f"{_ends(tagged)}.",
    )
    for number, law in ((10, Law.WORST), (11, Law.STEEP)):
        yield _of_parts(results, number, law, how)
    lines = [
        line
        for law, points in modelled.items()
        for line in _line(law, points, _within, is_grey=True)
    ]
    yield Figure(
        number=12,
        title="Publications that all their subscribers have within a second",
        how=how,
        charts={
            "figure-12-document": Chart(
                title="The document's algorithm, modelled",
                x=x,
                y="% within 1 s",
                is_log_x=log,
                lines=[attrs.evolve(line, is_reference=False) for line in lines],
            ),
            "figure-12": Chart(
                title="On the cores, power law",
                x="brokers",
                y="% within 1 s",
                is_log_x=log,
                lines=_systems(results, study, Law.STEEP, _within),
            ),
        },
        differs="A good order of topics helps the document's algorithm, as reported. Ours is not "
        "helped by one and needs none; what keeps it from a second is slow links on the way to "
        "the last subscriber, as it does without order.",
    )


def _of_parts(results: Results, number: int, law: Law, how: str) -> Figure:
    """What ordering takes, and what notifying does."""
    study = Study.SIZES
    modelled = results.of(study, AS_REPORTED, law)
    fifo = {point.x: point.latency_s for point in results.of(study, FIFO, law)}

    def ordering(point: Point) -> float:
        if point.is_model:
            return point.stamping_s
        return max(0.0, point.latency_s - fifo.get(point.x, math.nan))

    ours = {name: results.of(study, name, law) for name in (TNO, TNO_TAGGED)}
    share = [point.stamping_s / point.latency_s for point in modelled]
    last = ours[TNO][-1] if ours[TNO] else None
    own = f"{_text(ordering(last))} of {_text(last.latency_s)}" if last else "-"
    return Figure(
        number=number,
        title=f"What ordering takes, and what notifying: {law}",
        how=f"{how} On the cores ordering is what a system takes longer than fifo.",
        charts={
            f"figure-{number}": Chart(
                title=f"What ordering takes, and what notifying takes: {law}",
                x="brokers, or nodes of the model",
                y="s",
                is_log_x=True,
                lines=[
                    *_line("document's: order", modelled, ordering),
                    *_line("document's: notify", modelled, lambda p: p.latency_s - p.stamping_s),
                    *_line("tno: order", ours[TNO], ordering),
                    *_line("tno-tagged: order", ours[TNO_TAGGED], ordering),
                    *_line("fifo: notify", results.of(study, FIFO, law), _latency, is_grey=True),
                ],
            )
        },
        differs=f"Of the document's algorithm, ordering is {min(share):.0%} to {max(share):.0%} "
        f"of all it takes. Of tno it is {own} in the largest overlay: a wait for the root where a "
        "subscriber would otherwise be told before.",
    )


def _how(points: Sequence[Point]) -> str:
    """What was played on the cores, and what in a model."""
    on_cores = sorted({point.x for point in points if not point.is_model})
    modelled = sorted({point.x for point in points if point.is_model})
    cores = f"{on_cores[0]:,g} to {on_cores[-1]:,g} brokers on the real cores" if on_cores else ""
    model = (
        f"{modelled[0]:,g} to {modelled[-1]:,g} nodes in a model of SCRIBE and Pastry"
        if modelled
        else ""
    )
    where = "; ".join(filter(None, (cores, model)))
    return f"50 topics, all subscribe to all, one publication a second. {where}."


def _of_subscriptions(results: Results) -> Iterator[Figure]:
    study = Study.SUBSCRIPTIONS
    laws = (BEST_ORDER, WORST_ORDER, UNIFORM)
    how = "The document's algorithm with 100 nodes in a model; tno on the cores, with fewer."
    x = "topics that everybody subscribes to"
    best, worst = (results.of(study, AS_REPORTED, law) for law in (BEST_ORDER, WORST_ORDER))

    def bytes_of(point: Point) -> float:
        return ENTRY_BYTES * point.entries

    yield Figure(
        number=13,
        title="Bytes of a stamp",
        how=how,
        charts={
            "figure-13-document": Chart(
                title="The document's algorithm, modelled: 24 bytes for each entry",
                x=x,
                y="bytes",
                lines=[
                    one
                    for law in laws
                    for one in _line(law, results.of(study, AS_REPORTED, law), bytes_of)
                ],
            ),
            "figure-13": Chart(
                title="tno on the cores: bytes of a message with a stamp, as it is on the wire",
                x=x,
                y="bytes",
                lines=[
                    one
                    for law in laws
                    for one in _line(law, results.of(study, TNO, law), lambda p: p.stamp_bytes)
                ],
            ),
        },
        differs=f"As reported: in the best order {bytes_of(best[0]):.0f} to "
        f"{bytes_of(best[-1]):.0f} bytes, in the worst {bytes_of(worst[0]):.0f} to "
        f"{bytes_of(worst[-1]):.0f}. Our stamps name topics below as well as above, so the order "
        "of topics changes nothing, and an entry takes what its name and number take, not 24 "
        "bytes.",
    )
    yield Figure(
        number=14,
        title="Work of topic managers on account of other topics",
        how=how,
        charts={
            "figure-14": Chart(
                title="The document's algorithm, modelled: requests on account of other topics",
                x=x,
                y="% of all requests",
                lines=[
                    one
                    for law in laws
                    for one in _line(
                        law, results.of(study, AS_REPORTED, law), lambda p: 100 * p.for_others
                    )
                ],
            )
        },
        differs="With tno nobody asks a manager for anything: a publication is its own request, "
        "and the share is 0 by construction. What order takes in messages is under 'cost'.",
    )


def _of_buffers(results: Results) -> Iterator[Figure]:
    study = Study.BUFFERS
    modelled = results.of(study, AS_REPORTED)
    tagged = results.find(study, TNO_TAGGED, 0)
    tno = results.find(study, TNO, 0)

    def in_order(point: Point) -> float:
        return 100 * (1 - point.tagged)

    lines = _line("document's", modelled, in_order)
    delays = _line("document's", modelled, _latency)
    last = modelled[-1].x
    for name, point in ((TNO_TAGGED, tagged), (TNO, tno)):
        if point is not None:
            lines.append(
                Line(name, [(0, in_order(point)), (last, in_order(point))], is_reference=True)
            )
            delays.append(
                Line(name, [(0, point.latency_s), (last, point.latency_s)], is_reference=True)
            )
    yield Figure(
        number=15,
        title="What a buffer of the subscriber does",
        how="20 topics, 10 for everybody, 10 publications a second, power law. The document's "
        "algorithm, with the corrections of routing/topics, in a model; tno, and tno-tagged "
        "without a buffer, on the cores.",
        charts={
            "figure-15": Chart(
                title="Deliveries in order",
                x="publications in the buffer, at most",
                y="%",
                lines=lines,
            ),
            "figure-15-latency": Chart(
                title="Latency to the last subscriber",
                x="publications in the buffer, at most",
                y="s",
                lines=delays,
            ),
        },
        differs="As reported, a small buffer does nearly all there is to do: "
        f"{modelled[0].tagged:.0%} are tagged without, {modelled[-1].tagged:.0%} with {last:g}. "
        "But it ends above zero: a stamp does not say what was published below it before, so "
        "nobody can wait for that. tno has nothing tagged, and waits at brokers, for less.",
    )


def _of_moving(results: Results) -> Iterator[Figure]:
    counted = [m for m in results.moving if m.order == Order.COUNTED and m.shuffled_at is None]
    by_alpha = [m for m in counted if m.beta == BETA]
    by_beta = [m for m in counted if m.alpha == ALPHA]
    how = (
        "10,000 nodes, 1,000 topics of which everybody has 100, one publication a second: in a "
        "model, by the ranks of topics; means of several runs."
    )

    def series(title: str, named: Sequence[tuple[str, Moving | None]], unit: str = "s") -> Chart:
        lines = [Line(n, m.latency if unit == "s" else m.bytes) for n, m in named if m is not None]
        return Chart(title=title, x="seconds", y=unit, lines=lines)

    def swaps(
        letter: str, all_: Sequence[Moving], value: Callable[[Moving], float]
    ) -> dict[str, float]:
        return {f"{letter} {value(one):g}": one.swaps for one in all_}

    yield Figure(
        number=16,
        title="Topics that move: α",
        how=how,
        charts={
            "figure-16": series("Latency with β = 0.2", [(f"α = {m.alpha}", m) for m in by_alpha])
        },
        ours=swaps("α", by_alpha, lambda m: m.alpha),
        differs="With α = 0.1 about as many swaps as reported. With more there are more, not "
        "fewer: the formula tells topics apart by fewer publications then. So a larger α adapts "
        "faster here, where the document found no benefit.",
    )
    yield Figure(
        number=17,
        title="Topics that move: β",
        how=how,
        charts={
            "figure-17": series("Latency with α = 0.1", [(f"β = {m.beta}", m) for m in by_beta])
        },
        ours=swaps("β", by_beta, lambda m: m.beta),
        differs="As reported, a larger β means fewer swaps, and slower ones. Which of all "
        "managers that might ask for a swap does is not said; here it is the highest, with which "
        "the numbers come near.",
    )
    orders = [(order.value, results.moved(order)) for order in Order]
    yield Figure(
        number=18,
        title="Topics that move, and topics that stay",
        how=how,
        charts={"figure-18": series("Latency", orders)},
        differs=_sentence_on_best(results),
    )
    best = results.moved(Order.COUNTED)
    yield Figure(
        number=19,
        title="Bytes of a stamp, while topics move",
        how=how,
        charts={
            "figure-19": Chart(
                title="Bytes of a stamp, 24 for an entry",
                x="seconds",
                y="bytes",
                lines=[
                    *(Line(n, m.bytes) for n, m in orders if m is not None),
                    *(
                        [
                            Line(
                                "reported",
                                [
                                    (0, value_of(19, "bytes")),
                                    (best.bytes[-1][0], value_of(19, "bytes")),
                                ],
                                is_reference=True,
                            )
                        ]
                        if best
                        else []
                    ),
                ],
            )
        },
        ours={"bytes": ENTRY_BYTES * (best.visited_last + 2)} if best else {},
        differs="About four entries are said to remain. With the law as the document describes "
        "it, a fifth of all that is published is on a thousand rare topics, which nobody can "
        "bring into an order; a stamp of these has hundreds of entries, and the mean is far "
        "above 100 bytes.",
    )
    yield _of_shuffles(results, how, series)


def _sentence_on_best(results: Results) -> str:
    best, counted = results.moved(Order.BEST), results.moved(Order.COUNTED)
    rated = results.moved(Order.RATED)
    if best is None or counted is None or rated is None:
        return ""
    return (
        f"In the last 300 s a stamp visits {counted.visited_last:.0f} managers by numbers as "
        f"published, {rated.visited_last:.0f} by rates, and {best.visited_last:.0f} in the best "
        "static order, which is not outperformed here: it knows all topics, the rare ones "
        "included."
    )


def _of_shuffles(results: Results, how: str, series: Callable[..., Chart]) -> Figure:
    kinds = (Order.COUNTED, Order.RATED)
    shuffled = [
        (m.order, m) for m in results.moving if m.shuffled_at is not None and m.order in kinds
    ]
    late = [
        f"{one.quotient:.2f} times ({order}, at {one.at:,} s)" for order, one in results.shuffles
    ]
    return Figure(
        number=20,
        title="Popularity that changes all at once",
        how=how,
        charts={
            "figure-20": series("Modelled: latency; popularity is shuffled after 300 s", shuffled),
            **_moving_on_cores(results),
        },
        differs="As reported, if it comes early. By numbers a topic cannot be moved any more "
        "once it has had some dozens of publications, so the later it comes the less is made "
        "good; rates forget. Managers visited from 600 s after it on, of those before: "
        f"{', '.join(late)}.{_sentence_on_cores(results)}",
    )


def _moving_on_cores(results: Results) -> dict[str, Chart]:
    lines = [Line(one.system, one.latency) for one in results.moving_on_cores]
    if not lines:
        return {}
    chart = Chart(
        title=f"On the cores, {MOVING_BROKERS} brokers and {MOVING_TOPICS} topics: latency; "
        "popularity is shuffled in the middle",
        x="seconds",
        y="s",
        lines=lines,
    )
    return {"figure-20-cores": chart}


def _sentence_on_cores(results: Results) -> str:
    """How long it took before the shuffle, just after it, and at the end."""
    told = []
    for one in results.moving_on_cores:
        at, end = one.shuffled_at, one.latency[-1][0]
        before, just_after = one.mean_s(at / 2, at), one.mean_s(at, 1.25 * at)
        later = one.mean_s(at + (end - at) / 2, math.inf)
        told.append(f"{one.system} {before:.2f} s, {just_after:.2f} s, {later:.2f} s")
    if not told:
        return ""
    return f" On the cores, before the shuffle, just after it and at the end: {'; '.join(told)}."


def _of_patterns(results: Results) -> Iterator[Figure]:
    study = Study.PATTERNS

    def agreed(point: Point) -> float:
        return 100 * point.contiguous

    bare = results.find(study, FIFO, DETECTED_AT)
    infinite = results.find(study, buffered(math.inf), DETECTED_AT)
    tno = results.find(study, TNO, DETECTED_AT)
    scribe = results.find(study, UNORDERED_MODEL, DETECTED_AT)
    names = [
        ("SCRIBE", UNORDERED_MODEL),
        *((f"buffer {most:g}", buffered(most)) for most in DETECTORS_BUFFERS),
        ("both sides", TOTAL_MODEL),
    ]
    yield Figure(
        number=21,
        title="Patterns that two detectors both find",
        how="Five publishers on five topics, kinds A, B and C at random, A -> B -> C without "
        "anything between; of all that any of two detectors finds, what both find. The "
        "document's system in a model; ours on the cores, means over several placements in a "
        "random tree.",
        charts={
            "figure-21-document": Chart(
                title="The document's algorithm, modelled",
                x="publications a second and topic",
                y="% found by both",
                lines=[
                    one
                    for short, name in names
                    for one in _line(short, results.of(study, name), agreed)
                ],
            ),
            "figure-21": Chart(
                title="On the cores",
                x="publications a second and topic",
                y="% found by both",
                lines=_systems(results, study, None, agreed),
            ),
        },
        ours={
            about: agreed(point)
            for about, point in (("no order", bare), ("infinite", infinite))
            if point is not None
        },
        differs=f"At {DETECTED_AT:g} publications a second and topic, fifo makes two detectors "
        f"agree on {_percent(bare)}, a model of SCRIBE on {_percent(scribe)}. An infinite buffer "
        f"comes to {_percent(infinite)}, not to all: stamps of one side only do not say enough. "
        f"tno and pairwise come to {_percent(tno)}.",
    )


def _percent(point: Point | None) -> str:
    return "-" if point is None else f"{point.contiguous:.0%}"


def _of_prototype(results: Results) -> Iterator[Figure]:
    study = Study.PROTOTYPE
    modelled = {
        law: results.of(study, AS_REPORTED, law) for law in (Law.WORST, Law.UNIFORM, Law.STEEP)
    }
    yield Figure(
        number=22,
        title="Latency of the prototype, by the number of brokers",
        how="One publisher, 5 topics, all subscribe to all, one publication a second, links of "
        "21 ms: in virtual time, where the document had virtual machines.",
        charts={
            "figure-22": Chart(
                title="Latency to the last subscriber; grey: the document's algorithm, modelled",
                x="brokers",
                y="s",
                lines=[
                    *_systems(results, study, None, _latency),
                    *(
                        one
                        for law, points in modelled.items()
                        for one in _line(law, points, _latency, is_grey=True)
                    ),
                ],
            )
        },
        differs="As reported: flat after the first few, as stamps have five entries at most. "
        "Ours grows with the depth of the tree, and with nothing else.",
    )


def _of_rates(results: Results) -> Iterator[Figure]:
    study = Study.RATES
    how = "Ten brokers, one publisher, 5 topics, lines of 21 ms that send 1 Mbit/s; on the cores."
    modelled = {law: results.of(study, AS_REPORTED, law) for law in (Law.WORST, Law.STEEP)}
    yield Figure(
        number=23,
        title="Publications that all have within a second, by rate",
        how=f"{how} Grey: the document's algorithm in a model, where lines are as wide as they "
        "need be.",
        charts={
            "figure-23": Chart(
                title="Publications that all have within a second",
                x="publications a second",
                y="%",
                lines=[
                    *_systems(results, study, None, _within),
                    *_line(JGROUPS, results.of(study, JGROUPS), _within),
                    *(
                        one
                        for law, points in modelled.items()
                        for one in _line(law, points, _within, is_grey=True)
                    ),
                ],
            )
        },
        differs="In the model all arrive within a second at any rate: what the document lost, "
        "its machines lost, not its algorithm. On the cores lines decide, which a tree of three "
        "children fills later than a star does.",
    )
    star, ours = results.of(study, JGROUPS), results.of(study, TNO)
    yield Figure(
        number=24,
        title="Beside a sequencer that sends to everybody itself, as JGroups does",
        how=how,
        charts={
            "figure-24": Chart(
                title="Latency to the last subscriber",
                x="publications a second",
                y="s",
                lines=[
                    *_systems(results, study, None, _latency),
                    *_line(JGROUPS, star, _latency),
                ],
            )
        },
        differs="As reported, if for the same reason: the line of a sequencer that sends to all "
        f"nine others itself fills ({_ends(star)}), a tree's does not ({_ends(ours)}, tno). At "
        "low rates a star is nearer, whoever orders.",
    )


_DRAWN_OF: Final[dict[Study, Callable[[Results], Iterable[Figure]]]] = {
    Study.SIZES: _of_sizes,
    Study.SUBSCRIPTIONS: _of_subscriptions,
    Study.BUFFERS: _of_buffers,
    Study.MOVING: _of_moving,
    Study.PATTERNS: _of_patterns,
    Study.PROTOTYPE: _of_prototype,
    Study.RATES: _of_rates,
}
