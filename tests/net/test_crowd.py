"""Whom to cut off: whoever does most of the harm."""

from plait.broker.inputs import LinkId
from plait.broker.net.crowd import hoarders, one_too_many


def links(*amounts: int) -> dict[LinkId, int]:
    return {LinkId(number): amount for number, amount in enumerate(amounts, 1)}


def test_of_too_many_the_oldest_goes_of_the_host_that_has_most() -> None:
    hosts = dict(enumerate(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.2"], 1))

    assert one_too_many({LinkId(link): host for link, host in hosts.items()}) == 2


def test_who_has_most_is_cut_off_until_the_rest_can_be_borne() -> None:
    amounts = links(10, 50, 30, 40)

    assert list(hoarders(amounts, 130, lambda _: False)) == []
    assert list(hoarders(amounts, 129, lambda _: False)) == [2]
    assert list(hoarders(amounts, 79, lambda _: False)) == [2, 4]


def test_some_are_never_cut_off_and_count_all_the_same() -> None:
    assert list(hoarders(links(10, 50, 30, 40), 100, lambda link: link == 2)) == [4]
    assert list(hoarders(links(50), 10, lambda _: True)) == []
