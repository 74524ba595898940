"""The smallest histories that break a guarantee, each with its repaired twin.

A case is one function that tells a story twice: once as it went wrong, and once as it should have
gone. What differs between the two is all that there is to the defect.
"""

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from plait.faulttol.guarantees import PATIENCE_S, Excuse
from plait.faulttol.history import MemoryHistory, Record


class Story:
    """Tells a run event by event, one second apart, and counts what histories count.

    Whatever is counted can be given instead, to get it wrong.
    """

    def __init__(self, run: str = "run") -> None:
        self.run = run
        self.now = 0.0
        self.records: list[Record] = []
        self._histories: dict[tuple[str, int], MemoryHistory] = {}
        self._incarnation: dict[str, int] = {}
        self._seq: dict[tuple[str, int], int] = {}
        self._position: dict[str, int] = {}
        self._subscriptions: dict[str, dict[str, Any]] = {}

    def write(self, node: str, kind: str, **fields: Any) -> Record:
        self.now += 1.0
        key = node, self.incarnation_of(node)
        if key not in self._histories:
            self._histories[key] = MemoryHistory(self.run, *key, self.records)
        self._histories[key].write(self.now, kind, **fields)
        return self.records[-1]

    def at_the_same_time(self) -> "Story":
        """Let the next event happen at the time of the last."""
        self.now -= 1.0
        return self

    def next_incarnation(self, node: str) -> None:
        self._incarnation[node] = self.incarnation_of(node) + 1

    def incarnation_of(self, node: str) -> int:
        return self._incarnation.get(node, 1)

    def advertise(self, client: str) -> None:
        fields = {"client": client, "advertisement": f"{client}/1", "filter": "price > 0"}
        self.write(client, "advertised", **fields)

    def subscribe(
        self, client: str, where: str = "price > 0", *, number: int = 1, ordered: bool = True
    ) -> None:
        subscription = f"{client}/{number}"
        fields = {"subscription": subscription, "filter": where, "ordered": ordered}
        self._subscriptions[subscription] = fields
        self.write(client, "subscribed", client=client, **fields)

    def unsubscribe(self, client: str, *, number: int = 1) -> None:
        fields = self._subscriptions[f"{client}/{number}"]
        self.write(client, "unsubscribed", client=client, **fields)

    def publish(
        self,
        publisher: str,
        *,
        seq: int | None = None,
        price: float = 10,
        ordered: bool = True,
        crc: int = 0,
    ) -> None:
        life = publisher, self.incarnation_of(publisher)
        seq = self._seq.get(life, 0) + 1 if seq is None else seq
        self._seq[life] = seq
        named = self._named(publisher, seq)
        self.write(
            publisher, "published", **named, content={"price": price}, ordered=ordered, crc=crc
        )

    def _named(self, publisher: str, seq: int, life: int | None = None) -> dict[str, Any]:
        """Name a publication, of the present life of its publisher unless another one is given."""
        incarnation = self.incarnation_of(publisher) if life is None else life
        return {"publisher": publisher, "publisher_incarnation": incarnation, "seq": seq}

    def confirm(self, publisher: str, seq: int = 1, *, life: int | None = None) -> None:
        self.write(publisher, "confirmed", **self._named(publisher, seq, life))

    def deliver(
        self,
        subscriber: str,
        publisher: str,
        seq: int = 1,
        *,
        life: int | None = None,
        position: int | None = None,
        subscriptions: Iterable[str] | None = None,
        crc: int = 0,
    ) -> None:
        position = self._position.get(subscriber, 0) + 1 if position is None else position
        self._position[subscriber] = position
        asking = [f"{subscriber}/1"] if subscriptions is None else list(subscriptions)
        self.write(
            subscriber,
            "delivered",
            subscriber=subscriber,
            **self._named(publisher, seq, life),
            position=position,
            subscriptions=asking,
            crc=crc,
        )

    def skip(
        self, node: str, publisher: str, seq: int = 1, *, life: int | None = None, **fields: str
    ) -> None:
        named = self._named(publisher, seq, life)
        self.write(node, "skipped", **named, reason="too late", **fields)

    def give_up(self, client: str, *, away_s: float = 1.5 * PATIENCE_S) -> None:
        """Let a broker give up a client that was away for so long."""
        self.broker("b1", "suspected", client, millis=1000 * away_s)

    def launcher(self, kind: str, about: str) -> None:
        self.write("launcher", kind, about=about)

    def broker(self, broker: str, kind: str, about: str, *, millis: float = 0.5) -> None:
        self.write(broker, kind, about=about, members=[], millis=millis)


Tale = Callable[[Story, bool], None]


@attrs.frozen
class Case:
    """A tale with a defect or an excuse in it, and its twin without."""

    tell: Tale

    @property
    def name(self) -> str:
        return self.tell.__name__

    def history(self, is_special: bool) -> list[Record]:
        story = Story()
        self.tell(story, is_special)
        return story.records


BROKEN: list[tuple[str, Case]] = []
"""Guarantee, and a case that breaks it and no other; all of them under total order."""

EXCUSED: list[tuple[Excuse, Case]] = []
"""Excuse, and a case of one missing publication that has it, and whose twin has none."""


def breaks(guarantee: str) -> Callable[[Tale], Tale]:
    def register(tell: Tale) -> Tale:
        BROKEN.append((guarantee, Case(tell)))
        return tell

    return register


def excuses(excuse: Excuse) -> Callable[[Tale], Tale]:
    def register(tell: Tale) -> Tale:
        EXCUSED.append((excuse, Case(tell)))
        return tell

    return register


# The history itself


@breaks("record")
def record_missing_in_a_file(story: Story, is_broken: bool) -> None:
    story.publish("p")
    story.confirm("p")
    story.publish("p")
    if is_broken:
        del story.records[1]


@breaks("record")
def record_repeated_in_a_file(story: Story, is_broken: bool) -> None:
    story.publish("p")
    story.confirm("p")
    if is_broken:
        story.records.append(story.records[-1])


@breaks("record")
def position_twice(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.publish("p")
    story.deliver("s", "p", 1)
    story.deliver("s", "p", 2, position=1 if is_broken else None)


@breaks("record")
def position_missing(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.deliver("s", "p", position=2 if is_broken else None)


@breaks("record")
def positions_begin_again_with_an_incarnation(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.publish("p")
    story.deliver("s", "p", 1)
    story.next_incarnation("s")
    story.deliver("s", "p", 2, position=1 if is_broken else None)


@breaks("record")
def sequence_number_missing(story: Story, is_broken: bool) -> None:
    story.publish("p")
    story.publish("p", seq=3 if is_broken else None)


@breaks("record")
def sequence_numbers_go_on_in_the_next_incarnation(story: Story, is_broken: bool) -> None:
    story.publish("p")
    story.next_incarnation("p")
    story.publish("p", seq=2 if is_broken else None)


@breaks("record")
def record_of_another_run(story: Story, is_broken: bool) -> None:
    story.publish("p")
    story.publish("p")
    if is_broken:
        story.records[-1]["run"] = "another"


@breaks("record")
def filter_that_cannot_be_read(story: Story, is_broken: bool) -> None:
    story.subscribe("s", "price >" if is_broken else "price > 0")
    story.publish("p")
    story.deliver("s", "p")


# Each delivery by itself


@breaks("duplicate")
def delivered_twice(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.deliver("s", "p")
    if is_broken:
        story.deliver("s", "p")


@breaks("duplicate")
def delivered_once_in_each_incarnation(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.deliver("s", "p")
    story.next_incarnation("s")
    story.subscribe("s")
    if is_broken:
        story.deliver("s", "p")


@breaks("duplicate")
def delivered_again_when_its_publisher_had_come_back(story: Story, is_broken: bool) -> None:
    """In the twin it is another publication, of the same number."""
    story.subscribe("s")
    story.publish("p")
    story.deliver("s", "p")
    story.next_incarnation("p")
    story.publish("p")
    story.deliver("s", "p", life=2)
    if is_broken:
        story.deliver("s", "p", life=1)


@breaks("duplicate")
def delivered_once_for_each_subscription(story: Story, is_broken: bool) -> None:
    story.subscribe("s", number=1)
    story.subscribe("s", number=2)
    story.publish("p")
    if is_broken:
        story.deliver("s", "p", subscriptions=["s/1"])
        story.deliver("s", "p", subscriptions=["s/2"])
    else:
        story.deliver("s", "p", subscriptions=["s/1", "s/2"])


@breaks("spurious")
def never_published(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    if not is_broken:
        story.publish("p")
    story.deliver("s", "p")


@breaks("spurious")
def never_published_in_that_life(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.publish("p")
    story.next_incarnation("p")
    story.publish("p")
    for seq in (1, 2):
        story.deliver("s", "p", seq, life=1)
    story.deliver("s", "p", 1, life=2)
    if is_broken:
        story.deliver("s", "p", 2, life=2)


@breaks("spurious")
def delivered_for_no_subscription(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.deliver("s", "p", subscriptions=[] if is_broken else None)


@breaks("spurious")
def subscription_of_somebody_else(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.subscribe("t")
    story.publish("p")
    story.deliver("s", "p", subscriptions=["t/1" if is_broken else "s/1"])
    story.deliver("t", "p")


@breaks("spurious")
def delivered_before_the_subscription_was_confirmed(story: Story, is_broken: bool) -> None:
    story.publish("p")
    if is_broken:
        story.deliver("s", "p")
        story.subscribe("s")
    else:
        story.subscribe("s")
        story.deliver("s", "p")


@breaks("spurious")
def delivered_after_the_subscription_was_withdrawn(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if is_broken:
        story.unsubscribe("s")
        story.deliver("s", "p")
    else:
        story.deliver("s", "p")
        story.unsubscribe("s")


@breaks("spurious")
def content_that_does_not_match(story: Story, is_broken: bool) -> None:
    story.subscribe("s", "price > 100")
    story.publish("p", price=100 if is_broken else 101)
    story.deliver("s", "p")


@breaks("spurious")
def one_of_two_subscriptions_does_not_match(story: Story, is_broken: bool) -> None:
    story.subscribe("s", "price > 0", number=1)
    story.subscribe("s", "price > 100", number=2)
    story.publish("p", price=10)
    story.deliver("s", "p", subscriptions=["s/1", "s/2"] if is_broken else ["s/1"])


@breaks("altered")
def body_altered(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p", crc=77)
    story.deliver("s", "p", crc=78 if is_broken else 77)


@breaks("altered")
def body_of_another_life(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p", crc=77)
    story.next_incarnation("p")
    story.publish("p", crc=78)
    story.deliver("s", "p", life=1, crc=77)
    story.deliver("s", "p", life=2, crc=77 if is_broken else 78)


@breaks("altered")
def body_lost(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p", crc=77)
    story.deliver("s", "p", crc=0 if is_broken else 77)


# What a subscriber was owed


@breaks("loss")
def dropped(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")
    story.confirm("p")


@breaks("loss")
def dropped_and_never_confirmed(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")


@breaks("loss")
def dropped_for_one_of_two_subscribers(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.subscribe("t")
    story.publish("p")
    story.deliver("s", "p")
    if not is_broken:
        story.deliver("t", "p")


@breaks("loss")
def dropped_though_still_asked_for_by_another_subscription(story: Story, is_broken: bool) -> None:
    story.subscribe("s", number=1)
    story.subscribe("s", number=2)
    story.publish("p")
    story.unsubscribe("s", number=1)
    if not is_broken:
        story.deliver("s", "p", subscriptions=["s/2"])


@breaks("loss")
def issued_after_the_confirmation_of_the_subscription(story: Story, is_broken: bool) -> None:
    """In the twin the subscription comes too late for the publication."""
    if is_broken:
        story.subscribe("s")
    story.publish("p")
    story.confirm("p")
    if not is_broken:
        story.subscribe("s")


@breaks("loss")
def issued_before_the_subscription_was_withdrawn(story: Story, is_broken: bool) -> None:
    """In the twin the publication comes too late for the subscription."""
    story.subscribe("s")
    if not is_broken:
        story.unsubscribe("s")
    story.publish("p")
    story.confirm("p")
    if is_broken:
        story.unsubscribe("s")


@breaks("loss")
def dropped_in_the_second_life_of_its_publisher(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.deliver("s", "p")
    story.confirm("p")
    story.next_incarnation("p")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")
    story.confirm("p")


@breaks("loss")
def dropped_in_the_first_life_of_its_publisher(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")
    story.confirm("p")
    story.next_incarnation("p")
    story.publish("p")
    story.deliver("s", "p")
    story.confirm("p")


@breaks("loss")
def unordered_publication_dropped(story: Story, is_broken: bool) -> None:
    story.subscribe("s", ordered=False)
    story.publish("p", ordered=False)
    if not is_broken:
        story.deliver("s", "p")


@breaks("loss")
def dropped_for_a_subscriber_that_came_back(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.launcher("crashed", "s")
    story.launcher("restarted", "s")
    story.next_incarnation("s")
    story.subscribe("s")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")


@breaks("loss")
def skipped_for_a_client_that_never_was_away(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if is_broken:
        story.skip("b1", "p", subscriber="s")
    else:
        story.deliver("s", "p")


@breaks("loss")
def given_up_sooner_than_promised(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if is_broken:
        story.give_up("s", away_s=0.9 * PATIENCE_S)
        story.skip("b1", "p", subscriber="s")
        story.broker("b1", "joined", "s", millis=900 * PATIENCE_S)
    else:
        story.deliver("s", "p")


@breaks("loss")
def frozen_for_less_than_the_patience(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.launcher("frozen", "s")
    if is_broken:
        story.give_up("s", away_s=0.9 * PATIENCE_S)
    story.launcher("unfrozen", "s")
    if not is_broken:
        story.deliver("s", "p")


@breaks("loss")
def confirmed_before_the_client_was_given_up(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")
    story.confirm("p")
    story.give_up("s", away_s=100.0)
    story.skip("b1", "p", subscriber="s")


@breaks("loss")
def dropped_after_the_client_was_back(story: Story, is_broken: bool) -> None:
    """By a subscription that it had before it was away, and has still."""
    story.subscribe("s")
    story.give_up("s")
    story.broker("b1", "joined", "s")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")


@breaks("loss")
def failure_of_one_life_of_a_publisher_is_none_of_the_other(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.launcher("crashed", "p")
    story.next_incarnation("p")
    story.broker("b1", "joined", "p")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")


@breaks("loss")
def end_of_the_run_excuses_nothing(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_broken:
        story.deliver("s", "p")
    for node in ("p", "b1", "b2", "s"):
        story.launcher("stopped", node)
        story.broker("b3", "suspected", node)


# Order


@breaks("fifo")
def swapped_of_one_publisher(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.publish("p")
    for seq in (2, 1) if is_broken else (1, 2):
        story.deliver("s", "p", seq)


@breaks("fifo")
def swapped_far_apart(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    for publisher in "pqqp":
        story.publish(publisher)
    first, last = (2, 1) if is_broken else (1, 2)
    story.deliver("s", "p", first)
    story.deliver("s", "q", 1)
    story.deliver("s", "q", 2)
    story.deliver("s", "p", last)


@breaks("fifo")
def second_life_before_the_first(story: Story, is_broken: bool) -> None:
    """Though its number is the lower one."""
    story.subscribe("s")
    story.publish("p")
    story.publish("p")
    story.deliver("s", "p", 1)
    story.next_incarnation("p")
    story.publish("p")
    for life, seq in ((2, 1), (1, 2)) if is_broken else ((1, 2), (2, 1)):
        story.deliver("s", "p", seq, life=life)


@breaks("pairwise")
def swapped_lives_that_are_told_apart(story: Story, is_broken: bool) -> None:
    """Each publisher's order is kept; what they disagree about has the same name but the life."""
    story.subscribe("s")
    story.subscribe("t")
    story.publish("p")
    story.next_incarnation("p")
    story.publish("q")
    story.publish("p")
    for subscriber, order in (("s", "1q2"), ("t", "12q" if is_broken else "1q2")):
        for what in order:
            if what == "q":
                story.deliver(subscriber, "q")
            else:
                story.deliver(subscriber, "p", life=int(what))


@breaks("pairwise")
def swapped_across_publishers(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.subscribe("t")
    story.publish("p")
    story.publish("q")
    story.deliver("s", "p")
    story.deliver("s", "q")
    for publisher in "qp" if is_broken else "pq":
        story.deliver("t", publisher)


@breaks("pairwise")
def swapped_across_publishers_far_apart(story: Story, is_broken: bool) -> None:
    """What lies between them differs from subscriber to subscriber."""
    story.subscribe("s", "price IN (1, 2)")
    story.subscribe("t", "price IN (1, 3)")
    for publisher, price in (("p", 1), ("q", 1), ("x", 2), ("y", 3)):
        story.publish(publisher, price=price)
    for publisher in "pxq":
        story.deliver("s", publisher)
    for publisher in "qyp" if is_broken else "pyq":
        story.deliver("t", publisher)


@breaks("pairwise")
def one_of_three_subscribers_disagrees_about_what_two_got(story: Story, is_broken: bool) -> None:
    story.subscribe("s", "price IN (1, 2)")
    story.subscribe("t", "price IN (1, 2)")
    story.subscribe("u", "price = 1")
    story.publish("p", price=1)
    story.publish("q", price=2)
    story.deliver("u", "p")
    story.deliver("s", "p")
    story.deliver("s", "q")
    for publisher in "qp" if is_broken else "pq":
        story.deliver("t", publisher)


@breaks("pairwise")
def swapped_across_incarnations(story: Story, is_broken: bool) -> None:
    story.subscribe("s")
    story.subscribe("t")
    story.publish("p")
    story.publish("q")
    story.deliver("s", "p")
    story.deliver("s", "q")
    first, second = "qp" if is_broken else "pq"
    story.deliver("t", first)
    story.next_incarnation("t")
    story.deliver("t", second)


# Faults that excuse a missing publication


@excuses(Excuse.SIMULTANEOUS)
def issued_when_the_subscription_was_confirmed(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    if is_excused:
        story.at_the_same_time()
    story.publish("p")


@excuses(Excuse.SIMULTANEOUS)
def issued_when_the_subscription_was_withdrawn(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if is_excused:
        story.at_the_same_time().unsubscribe("s")


@excuses(Excuse.SKIPPED)
def skipped_for_this_subscriber(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if is_excused:
        story.give_up("s")
    story.skip("b1", "p", subscriber="s")


@excuses(Excuse.SKIPPED)
def skipped_for_a_subscriber_that_came_back_later(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.skip("b1", "p", subscriber="s")
    story.broker("b1", "joined", "s", millis=(1100 if is_excused else 900) * PATIENCE_S)


@excuses(Excuse.SKIPPED)
def skipped_for_all_behind_a_broker(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.skip("b1", "p", seq=1 if is_excused else 2)


@excuses(Excuse.SUBSCRIBER_FAILED)
def subscriber_crashed(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_excused:
        story.confirm("p")
    story.launcher("crashed", "s")
    if is_excused:
        story.confirm("p")


@excuses(Excuse.SUBSCRIBER_FAILED)
def subscriber_crashed_and_came_back(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if is_excused:
        story.launcher("crashed", "s")
        story.launcher("restarted", "s")
        story.next_incarnation("s")
        story.subscribe("s")


@excuses(Excuse.SUBSCRIBER_FAILED)
def subscriber_frozen_for_good(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.launcher("frozen", "s")
    if not is_excused:
        story.launcher("unfrozen", "s")


@excuses(Excuse.SUBSCRIBER_FAILED)
def subscriber_suspected_while_frozen(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.launcher("frozen", "s")
    if is_excused:
        story.give_up("s")
    story.launcher("unfrozen", "s")


@excuses(Excuse.SUBSCRIBER_FAILED)
def subscriber_given_up_by_its_broker(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if is_excused:
        story.give_up("s")
    else:
        story.broker("b1", "joined", "s")


@excuses(Excuse.SUBSCRIBER_FAILED)
def subscriber_is_back_and_has_not_subscribed_again(story: Story, is_excused: bool) -> None:
    """What it had asked for ended with its process, and not with its session."""
    story.subscribe("s")
    if is_excused:
        story.launcher("crashed", "s")
        story.launcher("restarted", "s")
        story.next_incarnation("s")
    else:
        story.give_up("s")
    story.broker("b1", "joined", "s")
    story.publish("p")


@excuses(Excuse.SUBSCRIBER_FAILED)
def subscriber_began_another_life(story: Story, is_excused: bool) -> None:
    """Nobody has recorded what became of the first one."""
    story.subscribe("s")
    story.publish("p")
    if not is_excused:
        story.confirm("p")
    story.next_incarnation("s")
    story.subscribe("s", number=2)
    if is_excused:
        story.confirm("p")


@excuses(Excuse.WITHDRAWN)
def withdrawn_before_it_was_confirmed(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_excused:
        story.confirm("p")
    story.unsubscribe("s")
    if is_excused:
        story.confirm("p")


@excuses(Excuse.WITHDRAWN)
def withdrawn_when_it_was_confirmed(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.confirm("p")
    if is_excused:
        story.at_the_same_time()
    story.unsubscribe("s")


@excuses(Excuse.PUBLISHER_FAILED)
def publisher_crashed(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_excused:
        story.confirm("p")
    story.launcher("crashed", "p")


@excuses(Excuse.PUBLISHER_FAILED)
def publisher_crashed_when_it_published(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.launcher("crashed", "p")
    if not is_excused:
        story.launcher("restarted", "p")
        story.next_incarnation("p")
        story.broker("b1", "joined", "p")
    else:
        story.at_the_same_time()
    story.publish("p")


@excuses(Excuse.PUBLISHER_FAILED)
def publisher_began_another_life(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if is_excused:
        story.next_incarnation("p")
    story.publish("p", price=0)


@excuses(Excuse.PUBLISHER_FAILED)
def publisher_was_away(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.give_up("p", away_s=(1.1 if is_excused else 0.9) * PATIENCE_S)


@excuses(Excuse.PUBLISHER_FAILED)
def publisher_stopped_before_the_end(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.launcher("stopped", "p")
    if is_excused:
        story.publish("q", price=0)


@excuses(Excuse.TOO_MANY_FAILURES)
def two_brokers_at_a_time(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.launcher("crashed", "b1")
    if not is_excused:
        story.broker("b1", "operational", "b1")
    story.launcher("crashed", "b2")


@excuses(Excuse.TOO_MANY_FAILURES)
def two_brokers_still_failed_when_it_was_issued(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.launcher("crashed", "b1")
    story.launcher("crashed", "b2")
    if not is_excused:
        story.broker("b2", "operational", "b2")
    story.publish("p")


@excuses(Excuse.TOO_MANY_FAILURES)
def two_brokers_before_it_was_confirmed(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    if not is_excused:
        story.confirm("p")
    story.launcher("crashed", "b1")
    story.launcher("crashed", "b2")
    if is_excused:
        story.confirm("p")


@excuses(Excuse.TOO_MANY_FAILURES)
def restarted_is_not_yet_operational(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.launcher("crashed", "b1")
    story.launcher("restarted", "b1")
    story.broker("b1", "recovering" if is_excused else "operational", "b1")
    story.broker("b2", "suspected", "b3")


@excuses(Excuse.TOO_MANY_FAILURES)
def cut_off(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.broker("b1", "joined", "b1")
    story.broker("b1", "recovering", "b1")
    if not is_excused:
        story.broker("b1", "operational", "b1")
    story.publish("p")


@excuses(Excuse.TOO_MANY_FAILURES)
def who_is_started_again_was_not_cut_off(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.broker("b1", "joined", "b1")
    if not is_excused:
        story.next_incarnation("b1")
    story.broker("b1", "recovering", "b1")
    story.publish("p")
    story.broker("b1", "operational", "b1")


@excuses(Excuse.TOO_MANY_FAILURES)
def without_a_session_since_too_many_had_failed(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.launcher("crashed", "b1")
    if is_excused:
        story.launcher("crashed", "b2")
        story.broker("b2", "operational", "b2")
    story.broker("b1", "operational", "b1")
    story.publish("p")
    story.confirm("p")
    story.broker("b1", "joined", "s", millis=950 * PATIENCE_S)


@excuses(Excuse.TOO_MANY_FAILURES)
def a_client_is_no_broker(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.advertise("q")
    story.publish("p")
    story.launcher("crashed", "b1")
    story.launcher("crashed", "b2" if is_excused else "q")


@excuses(Excuse.TOO_MANY_FAILURES)
def a_slow_broker_has_not_failed(story: Story, is_excused: bool) -> None:
    story.subscribe("s")
    story.publish("p")
    story.launcher("crashed", "b1")
    story.launcher("frozen", "b2")
    if is_excused:
        story.broker("b3", "suspected", "b2")
    story.launcher("unfrozen", "b2")
