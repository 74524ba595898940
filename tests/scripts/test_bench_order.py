"""`plait bench order` judges orderings rightly. Nothing here looks at how fast anything is."""

import json
import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest
from click.testing import CliRunner

pytest.importorskip("psutil", reason="only `plait bench` needs it")

from plait.scripts.bench import order
from plait.scripts.bench.figures import Trials
from plait.scripts.bench.order import COMPARED, OrderSession, command, measure
from plait.scripts.bench.order_delays import Geometry, Point, look_at, ordering_degree
from plait.scripts.bench.order_figures import Goal, OrderFigures
from plait.scripts.bench.order_report import report
from plait.scripts.bench.order_throughput import Load, Throughput
from plait.scripts.bench.order_workload import EVERYBODY, PAIRS, Party, Scene
from plait.scripts.bench.order_world import Outcome, play
from plait.scripts.bench.peers import ORDERED_PEERS, PLAIT, PeerFigures, PlaitPeer
from plait.scripts.bench.plots import Chart, Line, ticks
from plait.scripts.bench.trials import Outcome as TrialOutcome
from plait.scripts.bench.trials import System, run_trial
from plait.scripts.bench.workloads import WORKLOADS

SCENE = Scene(
    cores=3, publishers=30, subscribers=30, conflicting=0.5, publications=60, interval_s=0.5
)
EVERYWHERE = System(
    name="everywhere", title="", brokers=3, is_spread=True, publishes_everywhere=True
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {ordering: play(SCENE, ordering) for ordering in COMPARED}


@pytest.fixture(scope="module")
def points(outcomes: dict[str, Outcome]) -> dict[str, Point]:
    return {name: look_at(SCENE, played, outcomes["fifo"]) for name, played in outcomes.items()}


# --- what is tried ------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", [EVERYBODY, PAIRS])
def test_topics_are_shared_by_all_by_two_or_published_at_one_broker(sharing: str) -> None:
    publishers, subscribers = attrs.evolve(SCENE, sharing=sharing, publishers=60).cast()
    brokers: dict[str, set[str]] = {}
    for party in publishers:
        brokers.setdefault(party.topic, set()).add(party.broker)

    assert sum(party.conflicts for party in publishers) == 30
    assert sum(party.conflicts for party in subscribers) == 15
    for party in publishers:
        most = (15 if sharing == EVERYBODY else 2) if party.conflicts else 1
        assert len(brokers[party.topic]) <= most
    assert all(party.broker in SCENE.edges for party in (*publishers, *subscribers))


def test_a_calendar_has_every_publisher_once_per_interval() -> None:
    calendar = SCENE.calendar()

    assert len(calendar) == 60
    assert calendar == sorted(calendar)
    assert sorted(publisher for at, publisher in calendar if at < 0.5) == list(range(30))


def test_the_conflict_path_ends_where_all_subscribers_are_below() -> None:
    # b0 is the root, b1 and b2 are below it; b3 to b7 are at b0, b8 to b12 at b1.
    overlay = Scene(cores=3, publishers=1, subscribers=1).overlay
    at = {name: Party(f"s{name}", name, "t", conflicts=True) for name in ("b3", "b8", "b9", "b13")}
    far = Geometry(overlay, list(at.values()))
    near = Geometry(overlay, [at["b8"], at["b9"]])

    # From b8 to the root it is two links, and the way to b9 branches off at b1.
    assert [far.conflict_path(at["b8"], at[name]) for name in at] == [0, 2, 1, 0]
    assert [near.conflict_path(at["b8"], at[name]) for name in ("b8", "b9")] == [1, 0]


# --- what comes of it ---------------------------------------------------------------------------


def test_pairwise_costs_what_it_may_cost_and_no_more(points: dict[str, Point]) -> None:
    ours, fifo = points["pairwise"], points["fifo"]
    against = ours.against_fifo

    assert (ours.disagreements, ours.other_violations, ours.leftovers) == (0, 0, ())
    assert against.others > 0
    assert against.others_changed == 0
    assert against.waited > 0
    assert against.waited_too_long == 0
    assert against.longest_wait_in_round_trips == pytest.approx(1.0)
    assert against.above > 0
    assert against.above_later == 0
    assert ours.others == fifo.others
    assert ours.ordering_degree == 1.0
    assert not math.isnan(ours.detection_us)


def test_where_nothing_conflicts_pairwise_sends_what_fifo_sends() -> None:
    scene = attrs.evolve(SCENE, conflicting=0.0)
    ours, fifo = play(scene, "pairwise"), play(scene, "fifo")

    assert ours.messages == fifo.messages
    assert ours.delays_s == fifo.delays_s


def test_what_others_cost_is_seen(points: dict[str, Point]) -> None:
    fifo, sequencer = points["fifo"], points["sequencer"]

    assert fifo.disagreements > 0
    assert fifo.ordering_degree < 1.0
    assert math.isnan(fifo.detection_us)
    assert sequencer.disagreements == 0
    assert sequencer.against_fifo.others_changed > 0
    assert sequencer.messages > fifo.messages


def test_who_waits_longer_than_a_round_trip_is_found_out(outcomes: dict[str, Outcome]) -> None:
    slow = attrs.evolve(
        outcomes["pairwise"],
        delays_s={
            publication: {name: delay + 0.001 for name, delay in delays.items()}
            for publication, delays in outcomes["pairwise"].delays_s.items()
        },
    )
    against = look_at(SCENE, slow, outcomes["fifo"]).against_fifo

    assert against.others_changed > 0
    assert against.waited_too_long > 0
    assert against.above_later == against.above


def test_brokers_that_take_their_time_do_the_same_work() -> None:
    scene = attrs.evolve(SCENE, interval_s=0.001)
    outcome = play(scene, "pairwise", are_brokers_busy=True)

    assert outcome.leftovers == ()
    assert {name: sorted(seen) for name, seen in outcome.streams.items()} == {
        name: sorted(seen) for name, seen in play(scene, "fifo").streams.items()
    }
    assert set(outcome.busy_s) == set(scene.overlay.brokers)
    assert all(seconds > 0 for seconds in outcome.busy_s.values())


def test_the_ordering_degree_is_what_the_report_says() -> None:
    stream = [("p", number) for number in range(4)]
    swapped = [stream[1], stream[0], stream[2], stream[3]]

    assert ordering_degree(stream, stream) == 1.0
    assert ordering_degree(stream, [("q", 1)]) == 1.0
    assert ordering_degree(stream, [("q", 1), *swapped]) == (3 + 3 + 4 + 4) / 16


# --- what is made of it -------------------------------------------------------------------------


def trials(ordering: str, *rates: float, disagreeing: int = 0) -> Trials:
    outcomes = [
        TrialOutcome(
            messages_per_s=rate,
            deliveries_per_s=10 * rate,
            p50_ms=1.0,
            p99_ms=2.0,
            system_us=2.0,
            clients_us=2.0 if ordering == "fifo" else 3.0,
            missing=0,
            disagreeing=disagreeing,
            others_percent=0.0,
        )
        for rate in rates
    ]
    system = attrs.evolve(EVERYWHERE, ordering=ordering)
    return Trials(system=system, workload=WORKLOADS["mtput"], outcomes=outcomes)


def peers(ours: float, **theirs: float) -> PeerFigures:
    def row(rate: float) -> dict[str, Any]:
        order = {"sub_pairs": 45, "sub_pairs_disagreeing": 0}
        latencies = {"p50": 1.0, "p99": 2.0}
        return {"msgs_per_s": rate, "lat_ms": latencies, "other_cpu_pct": 1, "order": order}

    rates = {name.replace("_", "-"): rate for name, rate in theirs.items()} | {PLAIT: ours}
    return PeerFigures(
        versions=dict.fromkeys(rates, "1"),
        left_out={},
        rows={"mtput": {name: [row(rate)] for name, rate in rates.items()}},
        wanted=ORDERED_PEERS,
        daemons=3,
    )


def goals(figures: OrderFigures) -> list[tuple[float, bool | None]]:
    return [(goal.value, goal.is_met) for goal in figures.goals]


def test_overhead_is_compared_round_by_round() -> None:
    fifo = trials("fifo", 100, 10, 100, disagreeing=30)

    assert goals(OrderFigures(trials=[fifo, trials("pairwise", 70, 7, 10)])) == [
        (0.7, True),
        (0.8, None),
        (0, True),
    ]
    assert goals(OrderFigures(trials=[fifo, trials("pairwise", 50, 7, 10, disagreeing=1)])) == [
        (0.5, False),
        (0.8, None),
        (1, False),
    ]


def test_peers_are_compared_with_what_is_wanted_of_each() -> None:
    assert goals(OrderFigures(peers=peers(60, rabbit_stream=50, spread_agreed=100))) == [
        (1.2, True),
        (0.6, True),
        (0, True),
    ]
    assert goals(OrderFigures(peers=peers(40, rabbit_stream=50, spread_agreed=100))) == [
        (0.8, False),
        (0.4, False),
        (0, True),
    ]


def test_too_many_publishers_are_the_first_that_do_not_get_through() -> None:
    throughput = Throughput(
        rate_per_s=10,
        loads=[
            Load(ordering=name, publishers=count, offered_per_s=10 * count, done=done, busiest=1)
            for name, shares in (("fifo", (1.0, 1.0)), ("sequencer", (0.99, 0.5)))
            for count, done in zip((130, 240), shares, strict=True)
        ],
    )

    assert throughput.saturated_by("fifo") is None
    assert throughput.saturated_by("sequencer") == 240


def test_the_report_has_every_figure_with_what_is_wanted(points: dict[str, Point]) -> None:
    throughput = Throughput(
        rate_per_s=10,
        loads=[Load(ordering="fifo", publishers=130, offered_per_s=1300, done=1, busiest=0.5)],
    )
    figures = OrderFigures(
        points=list(points.values()),
        throughput=throughput,
        trials=[trials("fifo", 100), trials("pairwise", 50)],
        peers=peers(40, rabbit_stream=50),
    )
    text = report(figures)

    assert "MISSED     0.5  throughput over TCP, divided by fifo's" in text
    assert "met          0  violations (wanted: 0); fifo:" in text
    assert all(goal.name in text for goal in figures.goals)
    document = json.loads(json.dumps(figures.to_json(), allow_nan=False))
    assert len(document["goals"]) == len(figures.goals)
    for chart in figures.charts().values():
        ElementTree.fromstring(chart.to_svg())


def test_faster_than_the_others_is_asked_where_everything_conflicts() -> None:
    session = OrderSession(
        scenarios=["delay"],
        orderings=["fifo", "sequencer", "pairwise"],
        sizes=[24],
        interests=[80],
        conflicting=[1.0],
        publications=40,
    )
    asked = [goal for goal in measure(session).goals if "divided by that of seq" in goal.name]

    def find(sharing: str) -> Goal:
        return next(goal for goal in asked if goal.name.endswith(sharing))

    assert len(asked) == 2
    assert find(PAIRS).is_met
    # With the root on every way, one can be as fast as a sequencer there, and not faster.
    assert find(EVERYBODY).value == pytest.approx(1.0)
    assert not find(EVERYBODY).is_met


def test_the_command_writes_figures_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        order, "OrderSession", partial(OrderSession, conflicting=[1.0], publications=12)
    )
    options = ["--scenario", "delay", "--brokers", "24", "--interests", "20", "--json"]
    result = CliRunner().invoke(command, [*options, "--plots", str(tmp_path / "plots")])

    assert result.exit_code == 0, result.output
    assert {point["brokers"] for point in json.loads(result.output)["points"]} == {24}
    assert Path(tmp_path, "plots", "delay-24-pairs.svg").is_file()


# --- plots --------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [0.0, 0.013, 1.0, 7.3, 99.0, 100.0, 612.3, 207_062.0])
def test_ticks_are_few_and_reach_the_largest_value(largest: float) -> None:
    values = ticks(largest)

    assert values[0] == 0
    assert values[-1] >= largest
    assert 2 <= len(values) <= 7
    assert len(values) == 2 or values[-2] < largest


def test_a_chart_shows_all_lines_by_name_and_keeps_names_apart() -> None:
    lines = [Line("a & b", [(1, 2), (3, 4)]), Line("c", [(1, 1), (3, 4)], is_reference=True)]
    svg = ElementTree.fromstring(Chart(title="<t>", x="x", y="y", lines=lines).to_svg())
    texts = {text.text: text for text in svg.iter("{http://www.w3.org/2000/svg}text")}

    assert {"a & b", "c", "<t>", "x", "y"} <= texts.keys()
    assert float(texts["c"].attrib["y"]) - float(texts["a & b"].attrib["y"]) == 14
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))) == 4


def test_a_long_title_takes_several_lines_and_loses_nothing() -> None:
    title = "How long publications take that meet others, by the number of topics they all share"
    chart = Chart(title=title, x="x", y="y", lines=[Line("a", [(1, 2)])])
    svg = ElementTree.fromstring(chart.to_svg())
    texts = [*svg.iter("{http://www.w3.org/2000/svg}text")]
    shown = [text for text in texts if text.get("class") == "title"]
    (y_label,) = (text for text in texts if text.text == "y")

    assert " ".join(str(text.text) for text in shown) == title
    assert len(shown) == 2
    assert float(shown[-1].attrib["y"]) < float(y_label.attrib["y"])


# --- over TCP -----------------------------------------------------------------------------------


@pytest.mark.processes
async def test_publishers_everywhere_and_subscribers_everywhere_agree_under_pairwise() -> None:
    workload = attrs.evolve(WORKLOADS["mtput"], publishers=3, subscribers=3)
    outcome = await run_trial(attrs.evolve(EVERYWHERE, ordering="pairwise"), workload, 0.2)

    assert (outcome.missing, outcome.disagreeing) == (0, 0)
    assert outcome.p50_ms > 0


def test_as_a_peer_plait_is_a_line_with_the_root_in_its_middle() -> None:
    started: list[list[str]] = []
    peer: Any = SimpleNamespace(
        ports=[1, 2, 3], ordering="pairwise", popen=started.append, wait_port=lambda _: None
    )
    PlaitPeer.start(peer)
    options = [dict(zip(one[5::2], one[6::2], strict=True)) for one in started]

    assert [one["--name"] for one in options] == ["b1", "b0", "b2"]
    assert [one["--listen"][-1] for one in options] == ["2", "1", "3"]
    assert [one.get("--join", "-")[-1] for one in options] == ["-", "2", "2"]
    assert {one["--ordering"] for one in options} == {"pairwise"}
