"""Each guarantee against the smallest history that breaks it, and against its repaired twin."""

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from plait.broker.limits import Limits
from plait.faulttol.guarantees import (
    BEHIND_MAX,
    GUARANTEES,
    PATIENCE_S,
    Excuse,
    Report,
    Violation,
    check,
    check_run,
)
from plait.faulttol.history import Manifest, Record, read_run, write_run
from tests.faulttol.broken_histories import BROKEN, EXCUSED, Case, Story


def judge(records: list[Record], ordering: str = "pairwise", delta: int = 1) -> Report:
    return check(records, ordering=ordering, delta=delta)


def broken_guarantees(report: Report) -> list[str]:
    return [violation.guarantee for violation in report.violations]


def case_name(value: object) -> str | None:
    return value.name if isinstance(value, Case) else None


@pytest.mark.parametrize(("guarantee", "case"), BROKEN, ids=case_name)
class TestBroken:
    def test_history_breaks_one_guarantee(self, guarantee: str, case: Case) -> None:
        report = judge(case.history(True))

        assert broken_guarantees(report) == [guarantee]
        assert not report.is_clean

    def test_repaired_history_is_clean(self, guarantee: str, case: Case) -> None:
        report = judge(case.history(False))

        assert report.violations == ()
        assert report.is_clean
        assert report.excused == {}

    def test_verdict_does_not_depend_on_how_files_are_interleaved(
        self, guarantee: str, case: Case
    ) -> None:
        records = case.history(True)
        by_file = sorted(records, key=lambda record: (record["node"], record["incarnation"]))

        assert broken_guarantees(judge(by_file)) == [guarantee]

    def test_witness_names_records_that_exist(self, guarantee: str, case: Case) -> None:
        records = case.history(True)
        [violation] = judge(records).violations
        existing = {f"history/{r['node']}-{r['incarnation']}.jsonl:{r['n']}" for r in records}

        assert violation.records
        assert set(violation.records) <= existing


@pytest.mark.parametrize(("excuse", "case"), EXCUSED, ids=case_name)
class TestExcused:
    def test_fault_excuses_a_missing_publication(self, excuse: Excuse, case: Case) -> None:
        report = judge(case.history(True))

        assert report.is_clean
        assert report.excused == {excuse: 1}

    def test_without_the_fault_it_is_lost(self, excuse: Excuse, case: Case) -> None:
        report = judge(case.history(False))

        assert broken_guarantees(report) == ["loss"]
        assert report.excused == {}


def test_every_guarantee_has_a_history_that_breaks_it() -> None:
    assert {guarantee for guarantee, _ in BROKEN} == set(GUARANTEES["pairwise"])


def test_every_excuse_has_a_history_that_has_it() -> None:
    assert {excuse for excuse, _ in EXCUSED} == set(Excuse)


@pytest.mark.parametrize("ordering", GUARANTEES)
@pytest.mark.parametrize(("guarantee", "case"), BROKEN, ids=case_name)
def test_an_ordering_is_held_to_what_it_guarantees(
    ordering: str, guarantee: str, case: Case
) -> None:
    broken = broken_guarantees(judge(case.history(True), ordering))

    assert broken == ([guarantee] if guarantee in GUARANTEES[ordering] else [])


# What looks broken and is not


def three_subscribers_in_a_ring(story: Story) -> None:
    """No two of them have two publications in common."""
    pairs = {"s": "pq", "t": "qr", "u": "rp"}
    for subscriber, publishers in pairs.items():
        prices = ", ".join(str(ord(publisher)) for publisher in publishers)
        story.subscribe(subscriber, f"price IN ({prices})")
    for publisher in "pqr":
        story.publish(publisher, price=ord(publisher))
    for subscriber, publishers in pairs.items():
        for publisher in publishers:
            story.deliver(subscriber, publisher)


def unordered_publication_overtakes(story: Story) -> None:
    story.subscribe("s")
    story.subscribe("t")
    story.publish("p")
    story.publish("p", ordered=False)
    story.deliver("s", "p", 1)
    story.deliver("s", "p", 2)
    story.deliver("t", "p", 2)
    story.deliver("t", "p", 1)


def unordered_subscription_sees_another_order(story: Story) -> None:
    story.subscribe("s")
    story.subscribe("t", ordered=False)
    for publisher in "ppq":
        story.publish(publisher)
    for publisher, seq in (("p", 1), ("p", 2), ("q", 1)):
        story.deliver("s", publisher, seq)
    for publisher, seq in (("q", 1), ("p", 2), ("p", 1)):
        story.deliver("t", publisher, seq)


def delivered_in_a_later_incarnation(story: Story) -> None:
    """A client that comes back may go on with the subscriptions that it had."""
    story.subscribe("s")
    story.publish("p")
    story.publish("p")
    story.deliver("s", "p", 1)
    story.launcher("crashed", "s")
    story.launcher("restarted", "s")
    story.next_incarnation("s")
    story.deliver("s", "p", 2)


def withdrawn_before_the_subscription_was_confirmed(story: Story) -> None:
    story.subscribe("s")
    del story.records[0]
    story.unsubscribe("s")
    story.records[-1]["n"] = 1


def one_subscription_withdrawn_the_other_not_yet_made(story: Story) -> None:
    story.subscribe("s")
    story.unsubscribe("s")
    story.publish("p")
    story.confirm("p")
    story.subscribe("s", number=2)


def nothing_at_all(story: Story) -> None:
    """An empty history has nothing in it that is wrong."""


def unknown_kinds_and_fields(story: Story) -> None:
    story.subscribe("s")
    story.publish("p")
    story.deliver("s", "p")
    story.records[-1]["colour"] = "blue"
    story.broker("b", "joined", "b")
    story.records[-1]["kind"] = "danced"


@pytest.mark.parametrize(
    "tell",
    [
        three_subscribers_in_a_ring,
        unordered_publication_overtakes,
        unordered_subscription_sees_another_order,
        delivered_in_a_later_incarnation,
        withdrawn_before_the_subscription_was_confirmed,
        one_subscription_withdrawn_the_other_not_yet_made,
        nothing_at_all,
        unknown_kinds_and_fields,
    ],
)
def test_no_guarantee_is_broken_by(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    report = judge(story.records)

    assert report.violations == ()
    assert report.excused == {}


def test_subscription_that_is_ordered_too_makes_a_delivery_ordered() -> None:
    story = Story()
    story.subscribe("s", number=1)
    story.subscribe("s", number=2, ordered=False)
    story.publish("p")
    story.publish("p")
    story.deliver("s", "p", 2, subscriptions=["s/1", "s/2"])
    story.deliver("s", "p", 1, subscriptions=["s/1", "s/2"])

    assert broken_guarantees(judge(story.records)) == ["fifo"]


def test_delta_says_how_many_failures_are_too_many() -> None:
    story = Story()
    story.subscribe("s")
    story.publish("p")
    story.launcher("crashed", "b1")
    story.launcher("crashed", "b2")

    for delta, is_clean in ((0, True), (1, True), (2, False)):
        assert judge(story.records, delta=delta).is_clean == is_clean


def test_lost_for_one_subscription_though_excused_for_another() -> None:
    story = Story()
    story.subscribe("s", number=1)
    story.subscribe("s", number=2)
    story.publish("p")
    story.unsubscribe("s", number=1)
    report = judge(story.records)

    assert broken_guarantees(report) == ["loss"]
    assert report.excused == {}


def test_each_missing_delivery_is_counted() -> None:
    story = Story()
    for subscriber in "st":
        story.subscribe(subscriber)
    for _ in range(3):
        story.publish("p")
    story.deliver("s", "p", 2)
    lost = judge(story.records)
    story.launcher("crashed", "p")
    excused = judge(story.records)

    assert broken_guarantees(lost) == ["loss"] * 5
    assert excused.violations == ()
    assert excused.excused == {Excuse.PUBLISHER_FAILED: 5}


@pytest.mark.parametrize(
    ("orders", "pairs"),
    [
        ({"s": "pqrx", "t": "rqpx", "u": "xpqr"}, 3),
        ({"s": "pqrx", "t": "pqrx", "u": "qprx"}, 2),
        ({"s": "pqrx", "t": "qpxr"}, 1),
    ],
)
def test_two_subscribers_disagree_once(orders: dict[str, str], pairs: int) -> None:
    """However many publications they disagree about, and wherever."""
    story = Story()
    for subscriber in orders:
        story.subscribe(subscriber)
    for publisher in "pqrx":
        story.publish(publisher)
    for subscriber, publishers in orders.items():
        for publisher in publishers:
            story.deliver(subscriber, publisher)

    assert broken_guarantees(judge(story.records)) == ["pairwise"] * pairs


def test_values_that_python_holds_to_be_equal_are_told_apart() -> None:
    story = Story()
    story.subscribe("s", "price = 1")
    story.publish("p", price=1)
    story.publish("p", price=1)
    story.records[-1]["content"] = {"price": True}
    story.deliver("s", "p", 1)
    story.deliver("s", "p", 2)

    assert broken_guarantees(judge(story.records)) == ["spurious"]


def test_figures() -> None:
    story = Story()
    story.subscribe("s", number=1)
    story.subscribe("s", number=2)
    story.subscribe("t", "price < 0")
    for publisher in "ppq":
        story.publish(publisher)
    story.confirm("p", 1)
    for publisher, seq in (("p", 1), ("p", 2), ("q", 1)):
        story.deliver("s", publisher, seq)
    report = judge(story.records)

    assert report.is_clean
    assert report.run == "run"
    assert report.figures == {
        "records": 10,
        "torn lines": 0,
        "publishers": 2,
        "published": 3,
        "unstable": 2,
        "subscribers": 2,
        "subscriptions": 3,
        "delivered": 3,
    }


# What the witnesses say


WITNESSES = {
    "record_missing_in_a_file": (
        "published: n 2 expected, 3 found",
        ["history/p-1.jsonl:3"],
    ),
    "delivered_twice": (
        "s delivered p#1 at position 1 and again at position 2",
        ["history/s-1.jsonl:2", "history/s-1.jsonl:3"],
    ),
    "never_published": (
        "s delivered p#1 at position 1, which was never published",
        ["history/s-1.jsonl:2"],
    ),
    "content_that_does_not_match": (
        "s delivered p#1 at position 1, for subscription s/1, "
        'whose filter price > 100 does not match {"price": 100}',
        ["history/s-1.jsonl:2", "history/p-1.jsonl:1", "history/s-1.jsonl:1"],
    ),
    "delivered_after_the_subscription_was_withdrawn": (
        "s delivered p#1 at position 1, for subscription s/1, which it did not have",
        ["history/s-1.jsonl:3", "history/p-1.jsonl:1"],
    ),
    "body_altered": (
        "s delivered p#1 with checksum 78, but it was published with checksum 77",
        ["history/p-1.jsonl:1", "history/s-1.jsonl:2"],
    ),
    "dropped": (
        "s never delivered p#1, published at 2.000 s and confirmed at 3.000 s, "
        "which matches its subscription s/1, confirmed at 1.000 s: price > 0",
        ["history/p-1.jsonl:1", "history/p-1.jsonl:2", "history/s-1.jsonl:1"],
    ),
    "dropped_and_never_confirmed": (
        "s never delivered p#1, published at 2.000 s and never confirmed, "
        "which matches its subscription s/1, confirmed at 1.000 s: price > 0",
        ["history/p-1.jsonl:1", "history/s-1.jsonl:1"],
    ),
    "swapped_far_apart": (
        "s delivered p#2 (position 1) before p#1 (position 4), "
        "but p published them the other way round",
        ["history/s-1.jsonl:2", "history/s-1.jsonl:5"],
    ),
    "swapped_across_publishers_far_apart": (
        "s delivered p#1 (position 1) before q#1 (position 3), "
        "but t delivered q#1 (position 1) before p#1 (position 3)",
        [
            "history/s-1.jsonl:2",
            "history/s-1.jsonl:4",
            "history/t-1.jsonl:2",
            "history/t-1.jsonl:4",
        ],
    ),
}


@pytest.mark.parametrize("name", WITNESSES)
def test_witness_can_be_checked_by_hand(name: str) -> None:
    [(guarantee, case)] = [(g, case) for g, case in BROKEN if case.name == name]
    witness, places = WITNESSES[name]

    assert judge(case.history(True)).violations == (
        Violation(guarantee, "run", witness, tuple(places)),
    )


def test_times_are_seconds_since_the_run_began(tmp_path: Path) -> None:
    story = Story()
    story.now = 1795122397.123
    story.subscribe("s")
    story.publish("p")
    write_run(tmp_path, attrs.evolve(MANIFEST, started=1795122396.5), story.records)
    [violation] = check_run(read_run(tmp_path)).violations
    (tmp_path / "manifest.json").unlink()
    *_, without_a_manifest = check_run(read_run(tmp_path)).violations

    assert violation.witness == (
        "s never delivered p#1, published at 2.623 s and never confirmed, "
        "which matches its subscription s/1, confirmed at 1.623 s: price > 0"
    )
    assert "published at 1.000 s" in without_a_manifest.witness


def test_the_judge_is_as_patient_as_brokers_are() -> None:
    assert Limits().resume_timeout_s == PATIENCE_S
    assert Limits().stall_timeout_s >= PATIENCE_S
    assert Limits().unconfirmed_publications_max == BEHIND_MAX


@pytest.mark.parametrize(("behind", "is_excused"), [(BEHIND_MAX - 1, False), (BEHIND_MAX, True)])
def test_a_client_may_also_be_too_many_publications_behind(behind: int, is_excused: bool) -> None:
    story = Story()
    story.subscribe("s", "price = 2")
    for _ in range(behind - 1):
        story.publish("p", price=1)
    story.publish("p", price=2)
    story.give_up("s", away_s=0.1)
    for seq in range(behind):
        story.skip("b1", "p", seq + 1, subscriber="s")
    report = judge(story.records)

    assert report.excused == ({Excuse.SKIPPED: 1} if is_excused else {})
    assert broken_guarantees(report) == ([] if is_excused else ["loss"])


def test_older_histories_do_not_say_how_long_a_client_was_away(tmp_path: Path) -> None:
    story = Story()
    story.subscribe("s")
    story.publish("p")
    story.broker("b1", "suspected", "s", millis=0)
    story.skip("b1", "p", subscriber="s")
    for version, excused in ((1, {Excuse.SKIPPED: 1}), (2, {})):
        directory = tmp_path / str(version)
        write_run(directory, attrs.evolve(MANIFEST, format=version), story.records)
        report = check_run(read_run(directory))

        assert report.excused == excused
        assert broken_guarantees(report) == ([] if excused else ["loss"])


@pytest.mark.parametrize("other_life", ["published", "delivered"])
def test_a_publication_is_named_with_its_life_if_there_is_another(other_life: str) -> None:
    story = Story()
    story.subscribe("s")
    story.publish("p")
    story.next_incarnation("p")
    if other_life == "published":
        story.publish("p", price=-1)
        story.confirm("p")
    else:
        story.deliver("s", "p", life=2)
    story.confirm("p", life=1)
    lost = judge(story.records).violations[-1]

    assert lost.guarantee == "loss"
    assert lost.witness.startswith("s never delivered p@1#1, ")


def test_violation_in_one_line() -> None:
    violation = Violation("fifo", "run", "s delivered p#2 before p#1", ("a:1", "b:2"))

    assert str(violation) == "fifo: s delivered p#2 before p#1 [a:1, b:2]"


# From disk


MANIFEST = Manifest(
    run="run",
    topology=None,
    ordering="pairwise",
    delta=1,
    seed=None,
    started=0.0,
    ended=9.0,
    simulated=True,
)


@pytest.mark.parametrize(("guarantee", "case"), BROKEN, ids=case_name)
def test_verdict_from_disk_is_the_same(guarantee: str, case: Case, tmp_path: Path) -> None:
    write_run(tmp_path, MANIFEST, case.history(True))

    assert guarantee in broken_guarantees(check_run(read_run(tmp_path)))


def test_manifest_says_what_to_check(tmp_path: Path) -> None:
    [case] = [case for _, case in BROKEN if case.name == "swapped_of_one_publisher"]
    for ordering in GUARANTEES:
        directory = tmp_path / ordering
        write_run(directory, attrs.evolve(MANIFEST, ordering=ordering), case.history(True))
        report = check_run(read_run(directory))

        assert report.guarantees == GUARANTEES[ordering]
        assert report.is_clean == ("fifo" not in GUARANTEES[ordering])


def test_manifest_missing_is_a_violation_and_the_rest_is_checked(tmp_path: Path) -> None:
    [case] = [case for _, case in BROKEN if case.name == "delivered_twice"]
    write_run(tmp_path, MANIFEST, case.history(True))
    (tmp_path / "manifest.json").unlink()
    report = check_run(read_run(tmp_path))

    assert broken_guarantees(report) == ["record", "duplicate"]
    assert str(report.violations[0]) == "record: the manifest is missing [manifest.json]"


def test_torn_last_line_is_counted_and_no_violation(tmp_path: Path) -> None:
    story = Story()
    delivered_in_a_later_incarnation(story)
    write_run(tmp_path, MANIFEST, story.records)
    file = tmp_path / "history" / "launcher-1.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    report = check_run(read_run(tmp_path))

    assert report.is_clean
    assert report.figures["torn lines"] == 1


def test_unreadable_line_is_a_violation(tmp_path: Path) -> None:
    story = Story()
    three_subscribers_in_a_ring(story)
    write_run(tmp_path, MANIFEST, story.records)
    with (tmp_path / "history" / "s-1.jsonl").open("ab") as file:
        file.write(b"What is this?\n")
    [violation] = check_run(read_run(tmp_path)).violations

    assert violation.guarantee == "record"
    assert violation.records == ("history/s-1.jsonl:4",)
