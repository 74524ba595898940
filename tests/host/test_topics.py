"""Order among topics, from client to client: what is told with a delivery, and what crashes do."""

from typing import Any

import pytest

from plait.broker.client.patience import Patience
from plait.broker.errors import NoTopicError
from plait.broker.holding import describe_held
from plait.faulttol.stamps import verify_order
from tests.host.worlds import Client, Lively
from tests.rules import rule_of

TOPICS = ("topic IN ('ibm', 'sun', 'hp')", "topic IN ('ibm', 'sun')", "topic = 'sun'")


def overlay(ordering: str = "tno") -> Lively:
    overlay = Lively(**rule_of(ordering))
    overlay.brokers("root", left="root", right="root", far="left")
    return overlay


def crowd(overlay: Lively, **settings: Any) -> list[Client]:
    """Three that publish and subscribe, and one that has subscribed to everything."""
    clients = [
        overlay.client(f"c{n}", place, "root")
        for n, place in enumerate(("far", "right", "left", "right"))
    ]
    for client, wanted in zip(clients, (*TOPICS, TOPICS[0]), strict=True):
        client.subscribes(wanted, **settings)
        client.advertises("topic IS NOT NULL")
    overlay.passes(0.5)
    return clients


def talk(overlay: Lively, clients: list[Client], rounds: int) -> None:
    for n in range(rounds):
        for client in clients:
            client.publishes(topic=("ibm", "sun", "hp")[n % 3], n=n)
            overlay.passes(0.003)
    overlay.passes(2)


@pytest.mark.parametrize("ordering", ["tno", "tno@root", "tno@hash"])
def test_deliveries_say_where_they_belong_and_that_is_where_they_come(ordering: str) -> None:
    world = overlay(ordering)
    clients = crowd(world)

    talk(world, clients, 12)

    everything = clients[0].deliveries
    assert len(everything) == 48
    assert all(delivery.in_order and delivery.stamp is not None for delivery in everything)
    of_ibm = [d.stamp.number for d in everything if d.stamp and d.content["topic"] == "ibm"]
    assert of_ibm == list(range(1, 17))
    assert clients[0].received == clients[3].received
    assert world.troubles() == []
    report = verify_order(world.world.records())
    assert report.violations == ()
    assert (report.stamped, report.unnumbered, report.topics) == (48 + 32 + 16 + 48, 0, 3)


@pytest.mark.parametrize("ordering", ["tno", "tno@hash"])
@pytest.mark.parametrize("lost", ["left", "root", "right"])
def test_a_manager_that_is_lost_numbers_on_where_it_stopped(lost: str, ordering: str) -> None:
    world = overlay(ordering)
    clients = crowd(world)
    talk(world, clients, 3)

    for n in range(6):
        for client in clients:
            client.publishes(topic=("ibm", "sun", "hp")[n % 3], n=n)
            world.passes(0.003)
        if n == 2:
            world.crashes(lost)
    world.passes(20)
    talk(world, clients, 3)

    assert len(clients[0].deliveries) == 48
    assert clients[0].received == clients[3].received
    assert world.troubles("tno") == []
    report = verify_order(world.world.records())
    assert report.violations == ()
    assert report.unnumbered == 0


def test_who_subscribes_elsewhere_brings_the_manager_along() -> None:
    """And gets everything that is published once the subscription is confirmed."""
    world = overlay()
    near, publisher = world.client("near", "far"), world.client("publisher", "far")
    near.subscribes("topic = 'ibm'")
    publisher.advertises("topic = 'ibm'")
    world.passes(0.5)
    publisher.publishes(topic="ibm")
    world.passes(0.5)
    late = world.client("late", "right")
    late.subscribes("topic = 'ibm'")
    world.passes(0.5)
    for _ in range(3):
        publisher.publishes(topic="ibm")
    world.passes(0.5)

    assert [d.stamp.number for d in near.deliveries if d.stamp] == [1, 2, 3, 4]
    assert [d.stamp.number for d in late.deliveries if d.stamp] == [2, 3, 4]
    assert world.troubles("tno") == []


def test_what_has_no_topic_is_not_published() -> None:
    world = overlay()
    (client, *_) = crowd(world)

    with pytest.raises(NoTopicError) as refused:
        client.publishes(price=5)
    assert str(refused.value) == (
        "under ordering tno a publication has an attribute 'topic', a string of at most 255 "
        "characters; None found"
    )


def test_what_needs_no_order_needs_no_topic_either() -> None:
    world = overlay()
    client = world.client("c", "far")
    client.advertises("TRUE")
    world.passes(0.5)

    client.publishes(ordered=False, price=5)
    world.passes(0.5)

    assert world.troubles("tno") == []


def test_a_subscription_without_topics_is_refused_with_a_sentence() -> None:
    world = overlay()
    client = world.client("c", "far")

    client.subscribes("price > 5")
    world.passes(0.5)

    (refusal,) = client.refusals
    assert "names its topics" in refusal.reason


def test_who_does_not_wait_is_told_what_came_out_of_order() -> None:
    """A publication from nearby overtakes one from afar that was stamped before it."""
    world = overlay("tno-tagged")
    clients = crowd(world)
    for n in range(30):
        for client in clients:
            client.publishes(topic=("ibm", "sun", "hp")[n % 3], n=n)
        world.passes(0.004)
    world.passes(2)

    assert [len(client.deliveries) for client in clients] == [120, 80, 40, 120]
    tagged = [d for client in clients for d in client.deliveries if not d.in_order]
    assert 0 < len(tagged) < 300
    assert world.troubles("tno-tagged") == []
    assert world.troubles("tno") == []  # by what its stamps say, a history is judged alike
    assert verify_order(world.world.records()).violations == ()


def test_the_more_patience_the_less_is_out_of_order_and_nothing_is_lost() -> None:
    tagged = []
    for patience in (None, Patience(most=5), Patience(), Patience(seconds=0.01)):
        world = overlay("tno-tagged")
        clients = crowd(world, patience=patience)
        for n in range(30):
            for client in clients:
                client.publishes(topic=("ibm", "sun", "hp")[n % 3], n=n)
            world.passes(0.004)
        world.passes(3)

        assert [len(client.deliveries) for client in clients] == [120, 80, 40, 120]
        assert world.troubles("tno-tagged") == []
        tagged.append(sum(not d.in_order for client in clients for d in client.deliveries))

    none, few, many, impatient = tagged
    assert many == 0 < few <= none
    assert 0 < impatient <= none


def test_what_waits_is_delivered_before_a_client_leaves() -> None:
    world = overlay("tno-tagged")
    clients = crowd(world, patience=Patience(seconds=60))
    for client in clients:
        client.publishes(topic="ibm")
        client.publishes(topic="sun")
    world.passes(0.02)
    for client in clients:
        client.leaves()
    world.passes(5)

    assert world.violations("tno-tagged") == []


@pytest.mark.parametrize("lost", ["root", "left"])
def test_what_was_stamped_is_not_stamped_again_after_a_crash(lost: str) -> None:
    world = overlay("tno-tagged")
    clients = crowd(world)
    for n in range(12):
        for client in clients:
            client.publishes(topic=("ibm", "sun", "hp")[n % 3], n=n)
            world.passes(0.003)
        if n == 6:
            world.crashes(lost)
    world.passes(20)

    assert len(clients[0].deliveries) == len(clients[3].deliveries) == 48
    assert world.troubles("tno-tagged") == []
    assert verify_order(world.world.records()).violations == ()


def test_for_who_subscribes_everything_is_late_that_was_stamped_before() -> None:
    """It may name too little: nobody knew whose order it had to fit."""
    world = overlay("tno-tagged")
    clients = crowd(world)
    talk(world, clients, 6)
    late = world.client("late", "left")

    late.subscribes("topic IN ('ibm', 'hp', 'new')")
    world.passes(0.5)

    assert late.core._clock.numbers == {"ibm": 8, "hp": 8}
    assert late.deliveries == []


def test_what_waits_is_explained_by_its_topic() -> None:
    world = overlay()
    (near, _, _, _) = crowd(world)

    near.publishes(topic="ibm")
    world.passes(0.025)

    (held,) = world.host("far").describe_held()
    assert describe_held(held) == (
        "holds c0:1 until left, by way of which the manager of 'ibm' is, has settled it"
    )
    world.passes(0.5)
    assert world.host("far").describe_held() == []


def test_numbers_are_counted_where_managers_are() -> None:
    world = overlay()
    clients = crowd(world)
    talk(world, clients, 3)

    counted = {name: world.host(name).statistics() for name in ("root", "left", "right", "far")}

    assert {n: each.topics_managed for n, each in counted.items() if each.topics_managed} == {
        "root": 3
    }
    assert counted["root"].publications.numbered == 12
    assert all(each.publications.unnumbered == 0 for each in counted.values())
