"""What a run recorded, as columns, and what it leaves open: the publications to look at closely.

Publications are numbered 0, 1, 2 ...; a set of them is an array with a truth value for each.
Every question but that of pairwise order is about one subscriber at a time, so that the
subscribers of a run may be spread over any number of `Deliveries`.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import attrs
import numpy as np
import numpy.typing as npt
import pandas as pd

from plait.faulttol.audit.columns import Columns, Life, Lines, Names, Numbers, Truths
from plait.faulttol.audit.cycles import links_of
from plait.faulttol.audit.errors import UnsuitableHistoryError
from plait.faulttol.audit.times import CLASSES_PER_DECADE, SHORTEST_SECONDS, Times
from plait.faulttol.detections import read_detection
from plait.faulttol.history import Record
from plait.routing.errors import FilterSyntaxError, PatternError
from plait.routing.filter_text import parse_filter
from plait.routing.values import Content

Seconds = npt.NDArray[np.float64]

LINES_MAX: Final = 1 << 32
"""Of one file. A row is the place of its file among all files times this, and its line."""

_NUMBER_MAX: Final = int(np.iinfo(np.int64).max)


def times_of(seconds: Seconds) -> Times:
    """Sort durations into classes."""
    if not seconds.size:
        return Times()
    decades = np.log10(np.maximum(seconds, SHORTEST_SECONDS) / SHORTEST_SECONDS)
    classes = np.floor(decades * CLASSES_PER_DECADE).astype(np.int64)
    numbers, counts = np.unique(classes, return_counts=True)
    return Times(dict(zip(numbers.tolist(), counts.tolist(), strict=True)), float(seconds.max()))


@attrs.frozen(kw_only=True)
class _Subscription:
    """One subscription, from its confirmation to its withdrawal."""

    client: str
    name: str
    filter: str
    ordered: bool
    since: float
    until: float
    row: int
    end_row: float


@attrs.define(eq=False, kw_only=True)
class Publications:
    """Everything that happened in a run but the deliveries."""

    names: Names
    first_rows: Mapping[Path, int]
    """The row of the first line of each file."""
    life_numbers: Mapping[tuple[int, ...], int]
    """A number for each name of a publisher, as a number, with an incarnation that published."""
    first_of: Numbers
    """By the number of such a life, that of its first publication, which others follow."""
    count_of: Numbers
    at: Seconds
    row: Numbers
    ordered: Truths
    crc: Numbers
    content: Numbers
    """The place in `contents`."""
    contents: Sequence[Content]
    """All that differ in their text."""
    confirmed_at: Seconds
    """Infinite where a publication was never confirmed."""
    confirmations: tuple[Numbers, Numbers]
    """Of which publication each is, and its row."""
    records: Sequence[tuple[int, Record]]
    """What is neither published nor confirmed, with its row."""
    subscriptions: Sequence[_Subscription]
    named: Mapping[tuple[str, str], _Subscription]
    """By client and name; the first of those that a client repeated when it came back."""
    torn_lines: int
    unpublished: Names = attrs.field(factory=Names)
    """What was delivered, or confirmed, and never published, as `PublicationId`."""
    _matching: dict[str, Truths] = attrs.field(factory=dict, init=False)

    @classmethod
    def of(cls, lines: Lines, lives: Mapping[Path, Life]) -> Self:
        """Arrange the lines of all files of a run, whose lives may be more than these tell of."""
        first_rows = _first_rows(lives)
        published = _in_rows(lines, "published", first_rows)
        life, life_numbers = _numbered(published["publisher"], published["publisher_incarnation"])
        published = _sorted_by("life", published | {"life": life})
        _, starts, counts = _groups(published["life"])
        _require_counts(published["seq"], counts)
        content, texts = pd.factorize(published["content"])
        things = lines.names.things
        records = sorted(
            (
                (first_rows[lines.files[file]] + line, record)
                for file, line, record in lines.records
            ),
            key=lambda numbered: numbered[0],
        )
        subscriptions = _subscriptions(records)
        _require_detectors(record for _, record in records)
        publications = cls(
            names=lines.names,
            first_rows=first_rows,
            life_numbers={one: number for number, one in enumerate(life_numbers)},
            # One more, for all lives in which nothing was published.
            first_of=np.append(starts, 0),
            count_of=np.append(counts, 0),
            at=published["at"],
            row=published["row"],
            ordered=published["ordered"].astype(np.bool_),
            crc=published["crc"],
            content=content,
            contents=[json.loads(things[text]) for text in texts],
            confirmed_at=np.full(len(published["at"]), np.inf),
            confirmations=(_none(), _none()),
            records=records,
            subscriptions=subscriptions,
            named={(one.client, one.name): one for one in reversed(subscriptions)},
            torn_lines=len(lines.problems),
        )
        publications._confirm(_in_rows(lines, "confirmed", first_rows))
        return publications

    def _confirm(self, confirmed: Columns) -> None:
        numbers = self.numbers(confirmed)
        self.confirmations = numbers, confirmed["row"]
        is_known = numbers < len(self)
        # The first confirmation counts, and so is written last.
        self.confirmed_at[numbers[is_known][::-1]] = confirmed["at"][is_known][::-1]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def count(self) -> int:
        """How many there are with those that were never published."""
        return len(self) + len(self.unpublished)

    def numbers(self, about: Columns) -> Numbers:
        """Return the numbers of the publications that these columns are about.

        Those never published are given some, too.
        """
        publisher, incarnation = about["publisher"], about["publisher_incarnation"]
        seq = about["seq"]
        places, distinct = _numbered(publisher, incarnation)
        known = (self.life_numbers.get(life, len(self.life_numbers)) for life in distinct)
        life = np.fromiter(known, np.int64, len(distinct))[places]
        is_published = (seq >= 1) & (seq <= self.count_of[life])
        numbers = self.first_of[life] + seq - 1
        others = np.flatnonzero(~is_published)
        if others.size:
            places, unpublished = _numbered(publisher[others], incarnation[others], seq[others])
            texts = self.names.things
            new = (self.unpublished.number((texts[name], *rest)) for name, *rest in unpublished)
            numbers[others] = len(self) + np.fromiter(new, np.int64, len(unpublished))[places]
        return numbers

    def subscriptions_by_client(self) -> dict[str, list[_Subscription]]:
        """Return the subscriptions of each client."""
        by_client: dict[str, list[_Subscription]] = {}
        for subscription in self.subscriptions:
            by_client.setdefault(subscription.client, []).append(subscription)
        return by_client

    def detecting_clients(self) -> set[str]:
        """Return the clients that looked for patterns."""
        return {r["client"] for _, r in self.records if r["kind"] == "detecting"}

    def matching(self, text: str) -> Truths:
        """Tell of each content whether it matches a filter, having asked once about each."""
        if text not in self._matching:
            try:
                matches = parse_filter(text).matches
            except FilterSyntaxError:
                raise UnsuitableHistoryError("a filter that cannot be read") from None
            self._matching[text] = np.fromiter(
                map(matches, self.contents), np.bool_, len(self.contents)
            )
        return self._matching[text]

    def to_be_judged(self, suspects: Truths) -> Truths:
        """Return those that the judge has to know of to judge the suspects.

        Every verdict is about the records of one publication, or two, and of no others. But who
        is a client shows in the first publication of each life, and when the run ended in the last.
        """
        chosen = suspects.copy()
        chosen[self.first_of[self.count_of > 0]] = True
        if len(self):
            chosen[int(self.at.argmax())] = True
        return chosen

    def rows_about(self, chosen: Truths) -> Numbers:
        """Return the rows in which these publications were published and confirmed."""
        numbers, rows = self.confirmations
        is_known = numbers < len(self)
        of_known = rows[is_known][chosen[numbers[is_known]]]
        return np.concatenate([self.row[chosen[: len(self)]], of_known])

    def figures(self, deliveries: int, receivers: Collection[str]) -> dict[str, int]:
        """Count what the judge would count."""
        clients = {
            record["client"]
            for _, record in self.records
            if record["kind"] in ("subscribed", "unsubscribed")
        }
        confirmations, _ = self.confirmations
        return {
            "records": len(self.records) + len(self) + len(confirmations) + deliveries,
            "torn lines": self.torn_lines,
            "publishers": len({publisher for publisher, _ in self.life_numbers}),
            "published": len(self),
            "unstable": int(np.isinf(self.confirmed_at).sum()),
            "subscribers": len(clients.union(receivers)),
            "subscriptions": len(self.subscriptions),
            "delivered": deliveries,
        }

    def hold_times(self) -> Times:
        """Return how long it took until each was confirmed: so long, nodes had to keep it."""
        is_confirmed = np.isfinite(self.confirmed_at)
        return times_of(self.confirmed_at[is_confirmed] - self.at[is_confirmed])


@attrs.frozen(eq=False, kw_only=True)
class Deliveries:
    """All deliveries to some subscribers, one subscriber after the other, each in its order."""

    publications: Publications
    clients: Collection[str] | None
    """Whom these deliveries are to; None for everybody."""
    receivers: Sequence[str]
    """Who delivered anything."""
    subscriber: Numbers
    publisher: Numbers
    stamp: Numbers
    """By which the publications of one publisher are in its order."""
    number: Numbers
    """Of the publication."""
    row: Numbers
    at: Seconds
    crc: Numbers
    is_repeated: Truths
    is_held: Truths
    """Whether the subscriber had the subscriptions that are named."""
    asks_for_order: Truths
    fits: Truths
    """Whether the publication was published, and matches the subscriptions that are named."""
    in_place: Truths
    """Whether the subscriber was not told that it comes out of order."""

    @classmethod
    def of(
        cls, lines: Lines, publications: Publications, clients: Collection[str] | None = None
    ) -> Self:
        """Arrange the deliveries in these lines: all there are to these clients, or to anybody."""
        delivered = _sorted_by("subscriber", _in_rows(lines, "delivered", publications.first_rows))
        subscribers, _, counts = _groups(delivered["subscriber"])
        _require_counts(delivered["position"], counts)
        number = publications.numbers(delivered)
        pairs = pd.Series(delivered["subscriber"] * max(publications.count, 1) + number)
        is_held, asks_for_order, fits = _look_up(delivered, number, lines, publications)
        things = lines.names.things
        receivers = [things[subscriber] for subscriber in subscribers]
        _require(clients is None or set(receivers) <= set(clients))
        return cls(
            publications=publications,
            clients=clients,
            receivers=receivers,
            subscriber=delivered["subscriber"],
            publisher=delivered["publisher"],
            stamp=_stamps(delivered["publisher_incarnation"], delivered["seq"]),
            number=number,
            row=delivered["row"],
            at=delivered["at"],
            crc=delivered["crc"],
            is_repeated=pairs.duplicated().to_numpy(),
            is_held=is_held,
            asks_for_order=asks_for_order,
            fits=fits,
            in_place=delivered["in_order"],
        )

    def __len__(self) -> int:
        return len(self.number)

    def suspects(self, guarantees: Collection[str]) -> Truths:
        """Return the publications that may be part of a violation, or of an excuse."""
        suspects = np.zeros(self.publications.count, np.bool_)
        for name in guarantees:
            if name in _SCREENS:
                for numbers in _SCREENS[name](self):
                    suspects[numbers] = True
        suspects[self.given_to_detectors()] = True
        return suspects

    def given_to_detectors(self) -> Numbers:
        """Return what was delivered to clients with detectors: the judge looks at all of it."""
        clients = self.publications.detecting_clients()
        subscribers, _, _ = _groups(self.subscriber)
        pairs = zip(subscribers, self.receivers, strict=True)
        theirs = [number for number, name in pairs if name in clients]
        return self.number[np.isin(self.subscriber, theirs)]

    def rows_about(self, chosen: Truths) -> Numbers:
        """Return the rows in which these publications were delivered."""
        return self.row[chosen[self.number]]

    def latencies(self) -> Times:
        """Return how long it took from each publication to each of its deliveries."""
        is_published = self.number < len(self.publications)
        published_at = self.publications.at[self.number[is_published]]
        return times_of(self.at[is_published] - published_at)

    def is_in_order(self) -> Truths:
        """Tell which are the first of their publication for a subscriber that order is due to."""
        ordered = np.append(self.publications.ordered, np.ones(self.publications.count, np.bool_))
        is_due = self.asks_for_order & self.in_place
        return ~self.is_repeated & is_due & ordered[self.number]

    def links(self) -> tuple[Numbers, Numbers]:
        """Link each publication to the one that the same subscriber delivered next in order."""
        is_in_order = self.is_in_order()
        return links_of(self.subscriber[is_in_order], self.number[is_in_order])

    def first_at(self) -> Seconds:
        """Return when each publication was first delivered to any of these subscribers."""
        first_at = np.full(self.publications.count, np.inf)
        np.minimum.at(first_at, self.number, self.at)
        return first_at

    def duplicated(self) -> Iterator[Numbers]:
        """Suspect what one subscriber delivered twice."""
        yield self.number[self.is_repeated]

    def spurious(self) -> Iterator[Numbers]:
        """Suspect what was delivered without being published, asked for, or a match."""
        yield self.number[~(self.is_held & self.fits)]

    def altered(self) -> Iterator[Numbers]:
        """Suspect what was delivered with another checksum than it was published with."""
        published = self.number[self.number < len(self.publications)]
        crc = self.crc[self.number < len(self.publications)]
        yield published[self.publications.crc[published] != crc]

    def against_publishers(self) -> Iterator[Numbers]:
        """Suspect what came after something that its publisher published later."""
        chosen = self.is_in_order()
        publisher, stamp = self.publisher[chosen], self.stamp[chosen]
        number = self.number[chosen]
        whose = self.subscriber[chosen] * (int(publisher.max(initial=0)) + 1) + publisher
        highest = pd.Series(stamp).groupby(whose).cummax().to_numpy()
        is_late = stamp < highest
        yield number[is_late]
        overtaking = np.stack([publisher, highest], axis=1)[is_late]
        if overtaking.size:
            late_pairs = pd.MultiIndex.from_arrays(overtaking.T)
            yield number[pd.MultiIndex.from_arrays([publisher, stamp]).isin(late_pairs)]

    def lost(self) -> Iterator[Numbers]:
        """Suspect what matched a subscription in its time and was not delivered."""
        publications = self.publications
        _, starts, counts = _groups(self.subscriber)
        places_of = {
            receiver: slice(start, start + count)
            for receiver, start, count in zip(self.receivers, starts, counts, strict=True)
        }
        for client, subscriptions in publications.subscriptions_by_client().items():
            if self.clients is not None and client not in self.clients:
                continue
            is_missing = np.ones(self.publications.count, np.bool_)
            is_missing[self.number[places_of.get(client, slice(0))]] = False
            missing = np.flatnonzero(is_missing[: len(publications)])
            at, content = publications.at[missing], publications.content[missing]
            for one in subscriptions:
                is_due = (one.since <= at) & (at <= one.until)
                if is_due.any():
                    yield missing[is_due][publications.matching(one.filter)[content[is_due]]]


_SCREENS: Final[dict[str, Callable[[Deliveries], Iterator[Numbers]]]] = {
    "duplicate": Deliveries.duplicated,
    "spurious": Deliveries.spurious,
    "altered": Deliveries.altered,
    "loss": Deliveries.lost,
    "fifo": Deliveries.against_publishers,
}
"""`pairwise` is about all subscribers; what is not sound is refused when evidence is arranged."""


# From lines to evidence


def _require(condition: bool) -> None:
    if not condition:
        raise UnsuitableHistoryError("a history that is not sound")


def _require_counts(numbers: Numbers, group_sizes: Numbers) -> None:
    """Require that numbers count 1, 2, 3 ... in each of the groups that follow one another."""
    begins = np.repeat(np.cumsum(group_sizes) - group_sizes, group_sizes)
    _require(bool((numbers == np.arange(1, len(numbers) + 1) - begins).all()))


def _require_detectors(records: Iterable[Record]) -> None:
    """Require that it is known what each detector looked for, before it found anything.

    What is wrong there is no matter of single publications.
    """
    known = set()
    for record in records:
        if record["kind"] == "detecting":
            try:
                read_detection(record)
            except PatternError:
                raise UnsuitableHistoryError("a pattern that cannot be read") from None
            known.add(record["detector"])
        elif record["kind"] == "unsubscribed":
            known.discard(record["subscription"])
        elif record["kind"] == "detected":
            _require(record["detector"] in known)


def _first_rows(lives: Mapping[Path, Life]) -> dict[Path, int]:
    """Put the files in the order in which `faulttol.history.read_run` would return them."""
    in_order = sorted(lives, key=lambda path: (*lives[path], path))
    return {path: place * LINES_MAX for place, path in enumerate(in_order)}


def _in_rows(lines: Lines, kind: str, first_rows: Mapping[Path, int]) -> Columns:
    """Return the columns of a kind, in the order of their rows, with the `row` of each."""
    columns = lines.columns[kind]
    of_files = np.array([first_rows.get(path, 0) for path in lines.files], np.int64)
    columns = columns | {"row": of_files[columns["file"]] + columns["line"]}
    return _sorted_by("row", columns)


def _sorted_by(name: str, columns: Columns) -> Columns:
    keys = columns[name]
    if (keys[1:] >= keys[:-1]).all():
        return columns
    order = np.argsort(keys, kind="stable")
    return {name: column[order] for name, column in columns.items()}


def _numbered(*columns: Numbers) -> tuple[Numbers, list[tuple[int, ...]]]:
    """Number the rows of these columns 0, 1, 2 ... as they turn up, and return those that differ.

    In this way, as tuples are slow: no product of two counts of rows is too large a number.
    """
    numbers = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes, values = pd.factorize(column)
        numbers, _ = pd.factorize(numbers * max(len(values), 1) + codes)
    firsts = np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=-1))
    return numbers, list(zip(*(column[firsts].tolist() for column in columns), strict=True))


def _stamps(incarnation: Numbers, seq: Numbers) -> Numbers:
    """Return one number for both that sorts by incarnation and then by sequence number."""
    place, incarnations = pd.factorize(incarnation, sort=True)
    step = int(seq.max(initial=0)) + 1
    if seq.min(initial=0) < 0 or step * len(incarnations) > _NUMBER_MAX:
        raise UnsuitableHistoryError("sequence numbers that are negative, or too large")
    stamps: Numbers = place * step + seq
    return stamps


def _groups(keys: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return the distinct keys of a sorted column, where each begins, and how often it is there."""
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], starts, np.diff(np.append(starts, len(keys)))


def _none() -> Numbers:
    return np.zeros(0, np.int64)


def _subscriptions(records: Sequence[tuple[int, Record]]) -> list[_Subscription]:
    """Return all subscriptions, each with the time and the row of its end.

    A client that comes back may subscribe once more under the same name, to the same; the end is
    then that of the last. Anything else is for the judge.
    """
    begun: dict[tuple[str, str], list[tuple[int, Record]]] = {}
    ended: dict[tuple[str, str], tuple[int, Record]] = {}
    for row, record in records:
        if record["kind"] == "subscribed":
            key = record["client"], record["subscription"]
            _require(key not in ended)
            begun.setdefault(key, []).append((row, record))
        elif record["kind"] == "unsubscribed":
            key = record["client"], record["subscription"]
            if key in begun:
                ended.setdefault(key, (row, record))
    subscriptions = []
    for (client, name), same in begun.items():
        _, first = same[0]
        _require(
            all(
                (record["filter"], record["ordered"]) == (first["filter"], first["ordered"])
                for _, record in same
            )
        )
        end_row, end = ended.get((client, name), (math.inf, {"at": math.inf}))
        for row, record in same:
            is_last = record is same[-1][1]
            subscriptions.append(
                _Subscription(
                    client=client,
                    name=name,
                    filter=record["filter"],
                    ordered=record["ordered"],
                    since=record["at"],
                    until=end["at"] if is_last else math.inf,
                    row=row,
                    end_row=end_row,
                )
            )
    return subscriptions


def _look_up(
    delivered: Columns, number: Numbers, lines: Lines, publications: Publications
) -> tuple[Truths, Truths, Truths]:
    """Say of each delivery whether its subscriptions were held, ask for order, and match."""
    # Those that name the same subscriptions of the same subscriber are looked up together.
    names, lists = lines.names.things, lines.lists.things
    group_of, groups = pd.factorize(
        delivered["subscriber"] * max(len(lists), 1) + delivered["subscriptions"]
    )
    begin, end = np.full(len(groups), np.inf), np.full(len(groups), -np.inf)
    is_ordered, names_any = np.ones(len(groups), np.bool_), np.ones(len(groups), np.bool_)
    filters_of = np.zeros(len(groups), np.int64)
    sets_of_filters = Names()
    for group, key in enumerate(groups.tolist()):
        subscriber, chosen = divmod(key, len(lists))
        named = [publications.named.get((names[subscriber], name)) for name in lists[chosen]]
        held = [one for one in named if one is not None]
        if named and len(held) == len(named):
            begin[group] = max(one.row for one in held)
            end[group] = min(one.end_row for one in held)
            is_ordered[group] = any(one.ordered for one in held)
        names_any[group] = bool(named)
        filters_of[group] = sets_of_filters.number(frozenset(one.filter for one in held))
    is_held = (begin[group_of] < delivered["row"]) & (delivered["row"] < end[group_of])
    # Nobody knows what a subscription that was not held would have asked for.
    asks_for_order = np.where(is_held, is_ordered[group_of], names_any[group_of])

    fits = np.zeros(len(number), np.bool_)
    is_published = number < len(publications)
    by_filters = np.argsort(filters_of[group_of], kind="stable")
    for filters, start, count in zip(*_groups(filters_of[group_of][by_filters]), strict=True):
        places = by_filters[start : start + count]
        places = places[is_published[places]]
        contents = publications.content[number[places]]
        fits[places] = True
        for text in sets_of_filters.things[filters]:
            fits[places] &= publications.matching(text)[contents]
    return is_held, asks_for_order, fits
