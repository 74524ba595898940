"""The judge: reads the history of one run and says which guarantees it breaks, with witnesses.

Its only evidence is the history (`faulttol.history`). It knows nothing of brokers, links and
protocols, and so cannot share their mistakes.

=============  ==================================================================================
guarantee      holds when
=============  ==================================================================================
``record``     the history itself is sound: it could be read, but for torn last lines; `n`,
               `seq` and `position` count 1, 2, 3 ...; all of it is about one run
``duplicate``  no subscriber delivered a publication twice
``spurious``   every delivery was published, and matches each subscription that it names, and the
               subscriber had those at that time
``altered``    the body that was delivered is the one that was published, by its checksum
``loss``       every publication that a subscriber was owed was delivered to it
``fifo``       no subscriber delivered two publications of one publisher in the wrong order;
               what it published in a later life comes after what it did in an earlier one
``pairwise``   no two subscribers delivered two publications in different orders
``detection``  if there are detectors of patterns: each found what it was given; and under an
               ordering of all publications, two of the same pattern found the same
=============  ==================================================================================

Unordered publications neither wait nor make others wait, and no more do deliveries that only
unordered subscriptions asked for: neither counts for ``fifo`` and ``pairwise``. A client is one and
the same subscriber in all its incarnations, and keeps its subscriptions until it withdraws them.

What a subscriber is owed
-------------------------

A subscriber is owed each publication that matches a subscription of it and was issued after that
subscription was confirmed and before it was withdrawn. This compares times of several nodes, which
means something because the nodes of a run share one clock.

A publication that was owed and not delivered is lost, unless for each subscription that it was owed
to there is an `Excuse`. Excuses are counted. That a publication was never confirmed is no excuse by
itself: a run goes on until everything is stable.

When a node has failed
----------------------

From the time at which it ``crashed``, or was ``frozen``, ``stopped`` or ``suspected``. A broker is
well again once ``operational``, a client once it ``joined`` again. A node that was frozen, and then
unfrozen before anyone suspected it, was slow and has not failed. And the end of the run is no
failure: from the first node on that was stopped after the last publication was issued, nothing
counts.

A client may be out of reach, or behind, for `PATIENCE_S` and miss nothing. That its broker gave it
up is therefore no failure of the client by itself: a broker that suspects a client says for how
many ``millis`` this had been out of reach, or behind, and a client that has ``joined`` again, for
how many it was without a broker. Only if that is longer than the patience, the client has failed:
from when it is suspected until it has ``joined``, or from when it was without a broker. So it has
if it was `BEHIND_MAX` publications behind, all of which that broker has ``skipped``. Else a
``skipped`` for this client excuses nothing.

What matters is the time in which a publication was owed, from its issue to its confirmation: before
a client is suspected, it has what is confirmed, however long it has been away.
Subscriptions outlive a failure if the client's process does. They end with the process: when it
``crashed`` or was ``stopped``, or at the latest when the next incarnation of the client has
advertised, subscribed or published something.

A broker that was well, and in the same incarnation is ``recovering``, was cut off with all that is
behind it, which only more than δ failures bring about: too many have failed from ``millis`` before
that until it is ``operational`` again. A client that ``joined`` and had lost its broker ``millis``
before that has lost its session: if too many had failed at some time between, they have for that
client from the first to the last.
"""

import enum
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, combinations, pairwise, product
from types import MappingProxyType
from typing import Final

import attrs

from plait.faulttol.detections import Detections, Given, Watch, read_detection
from plait.faulttol.history import (
    Manifest,
    Problem,
    PublicationId,
    Record,
    RunHistory,
    name_of,
    place_of,
    publication_of,
)
from plait.routing.errors import FilterSyntaxError, PatternError
from plait.routing.filter_text import parse_filter
from plait.routing.values import Content

PATIENCE_S: Final = 5.0
"""So long a client may be out of reach and miss nothing. `Limits.resume_timeout_s` is as long, but
this is the promise, and the judge takes nobody else's word for it."""

BEHIND_MAX: Final = 20_000
"""Nor may it be further behind than this; `Limits.unconfirmed_publications_max` is as many."""

_UNPROVED_FORMAT: Final = 1
"""In which nobody said how long a client had been out of reach: there, that it was is believed."""

_ANY_ORDERING: Final = ("record", "duplicate", "spurious", "altered", "loss")
_TOTAL_ORDER: Final = (*_ANY_ORDERING, "fifo", "pairwise")

GUARANTEES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "none": _ANY_ORDERING,
        "fifo": (*_ANY_ORDERING, "fifo"),
        "pairwise": _TOTAL_ORDER,
        "tno": _TOTAL_ORDER,
        "tno-tagged": _TOTAL_ORDER,  # of what came in order
        "tno-published-2011": (*_ANY_ORDERING, "pairwise"),  # of what came in order, as it says
        "tno-published-2015": (*_ANY_ORDERING, "pairwise"),
        "sequencer": _TOTAL_ORDER,
        "sequencer-filtered": _TOTAL_ORDER,
        "published": _TOTAL_ORDER,
        "published-progressive": _TOTAL_ORDER,
        "published-whole-queue": _TOTAL_ORDER,
    }
)
"""What each ordering guarantees; and ``detection``, in runs that have detectors."""

_DETECTORS_AGREE: Final = frozenset(GUARANTEES.keys() - {"none", "fifo", "tno-tagged"})
"""Where two subscribers see one order of everything, and so two detectors the same matches."""


class Excuse(enum.StrEnum):
    """Why a publication may be missing that matches a subscription; the first that holds counts."""

    SIMULTANEOUS = "simultaneous"
    """Issued at the very time at which the subscription was confirmed or withdrawn: the clock
    cannot tell which came first."""
    SKIPPED = "skipped"
    """A node recorded that it gave up on it, for all behind that node or for this subscriber. For
    one subscriber, that one had failed, too, as with the next excuse: it is none without."""
    SUBSCRIBER_FAILED = "subscriber failed"
    """The subscriber failed after the subscription was confirmed, and had failed at some time
    between the issue and the confirmation of the publication; or the process that had subscribed
    had come to its end by then."""
    WITHDRAWN = "withdrawn in flight"
    """The subscription was withdrawn before the publication was confirmed. That stops delivery at
    once, wherever the publication is by then. What is confirmed, however, has arrived."""
    PUBLISHER_FAILED = "publisher failed"
    """Never confirmed, and its publisher failed at or after its issue, or began another life."""
    TOO_MANY_FAILURES = "too many failures"
    """At some time between its issue and its confirmation more than δ brokers had failed, or a part
    of the overlay was cut off because of that. The promise is about each neighbourhood, and this
    counts the whole overlay: it excuses too much rather than too little."""


@attrs.frozen
class Violation:
    """One guarantee, broken once, with what it takes to check that by hand."""

    guarantee: str
    run: str
    witness: str
    records: tuple[str, ...]
    """The records that show it, each as `file:n`, the file relative to the directory of the run."""

    def __str__(self) -> str:
        return f"{self.guarantee}: {self.witness} [{', '.join(self.records)}]"


@attrs.frozen(kw_only=True)
class Report:
    """The verdict on one run."""

    run: str
    guarantees: tuple[str, ...]
    """Those that were checked."""
    violations: tuple[Violation, ...]
    """All there are; `pairwise` has one for each two subscribers, however often they disagree."""
    excused: Mapping[Excuse, int]
    """Publications that a subscriber was owed, did not deliver, and is excused for; by excuse."""
    figures: Mapping[str, int]
    """How much there was to check."""

    @property
    def is_clean(self) -> bool:
        """Whether every guarantee holds."""
        return not self.violations


def check_run(history: RunHistory) -> Report:
    """Judge a run read from disk; one without a manifest by what every ordering guarantees."""
    if history.manifest is not None:
        return check_under(history.manifest, history.records, history.problems)
    began = min((record["at"] for record in history.records), default=0.0)
    return check(history.records, ordering="none", delta=0, began=began, problems=history.problems)


def check_under(
    manifest: Manifest, records: Iterable[Record], problems: Iterable[Problem] = ()
) -> Report:
    """Judge the records of a run by what its manifest says that it promised."""
    return check(
        records,
        ordering=manifest.ordering,
        delta=manifest.delta,
        patience=0.0 if manifest.format == _UNPROVED_FORMAT else PATIENCE_S,
        began=manifest.started,
        problems=problems,
    )


def check(
    records: Iterable[Record],
    *,
    ordering: str,
    delta: int = 1,
    patience: float = PATIENCE_S,
    began: float = 0.0,
    problems: Iterable[Problem] = (),
) -> Report:
    """Judge the records of one run, and the problems that were met in reading them.

    Records of one file come in its order, and the incarnations of one node in theirs; files may
    be interleaved at will. Witnesses speak of the seconds since the run `began`.
    """
    guarantees = GUARANTEES[ordering]
    run = _Run(ordering, delta, patience, began)
    run.take_in(records)
    run.take_in_problems(problems)
    if run.detecting:
        guarantees = (*guarantees, "detection")
    violations = [violation for name in guarantees for violation in _CHECKS[name](run)]
    return Report(
        run=run.name,
        guarantees=guarantees,
        violations=tuple(violations),
        excused={excuse: run.excused[excuse] for excuse in Excuse if run.excused[excuse]},
        figures=run.figures(),
    )


# The evidence


@attrs.define(eq=False)
class _Subscription:
    """One subscription, from its confirmation to its withdrawal."""

    record: Record
    matches: Callable[[Content], bool] | None
    """None if its filter cannot be read: it then proves nothing about any publication."""
    since: float
    until: float = math.inf


@attrs.define(eq=False)
class _Delivery:
    """One delivery, with what its subscriber had asked for by then."""

    record: Record
    publication: PublicationId
    subscriptions: list[_Subscription | None]
    """Those it names; None in place of one that the subscriber did not have."""


@attrs.define(eq=False)
class _Subscriber:
    """A client that subscribed, or to which something was delivered."""

    name: str
    subscriptions: list[_Subscription] = attrs.field(factory=list)
    held: dict[str, _Subscription] = attrs.field(factory=dict)
    """By id, those it has at the point that taking in the records has reached."""
    deliveries: list[_Delivery] = attrs.field(factory=list)
    delivered: dict[PublicationId, _Delivery] = attrs.field(factory=dict)
    """The first delivery of each publication, in the order of delivery."""


@attrs.define(eq=False)
class _Run:
    """What the records of one run say, arranged for the questions that the checks ask."""

    ordering: str
    delta: int
    patience: float
    """So long a broker has to have waited for a client, in seconds, before it gave it up."""
    began: float
    run_names: list[str] = attrs.field(factory=list)
    """There should be one."""
    published: dict[PublicationId, Record] = attrs.field(factory=dict)
    confirmed: dict[PublicationId, Record] = attrs.field(factory=dict)
    skipped: set[tuple[PublicationId, str | None]] = attrs.field(factory=set)
    """Each with the subscriber for which it was skipped, or None where that is not one alone."""
    skipped_by: Counter[tuple[str, str | None]] = attrs.field(factory=Counter)
    """How many publications each node has skipped for each subscriber."""
    subscribers: dict[str, _Subscriber] = attrs.field(factory=dict)
    clients: set[str] = attrs.field(factory=set)
    node_events: list[Record] = attrs.field(factory=list)
    """What makes a node fail, or be well again."""
    lives: defaultdict[str, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    """The incarnations of each publisher of which publications are known."""
    begun: dict[str, dict[int, float]] = attrs.field(factory=dict)
    """When each incarnation of a client first had something to say for itself."""
    detecting: list[Watch] = attrs.field(factory=list)
    """Every detector, once for each time that it began."""
    unsound: list[Violation] = attrs.field(factory=list)
    """What is wrong with the history itself."""
    excused: Counter[Excuse] = attrs.field(factory=Counter)
    """Counted by the check for losses."""
    record_count: int = 0
    torn_lines: int = 0
    _counts: dict[tuple[object, ...], int] = attrs.field(factory=dict)
    """How far everything has come that counts 1, 2, 3 ..."""
    _contents: dict[str, tuple[Content, list[PublicationId]]] = attrs.field(factory=dict)
    """Each distinct content, with the publications that have it."""
    _detections: Detections | None = None
    _watches: dict[str, Watch] = attrs.field(factory=dict)
    """By name, the detectors there are at the point that taking in the records has reached."""
    _matching: dict[str, Set[PublicationId]] = attrs.field(factory=dict)
    """Which publications match, by the text of the filter."""

    @property
    def name(self) -> str:
        return self.run_names[0] if self.run_names else ""

    def next_life_of(self, node: str, incarnation: int) -> float:
        """Return when a later incarnation of a client had begun; infinity if none is known."""
        lives = self.begun.get(node, {})
        return min((at for life, at in lives.items() if life > incarnation), default=math.inf)

    def seconds(self, at: float) -> str:
        """Say when something happened, from the beginning of the run."""
        return f"{at - self.began:.3f} s"

    def violation(self, guarantee: str, witness: str, *records: Record) -> Violation:
        return Violation(guarantee, self.name, witness, tuple(map(place_of, records)))

    def name_of(self, publication: PublicationId) -> str:
        """Name a publication, with the life of its publisher if there have been several."""
        publisher, incarnation, _ = publication
        return name_of(publication, is_lone_life=self.lives[publisher] <= {incarnation})

    def at_position(self, delivery: _Delivery) -> str:
        """Name a publication, with its place among those that a subscriber delivered."""
        return f"{self.name_of(delivery.publication)} (position {delivery.record['position']})"

    def matching(self, subscription: _Subscription) -> Set[PublicationId]:
        """Return the publications that match, having asked once about each distinct content."""
        text = subscription.record["filter"]
        if text not in self._matching:
            self._matching[text] = {
                publication
                for content, publications in self._contents.values()
                if subscription.matches is not None and subscription.matches(content)
                for publication in publications
            }
        return self._matching[text]

    def figures(self) -> dict[str, int]:
        subscribers = self.subscribers.values()
        return {
            "records": self.record_count,
            "torn lines": self.torn_lines,
            "publishers": len({publisher for publisher, _, _ in self.published}),
            "published": len(self.published),
            "unstable": len(self.published.keys() - self.confirmed.keys()),
            "subscribers": len(subscribers),
            "subscriptions": sum(len(subscriber.subscriptions) for subscriber in subscribers),
            "delivered": sum(len(subscriber.deliveries) for subscriber in subscribers),
            **(self.detections().figures() if self.detecting else {}),
        }

    def detections(self) -> Detections:
        """Look for all patterns once more, once."""
        if self._detections is not None:
            return self._detections
        self._detections = detections = Detections(
            contents={p: r["content"] for p, r in self.published.items() if r["ordered"]},
            given_up=frozenset(publication for publication, _ in self.skipped),
        )
        detections.take_in(self.detecting)
        return detections

    def take_in_problems(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if problem.is_tolerated:
                self.torn_lines += 1
            else:
                self.unsound.append(Violation("record", self.name, problem.text, (problem.place,)))

    def take_in(self, records: Iterable[Record]) -> None:
        """Walk through the records, once."""
        for record in records:
            self.record_count += 1
            if record["run"] not in self.run_names:
                self._on_run_name(record)
            self._check_count(record, "n", record["node"], record["incarnation"])
            handler = _HANDLERS.get(record["kind"])
            if handler is not None:
                handler(self, record)

    def _on_run_name(self, record: Record) -> None:
        self.run_names.append(record["run"])
        if len(self.run_names) > 1:
            self._note_unsound(f"run {self.name!r} expected, {record['run']!r} found", record)

    def _check_count(self, record: Record, field: str, *whose: object) -> None:
        """Note it unless this field of this record is the next number of whose it is."""
        count = record[field]
        last = self._counts.get((field, *whose), 0)
        if count != last + 1:
            text = f"{record['kind']}: {field} {last + 1} expected, {count} found"
            self._note_unsound(text, record)
        self._counts[field, *whose] = max(count, last)

    def _note_unsound(self, witness: str, record: Record) -> None:
        self.unsound.append(self.violation("record", witness, record))

    def on_advertised(self, record: Record) -> None:
        self._note_client(record["client"], record)

    def _note_client(self, client: str, record: Record) -> None:
        """Note what a client has recorded itself: that it is one, and which life of it goes on."""
        self.clients.add(client)
        self.begun.setdefault(client, {}).setdefault(record["incarnation"], record["at"])

    def on_subscribed(self, record: Record) -> None:
        self._note_client(record["client"], record)
        matches = None
        try:
            matches = parse_filter(record["filter"]).matches
        except FilterSyntaxError as error:
            where = f"character {error.position + 1}"
            self._note_unsound(
                f"subscribed: {error.expected} expected in the filter at {where}, "
                f"{error.found} found: {error.text}",
                record,
            )
        subscription = _Subscription(record, matches, since=record["at"])
        subscriber = self._subscriber(record["client"])
        subscriber.subscriptions.append(subscription)
        subscriber.held[record["subscription"]] = subscription

    def on_unsubscribed(self, record: Record) -> None:
        watch = self._watches.pop(record["subscription"], None)
        if watch is not None:
            watch.is_over = True
        held = self._subscriber(record["client"]).held
        subscription = held.pop(record["subscription"], None)
        if subscription is not None:
            subscription.until = record["at"]

    def on_published(self, record: Record) -> None:
        publication, content = publication_of(record), record["content"]
        publisher, incarnation, _ = publication
        self._note_client(publisher, record)
        self.lives[publisher].add(incarnation)
        self._check_count(record, "seq", publisher, incarnation)
        if publication not in self.published:
            self.published[publication] = record
            # repr tells 1, 1.0 and True apart, which a comparison of the contents would not.
            self._contents.setdefault(repr(content), (content, []))[1].append(publication)

    def on_confirmed(self, record: Record) -> None:
        self.confirmed.setdefault(publication_of(record), record)

    def on_delivered(self, record: Record) -> None:
        subscriber = self._subscriber(record["subscriber"])
        self._check_count(record, "position", subscriber.name)
        publication = publication_of(record)
        self.lives[publication[0]].add(publication[1])
        subscriptions = [subscriber.held.get(name) for name in record["subscriptions"]]
        delivery = _Delivery(record, publication, subscriptions)
        subscriber.deliveries.append(delivery)
        subscriber.delivered.setdefault(publication, delivery)
        if self._watches:
            for name in record["subscriptions"]:
                if name in self._watches:
                    self._watches[name].given.append(Given(publication, record))

    def on_detecting(self, record: Record) -> None:
        self._note_client(record["client"], record)
        try:
            detection = read_detection(record)
        except PatternError as error:
            self._note_unsound(f"detecting: {error}", record)
            return
        watch = self._watches[record["detector"]] = Watch(record, detection)
        self.detecting.append(watch)

    def on_detected(self, record: Record) -> None:
        watch = self._watches.get(record["detector"])
        if watch is None:
            self._note_unsound(f"detected: {record['detector']} has not begun to detect", record)
        else:
            watch.detected.append(record)

    def on_skipped(self, record: Record) -> None:
        self.skipped_by[record["node"], record.get("subscriber")] += 1
        self.skipped.add((publication_of(record), record.get("subscriber")))

    def on_node_event(self, record: Record) -> None:
        self.node_events.append(record)

    def _subscriber(self, name: str) -> _Subscriber:
        subscriber = self.subscribers.get(name)
        if subscriber is None:
            subscriber = self.subscribers[name] = _Subscriber(name)
        return subscriber


_HANDLERS: Final[Mapping[str, Callable[[_Run, Record], None]]] = {
    "advertised": _Run.on_advertised,
    "subscribed": _Run.on_subscribed,
    "unsubscribed": _Run.on_unsubscribed,
    "published": _Run.on_published,
    "confirmed": _Run.on_confirmed,
    "delivered": _Run.on_delivered,
    "detecting": _Run.on_detecting,
    "detected": _Run.on_detected,
    "skipped": _Run.on_skipped,
    "crashed": _Run.on_node_event,
    "frozen": _Run.on_node_event,
    "stopped": _Run.on_node_event,
    "suspected": _Run.on_node_event,
    "unfrozen": _Run.on_node_event,
    "joined": _Run.on_node_event,
    "operational": _Run.on_node_event,
    "recovering": _Run.on_node_event,
}
"""Records of any other kind have no bearing on what is guaranteed."""


# What holds for each delivery by itself


def _unsound_records(run: _Run) -> Iterable[Violation]:
    return run.unsound


def _duplicates(run: _Run) -> Iterator[Violation]:
    for subscriber in run.subscribers.values():
        for delivery in subscriber.deliveries:
            first = subscriber.delivered[delivery.publication]
            if delivery is not first:
                yield run.violation(
                    "duplicate",
                    f"{subscriber.name} delivered {run.name_of(delivery.publication)} "
                    f"at position {first.record['position']} "
                    f"and again at position {delivery.record['position']}",
                    first.record,
                    delivery.record,
                )


def _spurious(run: _Run) -> Iterator[Violation]:
    for subscriber in run.subscribers.values():
        for delivery in subscriber.deliveries:
            fault = _fault(run, delivery)
            if fault is not None:
                text, records = fault
                yield run.violation(
                    "spurious",
                    f"{subscriber.name} delivered {run.name_of(delivery.publication)} "
                    f"at position {delivery.record['position']}, {text}",
                    delivery.record,
                    *records,
                )


def _fault(run: _Run, delivery: _Delivery) -> tuple[str, list[Record]] | None:
    """Say why a delivery should not have been, with the records that show it."""
    published = run.published.get(delivery.publication)
    if published is None:
        return "which was never published", []
    if not delivery.subscriptions:
        return "for no subscription", [published]
    for subscription, name in zip(
        delivery.subscriptions, delivery.record["subscriptions"], strict=True
    ):
        if subscription is None:
            return f"for subscription {name}, which it did not have", [published]
        if subscription.matches and delivery.publication not in run.matching(subscription):
            text = (
                f"for subscription {name}, whose filter {subscription.record['filter']} "
                f"does not match {json.dumps(published['content'], ensure_ascii=False)}"
            )
            return text, [published, subscription.record]
    return None


def _altered(run: _Run) -> Iterator[Violation]:
    for subscriber in run.subscribers.values():
        for delivery in subscriber.deliveries:
            published = run.published.get(delivery.publication)
            if published is not None and published["crc"] != delivery.record["crc"]:
                yield run.violation(
                    "altered",
                    f"{subscriber.name} delivered {run.name_of(delivery.publication)} "
                    f"with checksum {delivery.record['crc']}, "
                    f"but it was published with checksum {published['crc']}",
                    published,
                    delivery.record,
                )


# What detectors found


def _misdetected(run: _Run) -> Iterator[Violation]:
    detections = run.detections()
    findings = detections.misfindings()
    if run.ordering in _DETECTORS_AGREE:
        findings = chain(findings, detections.disagreements())
    for finding in findings:
        yield run.violation("detection", finding.text, *finding.records)


# What a subscriber was owed


def _losses(run: _Run) -> Iterator[Violation]:
    failures = _failures(run)
    for subscriber in run.subscribers.values():
        owed: dict[PublicationId, _Subscription] = {}
        excuses: dict[PublicationId, Excuse] = {}
        for subscription in subscriber.subscriptions:
            for publication in run.matching(subscription) - subscriber.delivered.keys():
                if subscription.since <= run.published[publication]["at"] <= subscription.until:
                    excuse = _excuse(run, failures, subscriber, subscription, publication)
                    if excuse is None:
                        owed.setdefault(publication, subscription)
                    else:
                        excuses.setdefault(publication, excuse)
        run.excused.update(excuses[publication] for publication in excuses.keys() - owed.keys())
        for publication in sorted(owed):
            yield _loss(run, subscriber, owed[publication], publication)


def _loss(
    run: _Run, subscriber: _Subscriber, subscription: _Subscription, publication: PublicationId
) -> Violation:
    published = run.published[publication]
    confirmed = run.confirmed.get(publication)
    return run.violation(
        "loss",
        f"{subscriber.name} never delivered {run.name_of(publication)}, "
        f"published at {run.seconds(published['at'])} and "
        + (f"confirmed at {run.seconds(confirmed['at'])}" if confirmed else "never confirmed")
        + f", which matches its subscription {subscription.record['subscription']}, "
        f"confirmed at {run.seconds(subscription.since)}: {subscription.record['filter']}",
        published,
        *([confirmed] if confirmed else []),
        subscription.record,
    )


def _excuse(
    run: _Run,
    failures: "_Failures",
    subscriber: _Subscriber,
    subscription: _Subscription,
    publication: PublicationId,
) -> Excuse | None:
    """Say why this subscription does not make a missing publication a loss; None if it does."""
    published = run.published[publication]
    issued = published["at"]
    confirmed = run.confirmed[publication]["at"] if publication in run.confirmed else math.inf
    end = _end_of_life(run, failures, subscription)
    has_failed = end <= confirmed and end < math.inf
    has_failed = has_failed or failures.has_failed(
        subscriber.name, issued, confirmed, noted_since=subscription.since
    )
    if issued in (subscription.since, subscription.until):
        return Excuse.SIMULTANEOUS
    is_skipped = has_failed and (publication, subscriber.name) in run.skipped
    if is_skipped or (publication, None) in run.skipped:
        return Excuse.SKIPPED
    if has_failed:
        return Excuse.SUBSCRIBER_FAILED
    if subscription.until <= confirmed and subscription.until < math.inf:
        return Excuse.WITHDRAWN
    if confirmed == math.inf:
        publisher, life = published["publisher"], published["incarnation"]
        has_ended = run.next_life_of(publisher, life) < math.inf
        if has_ended or failures.has_failed(publisher, issued, math.inf):
            return Excuse.PUBLISHER_FAILED
    if failures.were_too_many(subscriber.name, issued, confirmed):
        return Excuse.TOO_MANY_FAILURES
    return None


def _end_of_life(run: _Run, failures: "_Failures", subscription: _Subscription) -> float:
    """Return when the process had ended, at the latest, that had subscribed; infinity if never."""
    client, life = subscription.record["client"], subscription.record["incarnation"]
    ends = (at for at in failures.ended.get(client, ()) if at >= subscription.since)
    return min([run.next_life_of(client, life), *ends])


_Interval = tuple[float, float]


@attrs.frozen
class _Failure:
    """One time in which a node had failed."""

    time: _Interval
    noted_at: float
    """When somebody recorded it. A client that was heard of after that is back."""


@attrs.frozen
class _Failures:
    """When which nodes had failed; see the rules at the top."""

    by_node: Mapping[str, Sequence[_Failure]]
    ended: Mapping[str, Sequence[float]]
    """When the processes of nodes ended."""
    too_many: Sequence[_Interval]
    """When more than δ brokers had failed at the same time, or somebody was cut off."""
    too_many_for: Mapping[str, Sequence[_Interval]]
    """When clients had no session because of that."""

    def has_failed(
        self, node: str, since: float, until: float, *, noted_since: float = -math.inf
    ) -> bool:
        """Tell whether there was a time between at which the node had failed."""
        return any(
            failure.noted_at >= noted_since and _overlap((since, until), failure.time)
            for failure in self.by_node.get(node, ())
        )

    def were_too_many(self, client: str, since: float, until: float) -> bool:
        """Tell whether there was a time between at which too many had failed for a client."""
        times = chain(self.too_many, self.too_many_for.get(client, ()))
        return any(_overlap((since, until), time) for time in times)


def _failures(run: _Run) -> _Failures:
    by_node: defaultdict[str, list[_Failure]] = defaultdict(list)
    ended: defaultdict[str, list[float]] = defaultdict(list)
    failed_at: dict[str, float] = {}
    given_up: set[str] = set()  # failed, and not merely slow
    events = _events_before_the_end(run)
    for event in events:
        at, kind, node = event["at"], event["kind"], event["about"]
        if kind in ("crashed", "stopped"):
            ended[node].append(at)
        if kind == "suspected" and not _may_suspect(run, event):
            continue  # given up too early: what it misses by that is lost
        if kind in _FAILURES:
            failed_at.setdefault(node, at)
            if kind != "frozen":
                given_up.add(node)
        elif node not in failed_at:
            away = _seconds_away(run, event)
            if kind == "joined" and away >= PATIENCE_S:
                by_node[node].append(_Failure((at - away, at), noted_at=at))
        elif kind == "unfrozen" and node not in given_up:
            del failed_at[node]
        elif kind == ("joined" if node in run.clients else "operational"):
            since = failed_at.pop(node)
            by_node[node].append(_Failure((since, at), noted_at=since))
            given_up.discard(node)
    for node, since in failed_at.items():
        by_node[node].append(_Failure((since, math.inf), noted_at=since))
    of_brokers = [
        failure.time
        for node, failures in by_node.items()
        if node not in run.clients
        for failure in failures
    ]
    too_many = [
        *_times_of_more_than(run.delta, of_brokers),
        *_times_cut_off(events),
    ]
    too_many_for: defaultdict[str, list[_Interval]] = defaultdict(list)
    for client, homeless in _times_without_session(run, events):
        if any(_overlap(homeless, time) for time in too_many):
            too_many_for[client].append(homeless)
    return _Failures(by_node, ended, too_many, too_many_for)


def _seconds_away(run: _Run, event: Record) -> float:
    """Return for how long a client had been away, or behind, by what is said of it."""
    return event.get("millis", 0) / 1000 if event["about"] in run.clients else 0.0


def _may_suspect(run: _Run, event: Record) -> bool:
    """Tell whether the one who suspects a node had waited as long as is promised to clients."""
    return (
        event["about"] not in run.clients
        or _seconds_away(run, event) >= run.patience
        or run.skipped_by[event["node"], event["about"]] >= BEHIND_MAX
    )


def _overlap(one: _Interval, other: _Interval) -> bool:
    return one[0] <= other[1] and one[1] >= other[0]


def _times_without_session(run: _Run, events: Iterable[Record]) -> Iterator[tuple[str, _Interval]]:
    for event in events:
        if event["kind"] == "joined" and event["about"] in run.clients and event["millis"]:
            yield event["about"], (event["at"] - event["millis"] / 1000, event["at"])


def _times_cut_off(events: Iterable[Record]) -> Iterator[_Interval]:
    """Find the times at which some broker was cut off together with what is behind it."""
    well: set[tuple[str, int]] = set()
    cut_off_at: dict[tuple[str, int], float] = {}
    for event in events:
        life = event["node"], event["incarnation"]
        if event["node"] != event["about"]:
            continue
        if event["kind"] in ("joined", "operational"):
            well.add(life)
            if life in cut_off_at:
                yield cut_off_at.pop(life), event["at"]
        elif event["kind"] == "recovering" and life in well:
            cut_off_at.setdefault(life, event["at"] - event["millis"] / 1000)
    for since in cut_off_at.values():
        yield since, math.inf


_FAILURES: Final = frozenset({"crashed", "frozen", "stopped", "suspected"})


def _events_before_the_end(run: _Run) -> list[Record]:
    """Return what happened to nodes until the run was over, in the order in which it did."""
    last_issue = max((published["at"] for published in run.published.values()), default=-math.inf)
    end = min(
        (
            event["at"]
            for event in run.node_events
            if event["kind"] == "stopped" and event["at"] >= last_issue
        ),
        default=math.inf,
    )
    return sorted(
        (event for event in run.node_events if event["at"] < end), key=lambda event: event["at"]
    )


def _times_of_more_than(limit: int, intervals: Iterable[_Interval]) -> Iterator[_Interval]:
    """Find the times at which more than `limit` of the intervals overlap."""
    # A beginning sorts before an end of the same time: the clock cannot tell, so they overlap.
    changes = sorted(change for start, end in intervals for change in ((start, False), (end, True)))
    overlapping = 0
    since = math.inf
    for at, is_end in changes:
        overlapping += -1 if is_end else 1
        if is_end and overlapping == limit:
            yield since, at
        elif not is_end and overlapping == limit + 1:
            since = at


# Order


def _publisher_order(run: _Run) -> Iterator[Violation]:
    for name, deliveries in _ordered_deliveries(run).items():
        latest: dict[str, _Delivery] = {}
        for publication, delivery in deliveries.items():
            publisher, _, _ = publication
            before = latest.get(publisher)
            if before is None or before.publication < publication:
                latest[publisher] = delivery
            else:
                yield run.violation(
                    "fifo",
                    f"{name} delivered {run.at_position(before)} "
                    f"before {run.at_position(delivery)}, "
                    f"but {publisher} published them the other way round",
                    before.record,
                    delivery.record,
                )


def _pairwise_order(run: _Run) -> Iterator[Violation]:
    ordered = _ordered_deliveries(run)
    for one, other, p, q in disagreements(ordered):
        witnesses = ordered[one][p], ordered[one][q], ordered[other][q], ordered[other][p]
        p_first, q_second, q_first, p_second = map(run.at_position, witnesses)
        yield run.violation(
            "pairwise",
            f"{one} delivered {p_first} before {q_second}, "
            f"but {other} delivered {q_first} before {p_second}",
            *(delivery.record for delivery in witnesses),
        )


def _ordered_deliveries(run: _Run) -> dict[str, dict[PublicationId, _Delivery]]:
    """Return what each subscriber delivered in its order, leaving out what is exempt from order."""
    unordered = {
        publication for publication, published in run.published.items() if not published["ordered"]
    }
    return {
        subscriber.name: {
            publication: delivery
            for publication, delivery in subscriber.delivered.items()
            if publication not in unordered
            and _asks_for_order(delivery)
            and delivery.record.get("in_order") is not False  # its subscriber was told
        }
        for subscriber in run.subscribers.values()
    }


def _asks_for_order(delivery: _Delivery) -> bool:
    return any(
        subscription is None or subscription.record["ordered"]
        for subscription in delivery.subscriptions
    )


Order = Collection[PublicationId]
"""Publications in the order in which a subscriber delivered them, each once."""


def disagreements(
    orders: Mapping[str, Order],
) -> Iterator[tuple[str, str, PublicationId, PublicationId]]:
    """Find all s, t, p, q where s delivered p before q, and t delivered q before p; one per s, t.

    If each publication is linked to the one that some subscriber delivered next, then whatever
    was delivered in two orders lies on a cycle. Where there are no cycles, all is well, and that
    takes one look at each delivery. A cycle alone is no disagreement (three subscribers may have
    delivered ab, bc and ca), so subscribers are compared two by two, but only about what lies
    together on cycles.
    """
    knots = _knots(orders.values())
    if not knots:
        return
    knot_of = {publication: number for number, knot in enumerate(knots) for publication in knot}
    # Subscribers with the same order in a knot need only be compared once.
    orders_of: list[dict[tuple[PublicationId, ...], list[str]]] = [{} for _ in knots]
    for subscriber, order in orders.items():
        within: defaultdict[int, list[PublicationId]] = defaultdict(list)
        for publication in order:
            if publication in knot_of:
                within[knot_of[publication]].append(publication)
        for number, part in within.items():
            orders_of[number].setdefault(tuple(part), []).append(subscriber)

    found = set()
    for distinct in orders_of:
        for (order, ones), (other_order, others) in combinations(distinct.items(), 2):
            inversion = _inversion(order, other_order)
            if inversion is not None:
                for one, other in product(ones, others):
                    if frozenset((one, other)) not in found:
                        found.add(frozenset((one, other)))
                        yield one, other, *inversion


def _inversion(order: Order, other_order: Order) -> tuple[PublicationId, PublicationId] | None:
    """Return p and q such that p comes before q in one order, and q before p in the other.

    Two such that nothing that both orders have comes between them in the first.
    """
    place = {publication: number for number, publication in enumerate(other_order)}
    common = [publication for publication in order if publication in place]
    for p, q in pairwise(common):
        if place[p] > place[q]:
            return p, q
    return None


def _knots(orders: Iterable[Order]) -> list[list[PublicationId]]:
    """Return the strongly connected components of more than one publication (Tarjan, 1972)."""
    following: dict[PublicationId, list[PublicationId]] = {}
    for order in orders:
        for publication in order:
            following.setdefault(publication, [])
        for publication, next_one in pairwise(order):
            following[publication].append(next_one)

    knots = []
    unassigned: list[PublicationId] = []  # discovered, but their component is not complete
    place: dict[PublicationId, int] = {}  # where in that list
    lowest: dict[PublicationId, float] = {}  # the lowest place known to be of the same component

    def discover(publication: PublicationId) -> tuple[PublicationId, Iterator[PublicationId]]:
        place[publication] = lowest[publication] = len(unassigned)
        unassigned.append(publication)
        return publication, iter(following[publication])

    for root in following:
        # A stack of our own: recursion would go as deep as the longest order is long.
        path = [] if root in place else [discover(root)]
        while path:
            publication, rest = path[-1]
            for next_one in rest:
                if next_one not in place:
                    path.append(discover(next_one))
                    break
                lowest[publication] = min(lowest[publication], lowest[next_one])
            else:
                path.pop()
                if lowest[publication] == place[publication]:
                    component = unassigned[place[publication] :]
                    del unassigned[place[publication] :]
                    lowest.update(dict.fromkeys(component, math.inf))
                    if len(component) > 1:
                        knots.append(component)
                else:
                    before, _ = path[-1]
                    lowest[before] = min(lowest[before], lowest[publication])
    return knots


_CHECKS: Final[Mapping[str, Callable[[_Run], Iterable[Violation]]]] = {
    "record": _unsound_records,
    "duplicate": _duplicates,
    "spurious": _spurious,
    "altered": _altered,
    "loss": _losses,
    "fifo": _publisher_order,
    "pairwise": _pairwise_order,
    "detection": _misdetected,
}
