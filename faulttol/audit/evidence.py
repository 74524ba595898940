"""The records of one run as columns, and what they leave open.

Publications are numbered 0, 1, 2 ...; a set of them is an array with a truth value for each.
"""

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Self

import attrs
import numpy as np
import numpy.typing as npt
import pandas as pd

from faulttol.history import HEADER, KINDS, Record
from routing.errors import FilterSyntaxError
from routing.filter_text import parse_filter
from routing.values import Content

Truths = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_ABOUT_PUBLICATIONS: Final = ("published", "confirmed", "skipped", "delivered")
_VALUE_TYPES: Final = (str, int, float, bool)


class UnsuitableEvidenceError(Exception):
    """The history is not of the simple kind that columns can be judged by; the judge can read it.

    Either it is not sound, or a subscription changed its meaning on the way.
    """


@attrs.frozen(eq=False)
class Evidence:
    """The records of a run that is sound, arranged for questions about all of them at once."""

    rows: pd.DataFrame
    """In the order in which `faulttol.history.read_run` would return them."""
    published: pd.DataFrame
    """A row for each publication by its number, null where it was never published."""
    subscribed: pd.DataFrame
    deliveries: pd.DataFrame
    """With `is_held`, `asks_for_order` and `fits` about the subscriptions that they name."""
    matching: dict[str, Truths]
    """By the text of a filter, the contents that match."""

    @classmethod
    def from_rows(cls, rows: pd.DataFrame, run: str) -> Self:
        """Arrange the rows of one run."""
        _require(not rows["is_doubtful"].any())
        rows = _in_order(rows)
        _require(bool((rows["run"] == run).all() and np.isfinite(rows["at"]).all()))
        _require_counts(rows, "n", ["node", "incarnation"])
        _require_counts(rows[rows["kind"] == "published"], "seq", ["publisher"])
        _require_counts(rows[rows["kind"] == "delivered"], "position", ["subscriber"])

        rows["publication"] = _publication_numbers(rows)
        count = int(rows["publication"].max()) + 1
        published = rows[rows["kind"] == "published"].set_index("publication")
        codes, texts = pd.factorize(published["content"])
        contents = [_content(text) for text in texts]
        published = published.assign(content_number=codes).reindex(range(count))
        subscribed = _subscribed(rows)
        matching = {
            text: np.fromiter(map(_matches(text), contents), np.bool_, len(contents))
            for text in subscribed["filter"].unique()
        }
        deliveries = rows[rows["kind"] == "delivered"].copy()
        _look_up_subscriptions(deliveries, subscribed, published, matching)
        return cls(rows, published, subscribed, deliveries, matching)

    def figures(self) -> dict[str, int]:
        """Count what the judge would count."""
        kinds = self.rows["kind"]
        published = self.published["kind"].notna()
        confirmed = self.rows.loc[kinds == "confirmed", "publication"]
        clients = self.rows.loc[kinds.isin(["subscribed", "unsubscribed"]), "client"]
        return {
            "records": len(self.rows),
            "torn lines": 0,
            "publishers": int(self.published["publisher"].nunique()),
            "published": int(published.sum()),
            "unstable": int((published & ~published.index.isin(confirmed)).sum()),
            "subscribers": len(set(clients) | set(self.deliveries["subscriber"].unique())),
            "subscriptions": len(self.subscribed),
            "delivered": len(self.deliveries),
        }

    def suspects(self, guarantees: Collection[str]) -> Truths:
        """Return the publications that may be part of a violation, or of an excuse."""
        suspects = np.zeros(len(self.published), np.bool_)
        for name in guarantees:
            if name in _SCREENS:
                for numbers in _SCREENS[name](self):
                    suspects[numbers] = True
        return suspects

    def records_about(self, publications: Truths) -> Iterator[Record]:
        """Return all that bears on these publications, as the records that they were.

        Every verdict is about the records of one publication, or two, and of no others. But who
        is a client shows in the first publication of each, and when the run ended in the last.
        """
        publications = publications.copy()
        first_ones = self.published["seq"] == 1
        publications[first_ones.to_numpy()] = True
        if first_ones.any():
            publications[int(self.published["at"].argmax())] = True
        numbers = self.rows["publication"].to_numpy()
        is_kept = (numbers < 0) | publications[numbers]
        return map(_record, self.rows[is_kept].to_dict("records"))

    def ordered_deliveries(self) -> pd.DataFrame:
        """Return the first delivery of each publication to each subscriber that order is due to."""
        deliveries = self.deliveries
        is_unordered = (self.published["ordered"] == False).to_numpy()  # noqa: E712 - it may be null
        is_due = deliveries["asks_for_order"] & ~is_unordered[deliveries["publication"]]
        return deliveries[~self._is_repeated() & is_due]

    def _is_repeated(self) -> pd.Series:
        return self.deliveries.duplicated(["subscriber", "publication"])

    def duplicated(self) -> Iterator[Numbers]:
        """Suspect what one subscriber delivered twice."""
        yield self.deliveries.loc[self._is_repeated(), "publication"].to_numpy()

    def spurious(self) -> Iterator[Numbers]:
        """Suspect what was delivered without being published, asked for, or a match."""
        deliveries = self.deliveries
        is_wanted = deliveries["is_held"] & deliveries["fits"]
        yield deliveries.loc[~is_wanted, "publication"].to_numpy()

    def altered(self) -> Iterator[Numbers]:
        """Suspect what was delivered with another checksum than it was published with."""
        numbers = self.deliveries["publication"].to_numpy()
        is_same = self.published["crc"].to_numpy()[numbers] == self.deliveries["crc"].to_numpy()
        yield numbers[~is_same]

    def lost(self) -> Iterator[Numbers]:
        """Suspect what matched a subscription in its time and was not delivered."""
        at = self.published["at"].to_numpy()
        is_published = self.published["kind"].notna().to_numpy()
        content_numbers = self.published["content_number"].fillna(-1).to_numpy(np.int64)
        matching = {
            text: truths[content_numbers] & is_published
            for text, truths in self.matching.items()
            if is_published.any()
        }
        delivered = self.deliveries.groupby("subscriber")["publication"]
        numbers_of = {name: numbers.to_numpy() for name, numbers in delivered}
        none = np.zeros(0, np.int64)
        for client, subscriptions in self.subscribed.groupby("client"):
            is_missing = is_published.copy()
            is_missing[numbers_of.get(client, none)] = False
            for text, since, until in zip(
                subscriptions["filter"], subscriptions["at"], subscriptions["until"], strict=True
            ):
                if text in matching:
                    is_due = matching[text] & (since <= at) & (at <= until)
                    yield np.flatnonzero(is_due & is_missing)

    def against_publishers(self) -> Iterator[Numbers]:
        """Suspect what came after something that its publisher published later."""
        deliveries = self.ordered_deliveries()
        highest = deliveries.groupby(["subscriber", "publisher"])["seq"].cummax()
        is_late = deliveries["seq"] < highest
        yield deliveries.loc[is_late, "publication"].to_numpy()
        late = deliveries[is_late]
        keys = pd.MultiIndex.from_arrays([late["publisher"], highest[is_late]])
        overtaking = pd.MultiIndex.from_frame(deliveries[["publisher", "seq"]]).isin(keys)
        yield deliveries.loc[overtaking, "publication"].to_numpy()

    def on_cycles(self) -> Iterator[Numbers]:
        """Suspect what lies on or between cycles of the graph of consecutive deliveries.

        Without a cycle there is one order that all subscribers followed; see
        `faulttol.guarantees.disagreements`.
        """
        deliveries = self.ordered_deliveries()
        by_subscriber = deliveries.sort_values("subscriber", kind="stable")
        subscribers = by_subscriber["subscriber"].to_numpy()
        numbers = by_subscriber["publication"].to_numpy()
        is_consecutive = subscribers[:-1] == subscribers[1:]
        count = len(self.published)
        links = np.unique(numbers[:-1][is_consecutive] * count + numbers[1:][is_consecutive])
        yield _core(links // max(count, 1), links % max(count, 1), count)


_SCREENS: Final[dict[str, Callable[[Evidence], Iterator[Numbers]]]] = {
    "duplicate": Evidence.duplicated,
    "spurious": Evidence.spurious,
    "altered": Evidence.altered,
    "loss": Evidence.lost,
    "fifo": Evidence.against_publishers,
    "pairwise": Evidence.on_cycles,
}
"""`record` has none: evidence that is not sound does not come this far."""


def _core(sources: Numbers, targets: Numbers, count: int) -> Numbers:
    """Return the nodes that are left when all that begin or end a path are taken away."""
    for _ in range(2):
        order = np.argsort(sources, kind="stable")
        sources, targets = sources[order], targets[order]
        starts = np.searchsorted(sources, np.arange(count + 1)).tolist()
        following = targets.tolist()
        incoming = np.bincount(targets, minlength=count).tolist()
        free = [node for node, links in enumerate(incoming) if not links]
        is_left = np.ones(count, np.bool_)
        while free:
            node = free.pop()
            is_left[node] = False
            for target in following[starts[node] : starts[node + 1]]:
                incoming[target] -= 1
                if not incoming[target]:
                    free.append(target)
        # And once more from the other end.
        is_kept = is_left[sources] & is_left[targets]
        sources, targets = targets[is_kept], sources[is_kept]
    return np.unique(sources)


# From rows to evidence


def _require(condition: bool) -> None:
    if not condition:
        raise UnsuitableEvidenceError


def _in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort the rows by node and incarnation, and as they stand in the file; check it is one."""
    rows = rows.sort_values(["node", "incarnation", "file", "block", "line"], ignore_index=True)
    lives = rows.groupby(["node", "incarnation"])["file"]
    _require(bool((lives.nunique() == 1).all() and rows["file"].nunique() == lives.ngroups))
    return rows


def _require_counts(rows: pd.DataFrame, field: str, whose: list[str]) -> None:
    """Require that a field counts 1, 2, 3 ... for each."""
    expected = rows.groupby(whose, sort=False).cumcount() + 1
    _require(bool((rows[field] == expected).all()))


def _publication_numbers(rows: pd.DataFrame) -> Numbers:
    """Number the publications that rows are about; -1 for a row that is about none."""
    is_about_one = rows["kind"].isin(_ABOUT_PUBLICATIONS).to_numpy()
    numbers = np.full(len(rows), -1, np.int64)
    about = rows.loc[is_about_one, ["publisher", "seq"]]
    numbers[is_about_one] = about.groupby(["publisher", "seq"], sort=False).ngroup().to_numpy()
    return numbers


def _content(text: str) -> Content:
    try:
        content: Content = json.loads(text)
    except ValueError:
        # To Spark, a text in place of the object is the text of an object.
        raise UnsuitableEvidenceError from None
    _require(
        isinstance(content, dict) and all(type(value) in _VALUE_TYPES for value in content.values())
    )
    return content


def _matches(text: str) -> Callable[[Content], bool]:
    try:
        return parse_filter(text).matches
    except FilterSyntaxError:
        raise UnsuitableEvidenceError from None


def _subscribed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the beginnings of subscriptions, each with the time and the row of its end.

    A client that comes back may subscribe once more under the same name, to the same; the end is
    then that of the last. Anything else is for the judge.
    """
    key = ["client", "subscription"]
    subscribed = rows[rows["kind"] == "subscribed"]
    groups = subscribed.groupby(key)
    _require(bool((groups[["filter", "ordered"]].nunique() == 1).all(axis=None)))
    ends = rows[rows["kind"] == "unsubscribed"].drop_duplicates(key)
    ends = ends.assign(end_row=ends.index).set_index(key)[["at", "end_row"]]
    ends = ends.rename(columns={"at": "until"})
    subscribed = subscribed.assign(row=subscribed.index).join(ends, on=key)
    subscribed = subscribed.fillna({"until": np.inf, "end_row": np.inf})
    _require(bool((subscribed["row"] < subscribed["end_row"]).all()))
    subscribed.loc[subscribed.duplicated(key, keep="last"), "until"] = np.inf
    return subscribed


def _look_up_subscriptions(
    deliveries: pd.DataFrame,
    subscribed: pd.DataFrame,
    published: pd.DataFrame,
    matching: dict[str, Truths],
) -> None:
    """Add what there is to say about the subscriptions that each delivery names."""
    first = subscribed.drop_duplicates(["client", "subscription"])
    known: dict[tuple[str, str], Any] = {
        (row.client, row.subscription): row
        for row in first[
            ["client", "subscription", "row", "end_row", "filter", "ordered"]
        ].itertuples()
    }
    # Those that name the same subscriptions of the same subscriber are looked up together.
    groups = deliveries.groupby(["subscriber", "subscriptions"], sort=False)
    content_numbers = published["content_number"].to_numpy()[deliveries["publication"]]
    row_numbers = deliveries.index.to_numpy()
    is_held = np.zeros(len(deliveries), np.bool_)
    asks_for_order = np.zeros(len(deliveries), np.bool_)
    fits = np.zeros(len(deliveries), np.bool_)
    for (subscriber, text), places in groups.indices.items():
        names = [(subscriber, name) for name in json.loads(text)]
        if not names:
            continue
        if not known.keys() >= set(names):
            asks_for_order[places] = True
            continue
        named = [known[name] for name in names]
        begin, end = max(one.row for one in named), min(one.end_row for one in named)
        held = (begin < row_numbers[places]) & (row_numbers[places] < end)
        is_held[places] = held
        asks_for_order[places] = ~held | any(one.ordered for one in named)
        numbers = content_numbers[places]
        is_published = ~np.isnan(numbers)
        fitting = is_published.copy()
        for one in named:
            fitting[is_published] &= matching[one.filter][numbers[is_published].astype(np.int64)]
        fits[places] = fitting
    deliveries["is_held"] = is_held
    deliveries["asks_for_order"] = asks_for_order
    deliveries["fits"] = fits


# And back to records


def _record(row: dict[str, Any]) -> Record:
    """Return the record that a row was read from, as far as verdicts depend on it."""
    kind = row["kind"]
    fields = KINDS.get(kind, ())
    record = {field.name: row[field.name] for field in (*HEADER, *fields) if field.name in row}
    for name, read in _READERS.items():
        if name in record:
            record[name] = read(record[name])
    return record


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "subscriptions": json.loads,
    "content": json.loads,
    "ordered": bool,
    # Columns with gaps are of floating point numbers.
    "seq": int,
    "crc": int,
    "position": int,
}
"""How some fields become again what they were."""
