"""`plait chaos`: whom it strikes, how it judges, what it says."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import plait.scripts.chaos
from plait.faulttol.history import HistoryWriter, Manifest, write_manifest
from plait.scripts.chaos import Attack, Blow, Outcome, judge, longest_times, random_attack
from plait.scripts.main import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["chaos", *arguments])


@pytest.mark.parametrize("seed", range(20))
def test_victims_are_neighbours_and_as_many_as_are_survived(seed: int) -> None:
    attack = random_attack(seed, brokers=7, delta=3, blow=Blow.KILL)
    tree = attack.overlay

    assert len(set(attack.victims)) == 3
    for number, victim in enumerate(attack.victims[1:], 1):
        assert set(tree.neighbours_of(victim)) & set(attack.victims[:number])
    assert len(tree.publishers) == len(tree.subscribers) == 10
    assert attack == random_attack(seed, brokers=7, delta=3, blow=Blow.KILL)


def test_a_rolling_restart_is_of_all_brokers_in_some_order() -> None:
    attack = random_attack(3, brokers=7, delta=1, blow=Blow.RESTART)

    assert sorted(attack.victims) == sorted(attack.overlay.brokers)
    assert attack.victims != attack.overlay.brokers
    assert attack.describe() == "7 brokers restarted in turn"


@pytest.mark.parametrize(
    ("blow", "lives"),
    [(Blow.KILL_AND_RECOVER, (2,)), (Blow.STOP, (1, 2)), (Blow.RESTART, (2,))],
)
def test_who_was_only_stopped_may_not_have_been_given_up(
    blow: Blow, lives: tuple[int, ...]
) -> None:
    attack = random_attack(5, brokers=3, delta=1, blow=blow)

    assert {attack.lives_of(victim) for victim in attack.victims} == {lives}
    assert all(
        attack.lives_of(other) == (1,) for other in set(attack.overlay.brokers) - {*attack.victims}
    )


def write_history(directory: Path, *, is_delivered: bool) -> None:
    write_manifest(
        directory,
        Manifest(
            run="r", topology={}, ordering="pairwise", delta=1, seed=1, started=0.0, simulated=False
        ),
    )
    with (
        HistoryWriter(directory, "r", "plait-launcher", 1) as launcher,
        HistoryWriter(directory, "r", "p", 1) as publisher,
        HistoryWriter(directory, "r", "s", 1) as subscriber,
    ):
        fields: dict[str, Any] = {"client": "s", "subscription": "s/1", "filter": "n > 0"}
        subscriber.write(1.0, "subscribed", **fields, ordered=True)
        for at, seq in ((2.0, 1), (3.0, 2)):
            content = {"n": seq}
            fields = {"publisher": "p", "publisher_incarnation": 1, "seq": seq}
            publisher.write(at, "published", **fields, content=content, ordered=True, crc=0)
            if seq == 1 or is_delivered:
                fields |= {"subscriber": "s", "position": seq, "subscriptions": ["s/1"], "crc": 0}
                subscriber.write(at + seq / 8, "delivered", **fields)
            publisher.write(at + 0.5, "confirmed", publisher="p", publisher_incarnation=1, seq=seq)
        for broker in ("b1", "b2"):
            launcher.write(2.5, "crashed", about=broker)


def test_more_failures_than_are_survived_excuse_no_loss(tmp_path: Path) -> None:
    write_history(tmp_path, is_delivered=False)
    outcome = judge(tmp_path)

    assert not outcome.is_clean
    assert [failure.split(":")[0] for failure in outcome.failures] == ["loss"]


def test_a_stall_is_the_longest_way_of_a_publication(tmp_path: Path) -> None:
    write_history(tmp_path, is_delivered=True)
    outcome = judge(tmp_path)

    assert outcome.is_clean
    assert (outcome.stall_ms, outcome.calm_ms) == (250.0, 125.0)
    assert longest_times([]) == (0.0, 0.0)


@pytest.fixture
def _run_2_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def perform(attack: Attack, directory: Path) -> Outcome:
        directory.mkdir(parents=True)  # noqa: ASYNC240 - nobody else waits
        return Outcome(
            failures=("loss: s1 never delivered p1#5",) * 7 if attack.seed == 2 else (),
            published=1000,
            delivered=4000,
            stall_ms=100.0 * attack.seed,
            calm_ms=5.0,
        )

    monkeypatch.setattr(plait.scripts.chaos, "perform", perform)


@pytest.mark.usefixtures("_run_2_fails")
def test_every_run_is_a_line_and_all_of_them_a_summary(tmp_path: Path) -> None:
    result = run("--repeat", "3", "--seed", "1", "--out", str(tmp_path / "out"))

    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stdout.splitlines() if line[0] != " "] == [
        *("seed 1", "seed 2", "seed 3"),
        "3 runs of 7 brokers, 1 of them killed",
    ]
    assert "longest stall 200 ms (5 ms before): FAILED" in result.stdout
    assert "... and 2 more" in result.stdout
    assert "Longest stall: 300 ms; in half of the runs at most 200 ms." in result.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["2"]


@pytest.mark.usefixtures("_run_2_fails")
def test_as_json_it_says_the_same(tmp_path: Path) -> None:
    result = run("--repeat", "1", "--seed", "3", "--json", "--out", str(tmp_path / "out"))
    one, summary = map(json.loads, result.stdout.splitlines())

    assert result.exit_code == 0
    assert one["seed"] == 3
    assert summary["failed"] == 0
    assert summary["stall_ms_max"] == one["stall_ms"] == 300.0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--stop", "--recover"), "either --stop or --recover"),
        (("--delta", "7"), "none is left"),
        (("--rolling", "--stop"), "no --stop or --recover"),
    ],
)
def test_what_cannot_be_done_is_bad_usage(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert complaint in result.stderr
