"""What the commands of a script mean, on the stage that is quick: virtual time."""

from pathlib import Path

import pytest

from faulttol.guarantees import Report
from faulttol.history import Record, read_run
from scripts.errors import ProblemsFoundError
from scripts.happenings import (
    Advertised,
    Delivered,
    Happening,
    Published,
    Stable,
    StatusTaken,
    Subscribed,
    Unsubscribed,
)
from scripts.narration import Clock
from scripts.runs import RunPlan, run_simulated
from scripts.scenario import load_scenario

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

    def __init__(self, folder: Path, script: str, *, seed: int = 1) -> None:
        (folder / "x.conf").write_text(CONFIGURATION)
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
    first_stable = performance.happenings.index(Stable(publications=4, deliveries=4))

    assert isinstance(performance.happenings[first_stable + 1], StatusTaken)


def test_status_asks_every_broker(tmp_path: Path) -> None:
    performance = Performance(tmp_path, "Status\n")
    (status,) = performance.of_kind(StatusTaken)

    assert isinstance(status, StatusTaken)
    assert [report["node"] for report in status.reports if isinstance(report, dict)] == ["b1", "b2"]


def test_a_simulated_run_is_repeated_to_the_last_record(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    script = "Subscriber alice Subscribe /a\nPublisher nyse Publish 9 Ontopic /a Interval 3\n"

    one = Performance(tmp_path, script, seed=7).records()
    again = Performance(tmp_path / "again", script, seed=7).records()

    assert one == again
    assert len(one) > 9
