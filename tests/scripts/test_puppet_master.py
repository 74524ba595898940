"""What the commands of a script mean, on the stage that is quick: virtual time."""

from pathlib import Path

import pytest

from plait.faulttol.guarantees import Report
from plait.faulttol.history import Record, read_run
from plait.scripts.errors import ProblemsFoundError
from plait.scripts.happenings import (
    Advertised,
    ClientLost,
    CommandBegun,
    Delivered,
    Frozen,
    Happening,
    PassedOver,
    Published,
    Recovered,
    Stable,
    StatusTaken,
    Subscribed,
    Unfrozen,
    Unsubscribed,
)
from plait.scripts.narration import Clock
from plait.scripts.runs import RunPlan, run_simulated
from plait.scripts.scenario import load_scenario
from plait.scripts.status_reports import ClientReport, Unreachable

CONFIGURATION = """\
RoutingPolicy filter
Site root Parent none
Site left Parent root
Process b1 Is broker On root
Process b2 Is broker On left
Process alice Is subscriber On left
Process nyse Is publisher On root
"""


class Performance:
    """A script performed, and what happened."""

    def __init__(
        self, folder: Path, script: str, *, seed: int = 1, configuration: str = CONFIGURATION
    ) -> None:
        (folder / "x.conf").write_text(configuration)
        (folder / "x.script").write_text(script)
        self.directory = folder / f"run-{seed}"
        self.happenings: list[Happening] = []
        self.times: list[float] = []
        self._clock: Clock = lambda: 0.0
        self.report: Report = run_simulated(
            RunPlan(
                scenario=load_scenario(str(folder / "x.conf"), str(folder / "x.script")),
                ordering="fifo",
                delta=1,
                seed=seed,
                directory=self.directory,
                open_teller=self._open_teller,
            )
        )

    def _open_teller(self, clock: Clock) -> "Performance":
        self._clock = clock
        return self

    def __call__(self, happening: Happening) -> None:
        self.happenings.append(happening)
        self.times.append(self._clock())

    def of_kind(self, kind: type[Happening]) -> list[Happening]:
        return [happening for happening in self.happenings if isinstance(happening, kind)]

    def records(self) -> list[Record]:
        return read_run(self.directory).records


def test_publishing_on_a_topic_advertises_it_first_and_once(tmp_path: Path) -> None:
    line = "Publisher nyse Publish 1 Ontopic /a Interval 0\n"
    performance = Performance(tmp_path, line + line)

    assert performance.of_kind(Advertised) == [Advertised("nyse", "topic = '/a'")]
    assert len(performance.of_kind(Published)) == 2


def test_a_topic_that_lies_in_an_advertisement_needs_no_other(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Publisher nyse Advertise WHERE topic LIKE '/a/%'\n"
        "Publisher nyse Publish 1 Ontopic /a/b Interval 0\n",
    )

    assert len(performance.of_kind(Advertised)) == 1


def test_a_subscription_by_prefix_gets_what_is_below_it(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a/*\n"
        "Publisher nyse Publish 1 Ontopic /a Interval 0\n"
        "Publisher nyse Publish 1 Ontopic /a/b Interval 0\n",
    )

    assert performance.of_kind(Delivered) == [Delivered("alice", "nyse", 2, {"topic": "/a/b"})]
    assert performance.report.is_clean


def test_commands_take_effect_in_order_and_do_not_wait_for_intervals(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Publisher nyse Publish 3 Ontopic /a Interval 10000\n"
        "Publisher nyse Publish 2 Ontopic /b Interval 10000\n"
        "Subscriber alice Subscribe /a\n",
    )
    told = list(zip(performance.happenings, performance.times, strict=True))
    subscribed_at = next(at for happening, at in told if isinstance(happening, Subscribed))
    published_at = [at for happening, at in told if isinstance(happening, Published)]

    assert sum(at < subscribed_at for at in published_at) == 2
    assert subscribed_at < 1
    assert published_at[-1] == pytest.approx(20, abs=1)


def test_unsubscribing_ends_one_subscription_and_none_is_none(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nSubscriber alice Subscribe /a\n"
        "Subscriber alice Unsubscribe /a\nPublisher nyse Publish 1 Ontopic /a Interval 0\n"
        "Await stable\nSubscriber alice Unsubscribe /a\nSubscriber alice Unsubscribe /a\n"
        "Publisher nyse Publish 1 Ontopic /a Interval 0\n",
    )

    assert len(performance.of_kind(Unsubscribed)) == 2
    assert len(performance.of_kind(Delivered)) == 1


def test_content_is_counted_and_random_by_seed(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    script = (
        "Publisher nyse Advertise WHERE TRUE\n"
        'Publisher nyse Publish 3 CONTENT {"n": ${n}, "x": ${random(1,1000000)}} Interval 0\n'
    )
    one, same, other = (
        [record["content"] for record in run.records() if record["kind"] == "published"]
        for run in (
            Performance(tmp_path, script, seed=1),
            Performance(tmp_path / "again", script, seed=1),
            Performance(tmp_path, script, seed=2),
        )
    )

    assert [content["n"] for content in one] == [1, 2, 3]
    assert one == same
    assert one != other


def test_publishing_outside_of_what_is_advertised_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ProblemsFoundError) as caught:
        Performance(
            tmp_path,
            "Publisher nyse Advertise WHERE price < 3\n"
            'Publisher nyse Publish 5 CONTENT {"price": ${n}} Interval 5\nWait 100\n',
        )

    assert "x.script:2:11: found a publication of nyse outside" in str(caught.value)
    assert "price=3" in str(caught.value)


def test_await_stable_waits_for_streams_and_deliveries(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\n"
        "Publisher nyse Publish 4 Ontopic /a Interval 1000\nAwait stable\nStatus\n",
    )
    happenings = [
        happening for happening in performance.happenings if not isinstance(happening, CommandBegun)
    ]
    first_stable = happenings.index(Stable(publications=4, deliveries=4))

    assert isinstance(happenings[first_stable + 1], StatusTaken)


def test_status_asks_every_broker_and_every_client(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nSubscriber alice Subscribe /b\nFreeze alice\n"
        "Publisher nyse Publish 3 Ontopic /a Interval 0\nWait 100\nStatus\nUnfreeze alice\n",
    )
    (status,) = performance.of_kind(StatusTaken)
    lines = (performance.directory / "events.log").read_text().splitlines()
    said = [line for line in lines if line.startswith("Status")]

    assert isinstance(status, StatusTaken)
    assert [report["node"] for report in status.reports if isinstance(report, dict)] == ["b1", "b2"]
    assert [report for report in status.reports if isinstance(report, ClientReport)] == [
        ClientReport("nyse", "ready", "b1", 0, 3),
        ClientReport("alice", "frozen", "b2", 2, 0),
    ]
    assert said == [
        "Status",
        "Status b1: operational, 1 subscriptions, 1 advertisements, 3 unstable",
        "Status b2: operational, 2 subscriptions, 1 advertisements, 3 unstable",
        "Status nyse: ready, at b1, 0 subscriptions, 3 unconfirmed",
        "Status alice: frozen, at b2, 2 subscriptions, 0 unconfirmed",
    ]


def test_a_simulated_run_is_repeated_to_the_last_record(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    script = "Subscriber alice Subscribe /a\nPublisher nyse Publish 9 Ontopic /a Interval 3\n"

    one = Performance(tmp_path, script, seed=7).records()
    again = Performance(tmp_path / "again", script, seed=7).records()

    assert one == again
    assert len(one) > 9


# --- faults -------------------------------------------------------------------------------------


def test_a_script_does_not_wait_for_who_is_frozen(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Freeze b2\nSubscriber alice Subscribe /a\nWait 2000\nUnfreeze b2\nAwait stable\n"
        "Publisher nyse Publish 1 Ontopic /a Interval 0\n",
    )
    told = list(zip(performance.happenings, performance.times, strict=True))
    frozen_at = next(at for happening, at in told if happening == Frozen("b2"))
    unfrozen_at = next(at for happening, at in told if happening == Unfrozen("b2"))
    subscribed_at = next(at for happening, at in told if isinstance(happening, Subscribed))

    assert 2 <= unfrozen_at - frozen_at < 3
    assert subscribed_at > unfrozen_at
    assert performance.of_kind(Delivered) == [Delivered("alice", "nyse", 1, {"topic": "/a"})]
    assert performance.report.is_clean


def test_what_is_published_while_a_broker_is_frozen_arrives_afterwards(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nFreeze b1\n"
        "Publisher nyse Publish 200 Ontopic /a Interval 0\nWait 3000\nUnfreeze b1\n",
    )
    told = performance.happenings
    last_published = max(i for i, one in enumerate(told) if isinstance(one, Published))

    assert last_published < told.index(Unfrozen("b1"))
    assert len(performance.of_kind(Delivered)) == 200
    assert performance.report.is_clean


@pytest.mark.parametrize("client", ["alice", "nyse"])
def test_a_frozen_client_goes_on_with_what_it_was_told_and_given(
    tmp_path: Path, client: str
) -> None:
    performance = Performance(
        tmp_path,
        f"Subscriber alice Subscribe /a\nFreeze {client}\n"
        "Publisher nyse Publish 2 Ontopic /a Interval 10\n"
        "Subscriber alice Subscribe /b\nPublisher nyse Publish 1 Ontopic /b Interval 0\n"
        f"Wait 2000\nUnfreeze {client}\n",
    )
    after = performance.happenings[performance.happenings.index(Unfrozen(client)) :]

    assert sum(isinstance(one, Delivered) for one in after) >= 2
    assert performance.report.is_clean


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("milliseconds", [4500, 6000])
@pytest.mark.parametrize("client", ["alice", "nyse"])
def test_nothing_is_lost_to_a_client_that_is_frozen_longer_than_its_broker_waits_for_a_sign(
    tmp_path: Path, client: str, milliseconds: int, seed: int
) -> None:
    """Silent for 3 s, it is disconnected; what it is owed is kept for 5 s more."""
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nPublisher nyse Publish 900 Ontopic /a Interval 10\n"
        f"Wait 1000\nFreeze {client}\nWait {milliseconds}\nUnfreeze {client}\n",
        seed=seed,
    )
    notes = [
        (record["kind"], record["about"])
        for record in performance.records()
        if record["node"] == "plait-launcher"
    ]

    assert performance.of_kind(Delivered) == [
        Delivered("alice", "nyse", seq, {"topic": "/a"}) for seq in range(1, 901)
    ]
    assert notes == [("frozen", client), ("unfrozen", client)]
    assert not any(record["kind"] == "skipped" for record in performance.records())
    assert performance.report.is_clean


def test_a_client_that_is_frozen_for_longer_is_given_up_and_begins_anew(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nPublisher nyse Publish 1500 Ontopic /a Interval 10\n"
        "Wait 1000\nFreeze alice\nWait 12000\nUnfreeze alice\n",
    )
    delivered = len(performance.of_kind(Delivered))

    assert 100 < delivered < 1500
    assert any(record["kind"] == "skipped" for record in performance.records())
    assert performance.report.is_clean


def test_a_simulated_run_has_the_heartbeats_that_processes_have(tmp_path: Path) -> None:
    (tmp_path / "said").mkdir()
    script = (
        "Subscriber alice Subscribe /a\nPublisher nyse Publish 900 Ontopic /a Interval 10\n"
        "Wait 1000\nFreeze b2\nWait 8000\nUnfreeze b2\n"
    )
    # Of two, none could tell which of them is cut off.
    three = f"{CONFIGURATION}Site right Parent root\nProcess b3 Is broker On right\n"
    unsaid = Performance(tmp_path, script, configuration=three)
    said = Performance(
        tmp_path / "said", script, configuration=f"{three}Heartbeat 500 Timeout 3000\n"
    )

    assert unsaid.records() == said.records()
    players = [r["host"] for r in unsaid.records() if r["kind"] == "taken_up"]
    assert players == ["b1", "b2"]


def test_who_is_still_frozen_at_the_end_is_let_go(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nFreeze b2\n"
        "Publisher nyse Publish 3 Ontopic /a Interval 10\n",
    )

    assert performance.of_kind(Unfrozen) == [Unfrozen("b2")]
    assert performance.happenings[-1] == Stable(publications=3, deliveries=3)
    assert [
        (record["kind"], record["about"])
        for record in performance.records()
        if record["node"] == "plait-launcher"
    ] == [("frozen", "b2"), ("unfrozen", "b2")]


def test_commands_that_cannot_be_executed_are_passed_over_with_a_reason(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Crash alice\nCrash alice\nSubscriber alice Subscribe /a\nFreeze alice\nRecover b1\n"
        "Unfreeze b1\nFreeze b1\nFreeze b1\nRecover alice\n",
    )
    reasons = [one.reason for one in performance.happenings if isinstance(one, PassedOver)]

    assert reasons == [
        *["alice has crashed"] * 3,
        "b1 has not crashed",
        "b1 is not frozen",
        "b1 is frozen already",
        "alice is a client, and only brokers are started again",
    ]
    assert (performance.directory / "events.log").read_text().splitlines() == [
        "Crash alice",
        *(
            f"// not executed: {command}: alice has crashed"
            for command in ("Crash alice", "Subscriber alice Subscribe /a", "Freeze alice")
        ),
        "// not executed: Recover b1: b1 has not crashed",
        "// not executed: Unfreeze b1: b1 is not frozen",
        "Freeze b1",
        "// not executed: Freeze b1: b1 is frozen already",
        "// not executed: Recover alice: alice is a client, and only brokers are started again",
        "Unfreeze b1",
    ]
    assert performance.report.is_clean


def test_a_crash_of_one_broker_is_survived(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nCrash b2\n"
        "Publisher nyse Publish 3 Ontopic /a Interval 10\nAwait stable\nStatus\n",
    )
    kinds = [record["kind"] for record in performance.records() if "about" in record]

    assert len(performance.of_kind(Delivered)) == 3
    assert performance.happenings.count(Stable(publications=3, deliveries=3)) == 1
    assert performance.report.is_clean
    assert "crashed" in kinds


def test_a_run_ends_although_nothing_is_left_to_end_it(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nPublisher nyse Publish 9 Ontopic /a Interval 10000\n"
        "Crash b1\nCrash b2\nAwait stable\n",
    )

    assert len(performance.of_kind(Published)) < 9
    assert performance.report.is_clean


def test_a_broker_recovers_with_a_higher_incarnation(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Crash b2\nWait 1000\nRecover b2\nAwait stable\nSubscriber alice Subscribe /a\n"
        "Publisher nyse Publish 3 Ontopic /a Interval 10\n",
    )
    kinds = [
        record["kind"] for record in performance.records() if record["node"] == "plait-launcher"
    ]

    assert kinds == ["crashed", "restarted"]
    assert performance.of_kind(Recovered) == [Recovered("b2")]
    assert len(performance.of_kind(Delivered)) == 3
    assert performance.report.is_clean


def test_a_root_recovers_among_those_who_went_on_without_it(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Subscriber alice Subscribe /a\nCrash b1\n"
        "Publisher nyse Publish 50 Ontopic /a Interval 50\n"
        "Wait 1000\nRecover b1\nAwait stable\nStatus\n",
    )
    (status,) = performance.of_kind(StatusTaken)
    assert isinstance(status, StatusTaken)
    reports = [report for report in status.reports if isinstance(report, dict)]

    assert [(report["node"], report["incarnation"]) for report in reports] == [("b1", 2), ("b2", 1)]
    assert {one["name"] for one in reports[1]["neighbours"]} >= {"b1"}
    assert len(performance.of_kind(Delivered)) == 50
    assert performance.report.is_clean


def test_status_knows_who_cannot_answer(tmp_path: Path) -> None:
    performance = Performance(tmp_path, "Freeze b1\nCrash b2\nStatus\n")
    (status,) = performance.of_kind(StatusTaken)

    assert isinstance(status, StatusTaken)
    assert status.reports == [
        Unreachable("b1", "b1", "it is frozen"),
        Unreachable("b2", "b2", "it has crashed"),
        ClientReport("nyse", "ready", "b1", 0, 0),
        ClientReport("alice", "ready", "b2", 0, 0),
    ]


def test_a_client_that_loses_the_overlay_ends_and_is_told_of(tmp_path: Path) -> None:
    performance = Performance(
        tmp_path,
        "Crash b1\nCrash b2\nWait 60000\nPublisher nyse Publish 3 Ontopic /a Interval 10\n",
    )
    lost = performance.of_kind(ClientLost)

    assert [one.client for one in lost if isinstance(one, ClientLost)] == ["nyse", "alice"]
    assert performance.of_kind(Published) == []
