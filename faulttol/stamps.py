"""Order among topics, judged by the stamps of a run alone, whatever brokers or clients say of it.

A stamp has the number of a publication on its topic, and numbers on other topics: it comes behind
those, and before the next ones. Whoever was given something the wrong way round has a stamp that
says so. Nothing of `routing/topics` is used here: who judges shares no code with who orders.
"""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from plait.faulttol.guarantees import Violation
from plait.faulttol.history import PublicationId, Record, name_of, place_of

STAMPS = "stamps"


@attrs.frozen(kw_only=True)
class StampReport:
    """What the stamps of a run say."""

    run: str
    violations: tuple[Violation, ...]
    stamped: int
    """Deliveries with a stamp."""
    tagged: int
    """Those of them of which their subscriber was told that they are out of order."""
    unnumbered: int
    """Those of them that have no number, as the topic's manager was on its way elsewhere."""
    unstamped: int
    """Deliveries without: they are not judged."""
    topics: int


@attrs.define
class _Past:
    """Up to where a subscriber is with one topic, and what brought it there."""

    number: int
    delivered: Record


class _Judge:
    """Goes through the deliveries of a run, each subscriber's in its order."""

    def __init__(self, topics: Mapping[PublicationId, str]) -> None:
        self._topics = topics
        self._past: dict[tuple[str, str], _Past] = {}
        """Of each subscriber and topic."""
        self.first: dict[tuple[str, int], Record] = {}
        """For each topic and number, the first delivery that has it."""
        self._numbers: dict[PublicationId, tuple[int, Record]] = {}

    def judge(self, record: Record) -> Iterator[Violation]:
        """Judge the next delivery of some subscriber."""
        publication, subscriber = publication_of(record), record["subscriber"]
        topic = self._topics.get(publication)
        if topic is None:
            yield _violation(f"nobody published {_name(publication)} on a topic", record)
            return
        stamp = record["stamp"]
        number, behind = stamp["number"], stamp["behind"]
        late = None
        if number:
            yield from self._number(topic, number, publication, record)
            late = self._later(subscriber, topic, number - 1)
        for other, last in sorted(behind.items()):
            late = late or self._later(subscriber, other, last)
        was_told = record.get("in_order") is False
        if late is not None and not was_told:
            about, past = late
            yield _violation(
                f"{subscriber} delivered {_describe(record)}, which comes before number "
                f"{past.number} of {about}, behind {_describe(past.delivered)}",
                record,
                past.delivered,
            )
        if late is None and not was_told:
            for about, last in [*behind.items(), *([(topic, number)] if number else [])]:
                past_of = self._past.get((subscriber, about))
                if past_of is None or past_of.number < last:
                    self._past[subscriber, about] = _Past(last, record)

    def _later(self, subscriber: str, topic: str, last: int) -> tuple[str, _Past] | None:
        """What a subscriber has had, or was behind, that comes after this number."""
        past = self._past.get((subscriber, topic))
        return (topic, past) if past is not None and past.number > last else None

    def _number(
        self, topic: str, number: int, publication: PublicationId, record: Record
    ) -> Iterator[Violation]:
        """A number is one publication's, and a publication has one."""
        first = self.first.setdefault((topic, number), record)
        if publication_of(first) != publication:
            yield _violation(
                f"{_describe(first)} and {_describe(record)} are both number {number} of {topic}",
                first,
                record,
            )
        known, other = self._numbers.setdefault(publication, (number, record))
        if known != number:
            yield _violation(
                f"{_name(publication)} is number {known} of {topic} for {other['subscriber']} "
                f"and number {number} for {record['subscriber']}",
                other,
                record,
            )


def verify_order(records: Iterable[Record]) -> StampReport:
    """Judge the deliveries of one run by their stamps."""
    deliveries: dict[tuple[str, int], list[Record]] = {}
    topics: dict[PublicationId, str] = {}
    run = ""
    for record in records:
        run = record["run"]
        if record["kind"] == "published":
            topic = record["content"].get("topic")
            if isinstance(topic, str):
                topics[publication_of(record)] = topic
        elif record["kind"] == "delivered":
            deliveries.setdefault((record["node"], record["incarnation"]), []).append(record)
    judge = _Judge(topics)
    violations: list[Violation] = []
    stamped = tagged = unnumbered = unstamped = 0
    for _, each in sorted(deliveries.items()):
        for record in sorted(each, key=lambda record: record["position"]):
            if record.get("stamp") is None:
                unstamped += 1
                continue
            stamped += 1
            tagged += record.get("in_order") is False
            unnumbered += not record["stamp"]["number"]
            violations += judge.judge(record)
    return StampReport(
        run=run,
        violations=tuple(violations),
        stamped=stamped,
        tagged=tagged,
        unnumbered=unnumbered,
        unstamped=unstamped,
        topics=len({topic for topic, _ in judge.first}),
    )


def publication_of(record: Record) -> PublicationId:
    """The publication that a record is about."""
    return record["publisher"], record["publisher_incarnation"], record["seq"]


def _name(publication: PublicationId) -> str:
    return name_of(publication, is_lone_life=False)


def _describe(record: Record) -> str:
    return f"{_name(publication_of(record))} (position {record['position']})"


def _violation(witness: str, *records: Record) -> Violation:
    return Violation(STAMPS, records[0]["run"], witness, tuple(map(place_of, records)))
