"""Each guarantee as it is defined, with loops inside of loops: for small histories, and to compare.

Nothing is shared with `faulttol.guarantees` but the filters. In these histories no process fails;
clients are away, and come back in the same life or in another one.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from plait.faulttol.history import Record
from plait.routing.filter_text import parse_filter

Publication = tuple[str, int, int]
"""A publisher, which of its lives, and the number in that."""


AGES = 1e12
"""When what is never confirmed is confirmed: late, but before what never happens."""


def violations_in(records: Sequence[Record]) -> dict[str, int]:
    """Count the violations of each guarantee of total order that is broken."""
    counts = {
        "record": wrong_counts(records),
        "duplicate": duplicates(records),
        "spurious": sum(is_spurious(records, place) for place in places_of(records, "delivered")),
        "altered": altered(records),
        "loss": losses(records),
        "fifo": publisher_order(records),
        "pairwise": disagreeing_pairs(records),
    }
    return {guarantee: count for guarantee, count in counts.items() if count}


def places_of(records: Sequence[Record], kind: str) -> list[int]:
    return [place for place, record in enumerate(records) if record["kind"] == kind]


def of_kind(records: Sequence[Record], kind: str) -> list[Record]:
    return [record for record in records if record["kind"] == kind]


def named(record: Record) -> Publication:
    return record["publisher"], record["publisher_incarnation"], record["seq"]


def subscribers_of(records: Sequence[Record]) -> set[str]:
    clients = {record["client"] for record in of_kind(records, "subscribed")}
    return clients | {record["subscriber"] for record in of_kind(records, "delivered")}


def wrong_counts(records: Sequence[Record]) -> int:
    wrong = 0
    for place, record in enumerate(records):
        earlier = records[:place]
        alike = [one for one in earlier if one["kind"] == record["kind"]]
        same_life = [
            one
            for one in earlier
            if (one["node"], one["incarnation"]) == (record["node"], record["incarnation"])
        ]
        wrong += not continues("n", record, same_life)
        if record["kind"] == "published":
            same = [one for one in alike if named(one)[:2] == named(record)[:2]]
            wrong += not continues("seq", record, same)
        if record["kind"] == "delivered":
            same = [one for one in alike if one["subscriber"] == record["subscriber"]]
            wrong += not continues("position", record, same)
    return wrong


def continues(field: str, record: Record, earlier: Sequence[Record]) -> bool:
    highest: int = max((one[field] for one in earlier), default=0)
    return bool(record[field] == highest + 1)


def duplicates(records: Sequence[Record]) -> int:
    delivered = Counter((one["subscriber"], *named(one)) for one in of_kind(records, "delivered"))
    return sum(count - 1 for count in delivered.values())


def is_spurious(records: Sequence[Record], place: int) -> bool:
    delivery = records[place]
    published = [one for one in of_kind(records, "published") if named(one) == named(delivery)]
    if not published or not delivery["subscriptions"]:
        return True
    for name in delivery["subscriptions"]:
        state = [
            record
            for record in records[:place]
            if record["kind"] in ("subscribed", "unsubscribed")
            and (record["client"], record["subscription"]) == (delivery["subscriber"], name)
        ]
        if not state or state[-1]["kind"] == "unsubscribed":
            return True
        if not parse_filter(state[-1]["filter"]).matches(published[0]["content"]):
            return True
    return False


def altered(records: Sequence[Record]) -> int:
    return sum(
        delivery["crc"] != published["crc"]
        for delivery in of_kind(records, "delivered")
        for published in of_kind(records, "published")
        if named(delivery) == named(published)
    )


def losses(records: Sequence[Record]) -> int:
    delivered = {(one["subscriber"], *named(one)) for one in of_kind(records, "delivered")}
    return sum(
        is_owed(records, subscriber, published)
        for subscriber in subscribers_of(records)
        for published in of_kind(records, "published")
        if (subscriber, *named(published)) not in delivered
    )


def is_owed(records: Sequence[Record], subscriber: str, published: Record) -> bool:
    confirmed_at = min(
        (one["at"] for one in of_kind(records, "confirmed") if named(one) == named(published)),
        default=AGES,
    )
    for subscribed in of_kind(records, "subscribed"):
        withdrawn_at = min(
            (
                one["at"]
                for one in of_kind(records, "unsubscribed")
                if one["subscription"] == subscribed["subscription"]
            ),
            default=math.inf,
        )
        if (
            subscribed["client"] == subscriber
            and parse_filter(subscribed["filter"]).matches(published["content"])
            and subscribed["at"] < published["at"] < withdrawn_at
            and (confirmed_at < withdrawn_at or withdrawn_at == math.inf)
            and not was_away(records, subscribed, published["at"], confirmed_at)
            and confirmed_at < end_of_life(records, subscribed)
        ):
            return True
    return False


def was_away(records: Sequence[Record], subscribed: Record, since: float, until: float) -> bool:
    """Tell whether the client was away for more than 5 s, between two times, and had subscribed."""
    about = [one for one in records if one.get("about") == subscribed["client"]]
    for record in sorted(about, key=lambda one: one["at"]):
        gone_at, back_at = record["at"] - record.get("millis", 0) / 1000, record["at"]
        if record["kind"] == "suspected":
            gone_at = record["at"]
            returns = [
                one["at"] for one in about if one["kind"] == "joined" and one["at"] > record["at"]
            ]
            back_at = min(returns, default=math.inf)
        is_long = record["kind"] in ("suspected", "joined") and record["millis"] >= 5000
        is_then = is_long and gone_at <= until and back_at >= since
        if is_then and record["at"] >= subscribed["at"]:
            return True
    return False


def end_of_life(records: Sequence[Record], subscribed: Record) -> float:
    """Say when another life of the client had begun, or when it is never going to."""
    kinds = ("subscribed", "published", "advertised")
    later = [
        one["at"]
        for one in records
        if one["node"] == subscribed["client"]
        and one["incarnation"] > subscribed["incarnation"]
        and one["kind"] in kinds
    ]
    return min(later, default=2 * AGES)


def order_of(records: Sequence[Record], subscriber: str) -> list[Publication]:
    """Return what counts for order, in the order of the first deliveries."""
    unordered = {named(one) for one in of_kind(records, "published") if not one["ordered"]}
    order: list[Publication] = []
    seen = set()
    for place in places_of(records, "delivered"):
        delivery = records[place]
        if delivery["subscriber"] != subscriber or named(delivery) in seen:
            continue
        seen.add(named(delivery))
        names = delivery["subscriptions"]
        asking = [held_by(records[:place], subscriber, name) for name in names]
        asks_for_order = any(one is None or one["ordered"] for one in asking)
        if named(delivery) not in unordered and asks_for_order:
            order.append(named(delivery))
    return order


def held_by(records: Sequence[Record], client: str, subscription: str) -> Record | None:
    held = None
    for record in records:
        if record["kind"] == "subscribed" and subscription_of(record) == (client, subscription):
            held = record
        if record["kind"] == "unsubscribed" and subscription_of(record) == (client, subscription):
            held = None
    return held


def subscription_of(record: Record) -> tuple[str, str]:
    return record["client"], record["subscription"]


def publisher_order(records: Sequence[Record]) -> int:
    """Count deliveries that come after one that the same publisher published later."""
    late = 0
    for subscriber in subscribers_of(records):
        order = order_of(records, subscriber)
        for place, (publisher, *stamp) in enumerate(order):
            late += any(one == publisher and stamp < other for one, *other in order[:place])
    return late


def disagreeing_pairs(records: Sequence[Record]) -> int:
    orders = [order_of(records, subscriber) for subscriber in subscribers_of(records)]
    return sum(
        any(
            (one.index(p) < one.index(q)) != (other.index(p) < other.index(q))
            for p, q in combinations([p for p in one if p in other], 2)
        )
        for one, other in combinations(orders, 2)
    )
