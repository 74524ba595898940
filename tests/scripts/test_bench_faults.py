"""`plait bench faults` judges failures rightly. Nothing here looks at how fast anything is."""

import json
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest
from click.testing import CliRunner

pytest.importorskip("psutil", reason="only `plait bench` needs it")

from plait.broker.machine.interests import FILTER, FLOODING
from plait.routing.ids import NodeId
from plait.scripts.bench.faults import FAULT_FREE, FaultSession, command, measure
from plait.scripts.bench.faults_cost import Cost, measure_cost
from plait.scripts.bench.faults_figures import FaultFigures
from plait.scripts.bench.faults_memory import Hour, measure_hour, reachable_bytes
from plait.scripts.bench.faults_outage import DIAL_DELAYS, VICTIMS, Outage, measure_outage
from plait.scripts.bench.faults_rate import Rate, measure_rate
from plait.scripts.bench.faults_recovery import Recovery, measure_recovery
from plait.scripts.bench.faults_report import report
from plait.scripts.bench.faults_tcp import Stall
from plait.scripts.bench.faults_world import LINK_DELAY_S, FaultWorld
from plait.scripts.bench.figures import Trials
from plait.scripts.bench.trials import Outcome, System
from plait.scripts.bench.workloads import WORKLOADS

ONE, TWO = DIAL_DELAYS


@pytest.fixture(scope="module")
def outages() -> list[Outage]:
    return [measure_outage(victim, "pairwise", ONE) for victim in VICTIMS]


@pytest.fixture(scope="module")
def costs() -> list[Cost]:
    return [measure_cost(3, unstable) for unstable in (0, 12, 24)]


@pytest.fixture(scope="module")
def recoveries() -> list[Recovery]:
    return [measure_recovery(30, policy) for policy in (FLOODING, FILTER)]


@pytest.fixture(scope="module")
def rates() -> list[Rate]:
    return [measure_rate(12, delta, share, clients=4) for delta in (1, 3) for share in (0, 0.5)]


@pytest.fixture(scope="module")
def hour() -> Hour:
    return measure_hour(hour_s=240.0)


# --- the world ----------------------------------------------------------------------------------


def test_a_dial_takes_as_many_link_delays_as_it_is_told() -> None:
    joined = []
    for delays in (1, 2):
        world = FaultWorld(0, dial_delays=delays)
        world.add_broker(NodeId("b0"), None)
        world.add_broker(NodeId("b1"), NodeId("b0"))
        world.run_until_calm()
        joined += [record["at"] for record in world.records() if record["node"] == "b1"]

    # A dial; Hello, Welcome; Join, Confirm.
    assert joined == pytest.approx([5 * LINK_DELAY_S, 6 * LINK_DELAY_S])


def test_what_happens_knows_what_it_came_of() -> None:
    world = FaultWorld(0, has_causes=True)
    world.add_broker(NodeId("b0"), None)
    ways = []
    node = world.add_broker(NodeId("b1"), NodeId("b0"))
    world.when_ready(node, lambda: ways.append(world.step))
    world.run_until_calm()

    assert ways[0] is not None
    assert [step.text for step in ways[0].way_from(0.0) if step.text] == [
        "b1 dials b0",
        "Hello b1 -> b0",
        "Welcome b0 -> b1",
        "EndOfStep b1 -> b0",
        "EndOfStep b0 -> b1",
    ]


def test_a_busy_broker_makes_others_wait_and_loses_nothing() -> None:
    world = FaultWorld(0)
    world.add_broker(NodeId("b0"), None)
    world.are_brokers_busy = True
    spent = world.begin_phase()
    world.add_broker(NodeId("b1"), NodeId("b0"))
    world.run_until_calm()

    assert world.nodes[NodeId("b1")].is_ready
    assert 0 < spent.longest_step_s < sum(spent.cpu_s.values())
    assert spent.last_at > 5 * LINK_DELAY_S
    assert world.unfinished() == []


# --- scenarios ----------------------------------------------------------------------------------


def test_an_outage_begins_with_a_lost_connection_and_ends_with_a_delivery(
    outages: list[Outage],
) -> None:
    for outage in outages:
        assert 0 <= outage.noticed < outage.taken_up < outage.first <= outage.last
        # Time begins when the last connection is lost; who has lost its own before dials by then.
        assert outage.way[0][1].endswith("loses its connection") or "dials" in outage.way[0][1]
        assert outage.way[-1][0] == outage.first
        assert outage.way[-1][1].startswith("EndOfStep")
        assert (outage.violations, outage.leftovers) == (0, 0)


def test_an_outage_takes_longer_where_dialling_does(outages: list[Outage]) -> None:
    slower = measure_outage("inner broker", "pairwise", TWO)

    assert slower.first_since_noticed > outages[0].first_since_noticed


def test_every_neighbour_tells_of_all_that_is_not_stable(costs: list[Cost]) -> None:
    nothing, some, more = costs

    assert "Publish" not in nothing.messages
    assert some.messages["Publish"] >= 2 * 12
    assert more.messages["Publish"] == 2 * some.messages["Publish"]
    assert nothing.bytes < some.bytes < more.bytes
    assert all(
        (cost.missing, cost.violations, cost.leftovers, cost.messages["Attach"]) == (0, 0, 0, 2)
        for cost in costs
    )


def test_a_broker_comes_back_with_the_tables_it_needs(recoveries: list[Recovery]) -> None:
    flooding, with_filter = recoveries

    assert flooding.recovered_subscriptions == with_filter.recovered_subscriptions == 30
    for recovery in recoveries:
        assert recovery.leftovers == 0
        for phase in (recovery.takeover, recovery.recovery):
            assert phase.messages > 0
            assert 0 < phase.longest_step_s <= phase.total_cpu_s
            assert 0 < phase.virtual_s <= phase.calm_s
    assert "b1" in flooding.recovery.cpu_s
    assert "b1" not in flooding.takeover.cpu_s


def test_everything_is_delivered_until_too_many_brokers_hang_together(rates: list[Rate]) -> None:
    for rate in rates:
        assert rate.unsafe == {}
        assert rate.owed == 4 * 102 * 4
        assert rate.owed_at_first == 4 * 12 * 4
        if not rate.too_large:
            assert rate.share_delivered == rate.share_delivered_later == 1.0
    assert any(rate.too_large and rate.share_delivered < 1.0 for rate in rates)
    assert [rate.failed for rate in rates] == [0, 6, 0, 6]


@pytest.mark.processes
def test_what_brokers_hold_is_looked_at_while_they_crash_and_come_back(hour: Hour) -> None:
    assert hour.crashes == 1
    assert hour.violations == 0
    assert [moment.at_s for moment in hour.moments] == [60.0, 120.0, 180.0, 240.0]
    assert [moment.held for moment in hour.moments] == [0, 0, 0, 0]
    assert all(moment.bytes > 7 * 10_000 for moment in hour.moments)


def test_what_is_held_is_counted_once_however_often_it_is_held() -> None:
    one = ["x" * 1000]

    assert 1000 < reachable_bytes([one]) < 1300
    assert reachable_bytes([one, one, (one, reachable_bytes)]) < 1400


def test_the_same_trial_is_run_with_and_without_delta() -> None:
    session = FaultSession(
        scenarios=[FAULT_FREE], workloads=["tput"], subscribers=3, seconds=0.2, rounds=1
    )
    figures = measure(session)

    assert [one.system.delta for one in figures.trials] == [0, 1]
    assert all(outcome.missing == 0 for one in figures.trials for outcome in one.outcomes)
    assert len(figures.goals) == 1


# --- what is made of it -------------------------------------------------------------------------


def trials(delta: int, *rates: float) -> Trials:
    outcomes = [
        Outcome(
            messages_per_s=rate,
            deliveries_per_s=10 * rate,
            p50_ms=1.0,
            p99_ms=2.0,
            system_us=2.0,
            clients_us=2.0,
            missing=0,
            disagreeing=0,
            others_percent=0.0,
        )
        for rate in rates
    ]
    system = System(name="everywhere", title="", brokers=3, delta=delta)
    return Trials(system=system, workload=WORKLOADS["tput"], outcomes=outcomes)


def verdicts(figures: FaultFigures, words: str) -> list[bool | None]:
    return [goal.is_met for goal in figures.goals if words in goal.name]


def test_the_cost_of_delta_is_compared_round_by_round() -> None:
    plain = trials(0, 100, 10, 100)

    assert verdicts(FaultFigures(trials=[plain, trials(1, 90, 8, 10)]), "throughput") == [True]
    assert verdicts(FaultFigures(trials=[plain, trials(1, 70, 7, 100)]), "throughput") == [False]


def test_whoever_holds_more_and_more_is_found_out(hour: Hour) -> None:
    first = hour.moments[0]
    for share, is_flat in ((1.0, True), (1.5, False)):
        last = attrs.evolve(first, bytes=round(share * first.bytes))
        figures = FaultFigures(hours=[attrs.evolve(hour, moments=[first, last])])

        assert verdicts(figures, "what brokers hold") == [is_flat]


def test_the_longest_stall_of_all_crashes_is_judged() -> None:
    short = Stall(
        what="b1 killed", stall_ms=300.0, calm_ms=9.0, published=10, delivered=90, failures=0
    )
    long = attrs.evolve(short, stall_ms=1200.0, failures=1)

    assert verdicts(FaultFigures(stalls=[short]), "over TCP") == [True, True]
    assert verdicts(FaultFigures(stalls=[short, long]), "over TCP") == [False, False]
    assert "b1 killed" in report(FaultFigures(stalls=[short]))


def test_an_outage_is_judged_from_the_end_of_detection(outages: list[Outage]) -> None:
    outage = attrs.evolve(outages[0], noticed=3.0, first=9.0)

    assert verdicts(FaultFigures(outages=[outage]), "across the inner") == [True]
    longer = attrs.evolve(outage, first=9.1)
    assert verdicts(FaultFigures(outages=[outage, longer]), "across the inner") == [False]
    usual = attrs.evolve(longer, dialling=TWO)
    assert verdicts(FaultFigures(outages=[usual]), "across the inner") == [None]


def test_work_that_grows_with_the_square_is_found_out(costs: list[Cost]) -> None:
    small, large = (
        attrs.evolve(costs[1], unstable=n, coordinator_cpu_s=0.01) for n in (100, 1_000)
    )

    linear = FaultFigures(costs=[small, attrs.evolve(large, coordinator_cpu_s=0.1)])
    square = FaultFigures(costs=[small, attrs.evolve(large, coordinator_cpu_s=1.0)])
    assert verdicts(linear, "power") == [True]
    assert verdicts(square, "power") == [False]


def test_a_rate_is_judged_where_it_is_asked_for(rates: list[Rate]) -> None:
    asked = attrs.evolve(rates[0], brokers=500, failed=85, delta=3, owed=1_000, delivered=971)

    assert verdicts(FaultFigures(rates=[asked]), "delivered with") == [True]
    fewer = attrs.evolve(asked, delivered=970, unsafe={"fifo": 2})
    assert verdicts(FaultFigures(rates=[fewer]), "delivered with") == [False]
    assert verdicts(FaultFigures(rates=[fewer]), "safety") == [False]
    assert verdicts(FaultFigures(rates=[attrs.evolve(asked, delta=2)]), "delivered with") == []


def test_the_report_has_every_figure_with_what_is_wanted(
    outages: list[Outage], costs: list[Cost], recoveries: list[Recovery], rates: list[Rate]
) -> None:
    figures = FaultFigures(
        outages=outages,
        costs=costs,
        recoveries=recoveries,
        rates=rates,
        trials=[trials(0, 100), trials(1, 70)],
    )
    text = report(figures)

    assert "MISSED     0.7  throughput with δ = 1" in text
    assert "what led to the first delivery; root" in text
    assert all(goal.name in text for goal in figures.goals)
    document = json.loads(json.dumps(figures.to_json(), allow_nan=False))
    assert len(document["goals"]) == len(figures.goals)
    assert set(figures.charts()) == {"cost-bytes", "recovery", "rate"}
    for chart in figures.charts().values():
        ElementTree.fromstring(chart.to_svg())


def test_the_command_writes_figures_and_plots(tmp_path: Path) -> None:
    options = ["--scenario", "recovery", "--subscriptions", "30", "--json"]
    result = CliRunner().invoke(command, [*options, "--plots", str(tmp_path / "plots")])

    assert result.exit_code == 0, result.output
    assert {one["subscriptions"] for one in json.loads(result.output)["recoveries"]} == {30}
    assert Path(tmp_path, "plots", "recovery.svg").is_file()
