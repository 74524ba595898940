"""The judge of detectors, on the smallest histories in which something is wrong with them."""

from typing import Any

import pytest

from plait.faulttol.guarantees import Report, check
from plait.faulttol.history import MemoryHistory, Record
from plait.routing.patterns.detection import Detection

WHERE = {"A": "letter = 'A'", "B": "letter = 'B'"}
WHAT = Detection.of("A -> B", WHERE, policy="contiguous")


class Story:
    """A publisher, and clients each with a detector; what is found is told as it is given."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._histories: dict[str, MemoryHistory] = {}
        self._letters: list[str] = []
        self._positions: dict[str, int] = {}

    def write(self, node: str, kind: str, **fields: Any) -> None:
        history = self._histories.setdefault(node, MemoryHistory("run", node, 1, self.records))
        history.write(float(len(self.records)), kind, **fields)

    def publish(self, letters: str) -> None:
        for letter in letters:
            self._letters.append(letter)
            seq = len(self._letters)
            named = {"publisher": "p", "publisher_incarnation": 1, "seq": seq}
            self.write("p", "published", **named, content={"letter": letter}, ordered=True, crc=0)

    def begin(self, client: str, what: Detection = WHAT) -> None:
        interest = {"subscription": f"{client}/1", "filter": what.union, "ordered": True}
        self.write(client, "subscribed", client=client, **interest)
        self.write(client, "detecting", client=client, detector=f"{client}/1", **what.fields())

    def end(self, client: str, what: Detection = WHAT) -> None:
        interest = {"subscription": f"{client}/1", "filter": what.union, "ordered": True}
        self.write(client, "unsubscribed", client=client, **interest)

    def deliver(self, client: str, *seqs: int) -> None:
        for seq in seqs:
            self._positions[client] = position = self._positions.get(client, 0) + 1
            named = {"publisher": "p", "publisher_incarnation": 1, "seq": seq}
            given = {"position": position, "subscriptions": [f"{client}/1"], "crc": 0}
            self.write(client, "delivered", subscriber=client, **named, **given)

    def find(self, client: str, *seqs: int, certain: bool = True) -> None:
        match = [["p", 1, seq] for seq in seqs]
        found = {"match": match, "position": self._positions[client], "certain": certain}
        self.write(client, "detected", detector=f"{client}/1", pattern="A -> B", **found)

    def report(self, ordering: str = "pairwise") -> Report:
        return check(self.records, ordering=ordering)

    def wrong(self, ordering: str = "pairwise") -> list[str]:
        return [
            violation.witness
            for violation in self.report(ordering).violations
            if violation.guarantee == "detection"
        ]


@pytest.fixture
def story() -> Story:
    story = Story()
    story.begin("s")
    story.begin("t")
    story.publish("AAB")
    return story


def test_who_finds_what_there_is_keeps_the_guarantee(story: Story) -> None:
    for client in "st":
        story.deliver(client, 1, 2, 3)
        story.find(client, 2, 3)
        story.end(client)

    assert story.report().is_clean
    assert story.report().guarantees[-1] == "detection"
    assert story.report().figures["matches alike"] == 1


def test_a_match_that_is_none_is_named(story: Story) -> None:
    story.deliver("s", 1, 2, 3)
    story.find("s", 1, 3)

    assert story.wrong("fifo") == [
        "s/1 found p#1 -> p#3 at position 3, but what it was given has p#2 -> p#3 at position 3"
    ]


def test_a_match_that_was_not_found_is_named(story: Story) -> None:
    story.deliver("s", 1, 2, 3)
    story.end("s")

    assert story.wrong("fifo") == ["s/1 never found p#2 -> p#3, complete at position 3"]


def test_whoever_is_killed_may_not_have_written_the_last_match(story: Story) -> None:
    story.deliver("s", 1, 2, 3)

    assert story.wrong("fifo") == []


def test_what_is_certain_and_is_called_uncertain_is_named(story: Story) -> None:
    story.deliver("s", 1, 2, 3)
    story.find("s", 2, 3, certain=False)

    assert story.wrong("fifo") == [
        "s/1 found p#2 -> p#3 at position 3, not certain, but what it was given has "
        "p#2 -> p#3 at position 3"
    ]


@pytest.mark.parametrize(("ordering", "is_wrong"), [("fifo", False), ("pairwise", True)])
def test_two_that_saw_another_order_disagree(story: Story, ordering: str, is_wrong: bool) -> None:
    story.deliver("s", 1, 2, 3)
    story.find("s", 2, 3)
    story.deliver("t", 2, 1, 3)
    story.find("t", 1, 3)

    expected = [
        "s/1 found p#2 -> p#3 of A -> B at position 3, "
        "but t/1, which has these at positions 1, 3, did not",
        "t/1 found p#1 -> p#3 of A -> B at position 3, "
        "but s/1, which has these at positions 1, 3, did not",
    ]
    assert story.wrong(ordering) == (expected if is_wrong else [])


def test_whoever_was_not_given_all_of_a_match_need_not_find_it(story: Story) -> None:
    story.deliver("s", 1, 2, 3)
    story.find("s", 2, 3)
    story.deliver("t", 1, 2)

    assert story.wrong() == []


def test_a_detector_that_begins_anew_does_not_look_back(story: Story) -> None:
    story.deliver("s", 1, 2)
    story.end("s")
    story.begin("s")
    story.deliver("s", 3)
    story.end("s")
    story.deliver("t", 1, 2, 3)
    story.find("t", 2, 3)

    assert story.wrong() == []


def test_what_was_given_up_explains_a_difference(story: Story) -> None:
    given_up = {"publisher": "p", "publisher_incarnation": 1, "seq": 2, "reason": "lost"}
    story.deliver("s", 1, 2, 3)
    story.find("s", 2, 3)
    story.deliver("t", 1, 3)
    story.find("t", 1, 3)

    assert [text.partition(" of ")[0] for text in story.wrong()] == ["t/1 found p#1 -> p#3"]

    story.write("b", "skipped", subscriber=None, **given_up)

    assert story.wrong() == []


def test_a_detector_that_never_began_finds_nothing(story: Story) -> None:
    story.deliver("s", 1, 2, 3)
    story.write("u", "detected", detector="u/9", pattern="A", match=[], position=1, certain=True)

    assert any("u/9 has not begun to detect" in str(v) for v in story.report().violations)


@pytest.mark.parametrize(
    "changes", [{"pattern": "A ->"}, {"policy": "all"}, {"where": {}}, {"within": 1}]
)
def test_a_pattern_that_nobody_can_read_is_an_unsound_record(changes: dict[str, Any]) -> None:
    story = Story()
    fields = {**WHAT.fields(), **changes}
    story.write("s", "detecting", client="s", detector="s/1", **fields)

    assert [violation.guarantee for violation in story.report().violations] == ["record"]


def test_histories_without_detectors_are_judged_as_before() -> None:
    assert check([], ordering="pairwise").guarantees[-1] == "pairwise"
