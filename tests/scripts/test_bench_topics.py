"""`plait bench topics` measures what it says, and judges rightly. Nothing here is about speed."""

import json
import math
import random
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest
from click.testing import CliRunner

pytest.importorskip("psutil", reason="only `plait bench` needs it")

from plait.routing.ids import NodeId
from plait.routing.topics.popularity import ALPHA, weight
from plait.routing.topics.protocol import Stamp, Topic
from plait.routing.topics.tagging import TaggingSubscriber
from plait.scripts.bench.topics import command, measure, to_json
from plait.scripts.bench.topics_document import REPORTED, value_of
from plait.scripts.bench.topics_figures import figures_of
from plait.scripts.bench.topics_goals import STAMP_BYTES, goals_of
from plait.scripts.bench.topics_measure import (
    AS_REPORTED,
    QUICK,
    Moving,
    Point,
    Study,
    agreement,
    buffered,
)
from plait.scripts.bench.topics_model import NONE, TOTAL, BufferedSubscriber, Model, Ring
from plait.scripts.bench.topics_page import page
from plait.scripts.bench.topics_report import report
from plait.scripts.bench.topics_results import Results
from plait.scripts.bench.topics_swaps import (
    Order,
    Shuffle,
    count_that_exceeds,
    shuffle,
    standing,
    swap,
)
from plait.scripts.bench.topics_workload import (
    ADSL,
    ALIKE,
    WIDE_AREA,
    Event,
    Law,
    Links,
    Scene,
    cost_scene,
    detectors,
    draw_topics,
    everybody_wants_everything,
    popularity,
    topic_names,
)
from plait.scripts.bench.topics_world import play

SMALL = attrs.evolve(
    everybody_wants_everything(5, [Law.WORST, Law.STEEP], topics=4, count=20), links=ALIKE
)


# --- what is tried ------------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "part"), [(Law.FLAT, 0.4), (Law.STEEP, 0.005)])
def test_power_laws_give_80_percent_to_as_many_topics_as_the_document_says(
    law: Law, part: float
) -> None:
    weights = popularity(law, 1_000)

    assert sum(weights) == pytest.approx(1.0)
    assert sum(weights[: round(1_000 * part)]) == pytest.approx(0.8, abs=0.001)


def test_popular_topics_are_drawn_rather_than_others_and_none_twice() -> None:
    chance, names = random.Random(1), topic_names(50)
    counts: Counter[str] = Counter()
    for _ in range(100):
        drawn = draw_topics(chance, popularity(Law.STEEP, 50), names, 5)
        assert len(drawn) == 5
        counts.update(drawn)

    assert counts["t0"] > 95
    assert counts["t40"] < 20


def test_links_are_of_two_classes_and_never_take_less_than_no_time() -> None:
    chance = random.Random(1)
    classes = Counter(WIDE_AREA.draw_class(chance) for _ in range(2_000))
    delays = [WIDE_AREA.draw(chance, WIDE_AREA.slow_s) for _ in range(2_000)]

    assert classes[WIDE_AREA.fast_s] / 2_000 == pytest.approx(0.8, abs=0.03)
    assert min(delays) == WIDE_AREA.shortest_s
    assert sum(delays) / 2_000 == pytest.approx(0.24, abs=0.02)


# --- on the cores -------------------------------------------------------------------------------


def test_a_delay_is_a_number_of_links_where_these_are_alike() -> None:
    played = play(SMALL, "fifo")[Law.STEEP]

    # From the publisher to its broker, to the root, to another one, and to the subscriber.
    assert len(played.reached) == 20
    for fate in played.reached:
        assert len(fate.delays_s) == 5
        assert fate.latency_s in (pytest.approx(0.03), pytest.approx(0.04))


def test_every_part_of_a_scene_is_counted_by_itself() -> None:
    worst, steep = play(SMALL, "tno").values()

    assert (len(worst.fates), len(steep.fates)) == (20, 20)
    assert {fate.event.topic for fate in worst.fates} == {"t3"}
    assert worst.mean_entries == 1.0  # nothing was published on any other topic
    assert steep.messages["Publish"] == worst.messages["Publish"]
    assert max(steep.stamp_sizes) <= 4


def test_a_narrow_line_makes_publications_wait_for_each_other() -> None:
    wide = everybody_wants_everything(
        5, [Law.STEEP], topics=2, count=30, rate=1_000.0, publishers=1, links=ALIKE
    )
    narrow = attrs.evolve(wide, links=attrs.evolve(ALIKE, uplink_bits_per_s=50_000.0))

    assert (
        play(narrow, "fifo")[Law.STEEP].mean_latency_s
        > 2 * play(wide, "fifo")[Law.STEEP].mean_latency_s
    )
    assert ADSL.uplink_bits_per_s is not None


def test_only_who_promises_order_keeps_it_and_tno_costs_what_pairwise_costs() -> None:
    scene = _first(cost_scene("4 of 5 in the region"), 60)
    fifo, pairwise, tno = (
        play(scene, name, is_judged=True)[scene.name] for name in ("fifo", "pairwise", "tno")
    )

    assert fifo.disagreements > 0
    assert (pairwise.disagreements, tno.disagreements) == (0, 0)
    assert tno.mean_delay_s == pytest.approx(pairwise.mean_delay_s)
    assert tno.batches == pairwise.batches


def _first(scene: Scene, count: int) -> Scene:
    """The same scene with fewer publications and subscribers."""
    names = list(scene.subscribers)[::3]
    return attrs.evolve(
        scene,
        subscribers={name: scene.subscribers[name] for name in names},
        events={part: events[:count] for part, events in scene.events.items()},
    )


# --- the model ----------------------------------------------------------------------------------


def test_routes_come_nearer_to_a_key_and_end_where_it_belongs() -> None:
    ring = Ring(300, random.Random(1))
    for key in (0, 1 << 63, 123_456_789 << 32):
        root = ring.root_of(key)
        routes = [ring.route(node, key) for node in range(300)]

        assert all(route[-1] == root for route in routes)
        assert all(len(route) <= 5 for route in routes)  # 16^3 is more than 300
    assert Ring(1, random.Random(1)).route(0, 5) == [0]


def test_in_the_worst_case_a_stamp_visits_every_manager_and_otherwise_few() -> None:
    scene = everybody_wants_everything(50, [Law.WORST, Law.STEEP], topics=20, count=40)
    model = Model(scene, is_judged=False)
    worst, steep = model.play(Law.WORST), model.play(Law.STEEP)

    assert worst.mean_entries == 20
    assert worst.share_for_others == 19 / 20
    assert steep.mean_entries < 6
    assert worst.mean_stamping_s > 3 * steep.mean_stamping_s
    assert all(len(fate.delays_s) == 50 for fate in (*worst.fates, *steep.fates))


def test_what_is_to_be_in_order_is_in_order_in_the_model_too() -> None:
    scene = detectors(30, [5.0], count=200, seed=2)
    bare = Model(scene, NONE).play("5")
    total = Model(scene, TOTAL).play("5")
    one, other = total.streams.values()

    assert list(one) == list(other)
    assert len(one) == 200
    assert agreement(list(total.streams.values()), "contiguous") == 1.0
    assert agreement(list(bare.streams.values()), "contiguous") < 1.0


def test_a_buffer_waits_for_what_is_missing_and_not_for_ever() -> None:
    def subscriber(most: float) -> BufferedSubscriber:
        topics = [Topic("t0"), Topic("t1")]
        return BufferedSubscriber(TaggingSubscriber(NodeId("s"), topics, topics), most, 5.0)

    first, second = Stamp(entries={Topic("t0"): 1}), Stamp(entries={Topic("t0"): 2})
    waits = subscriber(3)

    assert waits.notify(0.0, "b", Topic("t0"), second) == []
    assert [n.label for n in waits.notify(1.0, "a", Topic("t0"), first)] == ["a", "b"]

    gives_up = subscriber(3)
    assert gives_up.notify(0.0, "b", Topic("t0"), second) == []
    assert gives_up.expire(4.0, "b") == []
    assert [n.label for n in gives_up.expire(5.0, "b")] == ["b"]
    (late,) = gives_up.notify(6.0, "a", Topic("t0"), first)
    assert not late.in_order

    assert [n.label for n in subscriber(0).notify(0.0, "b", Topic("t0"), second)] == ["b"]


# --- topics that move ---------------------------------------------------------------------------


def test_the_formula_makes_topics_immovable_where_the_design_says_so() -> None:
    assert standing(0, 0.1) == pytest.approx(math.exp(-10))
    assert standing(7, ALPHA) == weight(7)
    assert [math.ceil(_immovable(0.1, beta)) for beta in (0.2,)] == [44]
    assert count_that_exceeds(100, 0.1, 0.2) == math.inf
    assert standing(count_that_exceeds(3, 0.1, 0.2), 0.1) == pytest.approx(standing(3, 0.1) + 0.2)


def _immovable(alpha: float, beta: float) -> float:
    """The number of publications from which on nothing can go above a topic."""
    return -1 / (alpha * math.log(1 - beta)) - 1


def test_topics_that_move_come_to_be_near_the_top_where_they_are_popular() -> None:
    still, moved, best = (
        swap(order, topics=100, seconds=600, seed=1)
        for order in (Order.RANDOM, Order.COUNTED, Order.BEST)
    )

    assert still.swaps == best.swaps == 0
    assert moved.swaps > 0
    assert best.mean_visited(300, 600) < moved.mean_visited(300, 600)
    assert moved.mean_visited(300, 600) < still.mean_visited(300, 600)
    assert [at for at, _ in moved.averaged_s()][:2] == [5.0, 15.0]


def test_popularity_that_changes_is_followed() -> None:
    one = shuffle(Order.RATED, 300, range(2))

    assert one.just_after > one.later
    assert one.quotient < 1.5


# --- what is made of it -------------------------------------------------------------------------


def test_of_two_streams_only_what_both_have_counts() -> None:
    a, b, c = (Event(float(n), "p", "t", kind) for n, kind in enumerate("ABC"))

    assert agreement([[a, b, c], [a, b, c]], "contiguous") == 1.0
    assert agreement([[a, b, c], [b, a, c]], "contiguous") == 0.0
    assert agreement([[a, b, c], [a, b]], "next") == 0.0


def test_goals_are_met_or_missed_as_they_should_be() -> None:
    def results(factor: float, size: int, shares: list[float]) -> Results:
        def cost(system: str, delay_s: float) -> Point:
            return Point(
                study=Study.COST,
                system=system,
                law="w",
                x=0,
                delay_s=delay_s,
                sendings=1.0,
                stamp_sizes={20: size},
            )

        def found(system: str, share: float) -> Point:
            return Point(study=Study.PATTERNS, system=system, x=5.0, contiguous=share)

        return Results(
            points=[
                cost("pairwise", 1.0),
                cost("tno", factor),
                found("fifo", shares[0]),
                found("pairwise", 1.0),
                found("tno", shares[1]),
                found(buffered(0), shares[2]),
                found(buffered(5), shares[3]),
            ],
            shuffles=[
                (order, Shuffle(at=300, before=10.0, just_after=90.0, later=15.0 * factor))
                for order in (Order.COUNTED, Order.RATED)
            ],
        )

    good = goals_of(results(1.0, STAMP_BYTES[20], [0.45, 1.0, 0.1, 0.2]))
    bad = goals_of(results(1.03, STAMP_BYTES[20] + 1, [0.46, 0.99, 0.2, 0.1]))

    assert len(good) == 9
    assert all(goal.is_met for goal in good)
    assert [goal.name.split(" ")[0] for goal in bad if goal.is_met] == ["sendings", "pairs", "%"]


def test_every_number_of_the_document_has_ours_beside_it() -> None:
    session = attrs.evolve(
        QUICK,
        studies=(Study.MOVING, Study.PATTERNS),
        orderings=("fifo",),
        placements=1,
        moving_runs=1,
        moving_on_cores=10,
    )
    figures = {figure.number: figure for figure in figures_of(measure(session))}

    assert sorted(figures) == [16, 17, 18, 19, 20, 21]
    for reported in REPORTED:
        if reported.value is not None:
            assert reported.about in figures[reported.figure].ours
    assert value_of(21, "no order") == 35.0


def test_what_was_not_measured_is_not_drawn() -> None:
    assert figures_of(Results()) == []
    assert goals_of(Results()) == []
    moved = Moving(
        order=Order.COUNTED,
        alpha=0.1,
        beta=0.2,
        shuffled_at=None,
        swaps=1.0,
        latency=[(1.0, 2.0)],
        bytes=[(1.0, 2.0)],
        visited_last=3.0,
    )
    assert len(figures_of(Results(moving=[moved]))) == 5


def test_all_figures_are_on_the_page_in_the_report_and_in_the_json(tmp_path: Path) -> None:
    session = attrs.evolve(
        QUICK,
        studies=tuple(study for study in Study if study is not Study.COST),
        orderings=("fifo", "tno"),
        each=(5,),
        prototype_sizes=(4,),
        prototype_rates=(5.0,),
        publications=10,
        placements=1,
        moving_runs=1,
        moving_on_cores=10,
    )
    results = measure(session)
    figures = figures_of(results)
    html, text = page(results), report(results)
    document = json.loads(to_json(results))

    assert [figure.number for figure in figures] == list(range(9, 25))
    assert [one["number"] for one in document["figures"]] == list(range(9, 25))
    for figure in figures:
        assert f"Figure {figure.number}: " in html
        assert f"figure {figure.number}: {figure.title}" in text
        assert figure.differs
        assert figure.reported
        for chart in figure.charts.values():
            ElementTree.fromstring(chart.to_svg())
            assert chart.to_svg() in html
    assert AS_REPORTED in {point["system"] for point in document["points"]}


def test_the_command_measures_one_study_and_writes_page_and_plots(tmp_path: Path) -> None:
    options = ["--quick", "--study", "buffers", "--json"]
    options += ["--page", str(tmp_path / "page.html"), "--plots", str(tmp_path / "plots")]
    result = CliRunner().invoke(command, options)

    assert result.exit_code == 0, result.output
    assert {point["study"] for point in json.loads(result.output)["points"]} == {"buffers"}
    assert "Figure 15" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "plots" / "figure-15.svg").is_file()


def test_a_link_may_be_all_that_differs() -> None:
    assert Links(share_fast=1.0).draw_class(random.Random(1)) == WIDE_AREA.fast_s
