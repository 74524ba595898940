"""The audit on Spark says what the judge says, about any number of runs at once."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from plait.faulttol.audit.job import audit
from plait.faulttol.audit.kernel import judge_in_full
from plait.faulttol.audit.verdict import WITNESSES_MAX, RunVerdict
from plait.faulttol.guarantees import GUARANTEES, Excuse
from plait.faulttol.history import (
    HISTORY_FOLDER,
    MANIFEST_NAME,
    Record,
    run_directories,
)
from tests.audit.runs import comparable, recounted, write
from tests.faulttol.broken_histories import BROKEN, EXCUSED, Story
from tests.faulttol.test_guarantees_properties import SUBSCRIBERS, Bus

pytestmark = [
    pytest.mark.spark,
    # Spark leaves it to the garbage collection to close what it read results from.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def assert_agreement(spark: SparkSession, folder: Path) -> list[RunVerdict]:
    directories = run_directories(folder)
    verdicts = audit(spark, directories, small_run_bytes=0)

    assert [comparable(verdict) for verdict in verdicts] == [
        comparable(judge_in_full(directory)) for directory in directories
    ]
    return verdicts


def test_the_smallest_broken_histories(spark: SparkSession, tmp_path: Path) -> None:
    for is_special in (True, False):
        for guarantee, case in BROKEN:
            directory = tmp_path / f"{guarantee}-{case.name}-{is_special}"
            write(directory, case.history(is_special))
        for excuse, case in EXCUSED:
            directory = tmp_path / f"excuse-{excuse}-{case.name}-{is_special}"
            write(directory, case.history(is_special))

    verdicts = assert_agreement(spark, tmp_path)

    found = {Path(verdict.directory).name: set(verdict.violations) for verdict in verdicts}
    for guarantee, case in BROKEN:
        assert found[f"{guarantee}-{case.name}-True"] == {guarantee}
        assert found[f"{guarantee}-{case.name}-False"] == set()


def random_bus(chance: random.Random) -> Bus:
    """Let a bus work on random requests, while nodes crash and come back that it never noticed."""
    bus = Bus()
    story = bus.story
    for client in SUBSCRIBERS:
        bus.subscribe(client, 0, chance.randint(5, 9), chance.random() < 0.8)
    for _ in range(chance.randint(5, 60)):
        client, node = chance.choice(SUBSCRIBERS), chance.choice([*SUBSCRIBERS, "p", "b1", "b2"])
        step = chance.random()
        if step < 0.10:
            bus.subscribe(client, chance.randint(0, 3), chance.randint(6, 9), chance.random() < 0.8)
        elif step < 0.15:
            bus.unsubscribe(client, chance.randrange(9))
        elif step < 0.50:
            crc = chance.randrange(9)
            bus.publish(chance.choice("pqr"), chance.randrange(10), chance.random() < 0.8, crc)
        elif step < 0.90:
            bus.deliver(client, chance.randrange(9))
        elif step < 0.93:
            story.launcher(chance.choice(["crashed", "frozen", "stopped", "unfrozen"]), node)
        elif step < 0.96:
            kind = chance.choice(["suspected", "operational", "joined"])
            story.broker("b3", kind, node, millis=chance.choice([0.5, 900.0, 9000.0]))
        elif step < 0.97:
            bus.come_back(chance.choice("pqr"))
        elif step < 0.985:
            for_whom = chance.choice([{}, {"subscriber": client}])
            story.skip("b3", "p", chance.randint(1, 5), life=chance.randint(1, 2), **for_whom)
        else:
            story.next_incarnation(client)
        if chance.random() < 0.1:
            story.at_the_same_time()
    while chance.random() < 0.95 and any(bus.queues.values()):
        bus.deliver(chance.choice(SUBSCRIBERS), chance.randrange(9))
    return bus


def with_random_defects(records: list[Record], chance: random.Random) -> list[Record]:
    records = list(records)
    for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
        if not (deliveries := [i for i, one in enumerate(records) if one["kind"] == "delivered"]):
            break
        one, other = chance.choice(deliveries), chance.choice(deliveries)
        match chance.randrange(8):
            case 0:
                records[one], records[other] = records[other], records[one]
            case 1:
                records.insert(other, records[one])
            case 2 | 3:
                del records[one]
            case 4:
                records[one] = records[one] | {"crc": chance.randrange(9)}
            case 5:
                names = [[], ["t/1"], ["s/1", "s/2"], ["nobody's"]]
                records[one] = records[one] | {"subscriptions": chance.choice(names)}
            case 6:
                records[one] = records[one] | {"publisher": "p", "seq": chance.randint(1, 9)}
            case 7:
                life = chance.randint(1, 3)
                records[one] = records[one] | {"publisher_incarnation": life}
    return recounted(records)


def test_random_histories(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(150):
        chance = random.Random(seed)
        records = random_bus(chance).story.records
        records = with_random_defects(records, chance)
        write(tmp_path / str(seed), records, chance.choice([*GUARANTEES, "pairwise"]))

    verdicts = assert_agreement(spark, tmp_path)

    found = {guarantee for verdict in verdicts for guarantee in verdict.violations}
    assert found >= {"duplicate", "spurious", "altered", "loss", "fifo", "pairwise"}
    assert {excuse for verdict in verdicts for excuse in verdict.excused} == set(map(str, Excuse))
    assert any(verdict.is_clean for verdict in verdicts)


def one_delivery() -> list[Record]:
    story = Story()
    story.subscribe("s")
    story.publish("p")
    story.deliver("s", "p")
    return story.records


def history_file(directory: Path) -> Path:
    return directory / HISTORY_FOLDER / "s-1.jsonl"


def published_file(directory: Path) -> Path:
    return directory / HISTORY_FOLDER / "p-1.jsonl"


def test_damage_is_named_and_the_other_runs_are_judged(spark: SparkSession, tmp_path: Path) -> None:
    names = [
        *("blank line", "broken bytes", "clean", "foreign file", "future", "glued", "no lines"),
        *("no manifest", "null in a list", "text for content", "torn", "wrong type"),
    ]
    for name in names:
        write(tmp_path / name, one_delivery())
    (tmp_path / "no manifest" / MANIFEST_NAME).unlink()
    manifest = tmp_path / "future" / MANIFEST_NAME
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 3'))
    (tmp_path / "foreign file" / HISTORY_FOLDER / "a-1.jsonl").write_text("a,b,c\n1,2,3\n")
    for path in (tmp_path / "no lines" / HISTORY_FOLDER).iterdir():
        path.write_bytes(b"")
    with history_file(tmp_path / "blank line").open("ab") as file:
        file.write(b"\n")
    with history_file(tmp_path / "broken bytes").open("ab") as file:
        file.write(b'{"run": "\xff"}\n')
    glued = history_file(tmp_path / "glued")
    glued.write_bytes(glued.read_bytes().replace(b"}\n{", b"}{"))
    with history_file(tmp_path / "torn").open("ab") as file:
        file.write(b'{"run": "r')
    replacements = {
        "wrong type": (history_file, b'"crc":0', b'"crc":"0"'),
        "null in a list": (history_file, b'["s/1"]', b'["s/1",null]'),
        "text for content": (published_file, b'{"price":10}', b'"price"'),
    }
    for name, (file_of, right, wrong) in replacements.items():
        path = file_of(tmp_path / name)
        path.write_bytes(path.read_bytes().replace(right, wrong))

    verdicts = assert_agreement(spark, tmp_path)

    damaged = [name for name, verdict in zip(names, verdicts, strict=True) if verdict.damage]
    assert damaged == [name for name in names if name not in ("clean", "no lines", "torn")]


def test_older_files_say_the_same(spark: SparkSession, tmp_path: Path) -> None:
    story = Story()
    story.subscribe("s")
    for seq in (1, 2):
        story.publish("p")
        story.confirm("p", seq)
    story.deliver("s", "p", 1)
    story.skip("b", "p", 1, subscriber="t")
    older = [
        {name: value for name, value in record.items() if name != "publisher_incarnation"}
        for record in story.records
    ]
    write(tmp_path / "newer", story.records)
    write(tmp_path / "older", older)
    for records, name in ((story.records, "newer"), (older, "older")):
        assert ("publisher_incarnation" in records[1]) == (name == "newer")
    manifest = tmp_path / "older" / MANIFEST_NAME
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 1'))

    newer_verdict, older_verdict = assert_agreement(spark, tmp_path)

    assert newer_verdict.violations == older_verdict.violations == {"loss": 1}
    assert older_verdict.damage == ()


def test_names_of_directories_and_nodes_are_taken_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("a b", "[a-b]", "{x,y}", "ü*", "100%25", "a#b?c"):
        story = Story()
        story.subscribe(f"{name}/s")
        story.publish("p")
        write(tmp_path / name, story.records)

    verdicts = assert_agreement(spark, tmp_path)

    assert {tuple(verdict.violations.items()) for verdict in verdicts} == {(("loss", 1),)}


def test_all_violations_are_counted_and_some_shown(spark: SparkSession, tmp_path: Path) -> None:
    story = Story()
    story.subscribe("s")
    for _ in range(WITNESSES_MAX + 5):
        story.publish("p")
    write(tmp_path / "run", story.records)

    [verdict] = assert_agreement(spark, tmp_path)

    assert verdict.violations == {"loss": WITNESSES_MAX + 5}
    assert len(verdict.witnesses) == WITNESSES_MAX


def test_three_orders_in_a_circle_are_no_violation(spark: SparkSession, tmp_path: Path) -> None:
    story = Story()
    prices = {"p": 1, "q": 2, "r": 3}
    orders = {"s": ("p", "q"), "t": ("q", "r"), "u": ("r", "p")}
    for subscriber, (one, other) in orders.items():
        story.subscribe(subscriber, f"price IN ({prices[one]}, {prices[other]})")
    for publisher, price in prices.items():
        story.publish(publisher, price=price)
    for subscriber, order in orders.items():
        for publisher in order:
            story.deliver(subscriber, publisher)
    write(tmp_path / "run", story.records)

    [verdict] = assert_agreement(spark, tmp_path)

    assert verdict.is_clean
