"""Whom a client dials: who plays its broker, who is going to, or anybody at all.

A client keeps what hosts tell it (`Seating`), and doubts of its own. Whoever refuses a connection,
or is silent twice, is doubted, and the coordinator of what is lost then is asked instead. That one
knows better: it takes the broker up, or says where it is, and if it still is where it was, it is
asked there again. Nobody else hears of a client's doubts.
"""

from collections.abc import Collection, Sequence
from typing import Final

import attrs

from plait.broker.host.seats import Seats
from plait.broker.limits import Limits
from plait.broker.messages import Life, Seating, Welcome
from plait.routing.ids import NodeId

ENOUGH: Final = 2
"""Times that somebody is silent until he is doubted: a connection may have been lost silently."""


@attrs.frozen
class Target:
    """Whom to ask for what."""

    address: str
    broker: str
    """The broker that is wanted; empty if any will do."""
    life: Life | None = None
    """Who is expected there; None if nobody is."""


class Whereabouts:
    """Where the broker of one client is, as far as that knows."""

    def __init__(self, addresses: Sequence[str], limits: Limits) -> None:
        """Know nothing but these addresses."""
        self.broker: NodeId | None = None
        """Of the session."""
        self.addresses = tuple(addresses)
        self._seats = Seats(limits)
        self._turn = 0
        """Counts addresses that were asked in vain, where nobody in particular was expected."""
        self._here: tuple[Life, str] | None = None
        """Who has welcomed this client, and the address by which it had reached that."""
        self._strikes: dict[Life, int] = {}
        """How often each was silent since then."""
        self._asked: set[str] = set()
        """Addresses that were dialled since then."""
        self._is_sent_away = False
        """Whether somebody who was asked for the broker will not have this client."""
        self.target = self._next()

    # --- whom to dial -----------------------------------------------------------------------

    def aim(self) -> bool:
        """Choose whom to dial now; returns whether that has not been tried since the last welcome.

        Then there is no need for a pause.
        """
        self.target = self._next()
        is_new = self.target.address not in self._asked
        self._asked.add(self.target.address)
        return is_new

    @property
    def has_tried_all(self) -> bool:
        """Whether all the addresses have been asked in vain."""
        return self._turn >= len(self._anybody())

    def _next(self) -> Target:
        if self.broker is not None:
            life = self._player(self.broker)
            if life is not None and (address := self._address_of(life)):
                return Target(address, self.broker, life)
        wanted = "" if self._is_gone() else self.broker or ""
        anybody = self._anybody()
        return Target(anybody[self._turn % len(anybody)], wanted)

    def _anybody(self) -> list[str]:
        """The addresses that were given, and those where others are said to play something."""
        seats = (self._seats.seat_of(broker) for broker in self._seats.brokers())
        places = (self._seats.place_of(seat.host) for seat in seats if seat is not None)
        others = (place.address_for_clients for place in places if place is not None)
        return list(dict.fromkeys((*self.addresses, *others)))

    def _is_gone(self) -> bool:
        """Whether the broker of the session cannot be had any more."""
        seat = None if self.broker is None else self._seats.seat_of(self.broker)
        return self._is_sent_away or (seat is not None and seat.left > 0)

    def _player(self, broker: NodeId) -> Life | None:
        """Who plays a broker, or is going to; None if nobody is known who might."""
        if self._is_gone():
            return None
        doubted = {life for life, strikes in self._strikes.items() if strikes >= ENOUGH}
        seat = self._seats.seat_of(broker)
        if seat is None:  # nobody has told yet
            here = self._here[0] if self._here else None
            return None if here in doubted else here
        return self._player_as_told(broker, doubted)

    def _player_as_told(self, broker: NodeId, doubted: Collection[Life] = ()) -> Life | None:
        """Who plays it, or is going to, by what hosts have told."""
        seat = self._seats.seat_of(broker)
        if seat is None:
            return None
        region = self._seats.region_of(broker, doubted)
        if not region:
            return seat.life
        coordinator = self._seats.coordinator(region, doubted)
        return None if coordinator is None else self._seats.life_of(coordinator)

    def _address_of(self, life: Life) -> str:
        """By which it was reached, as it may be known to others by an address of their network."""
        if self._here is not None and self._here[0] == life:
            return self._here[1]
        place = self._seats.place_of(life.host)
        return "" if place is None else place.address_for_clients

    # --- what came of it --------------------------------------------------------------------

    def learn(self, seating: Seating) -> None:
        """Somebody tells who plays what and where, of those around the broker or of all."""
        self._seats.learn(seating)
        if seating.hosts:
            self._seats.forget_idle(but=[place.host for place in seating.hosts])

    def refused(self) -> None:
        """Nobody listens there: whoever was expected has ended."""
        self._strike(ENOUGH)

    def silent(self) -> None:
        """Nobody answers there, or says anything any more."""
        self._strike(1)

    def _strike(self, strikes: int) -> None:
        life = self.target.life
        if life is not None:
            self._strikes[life] = self._strikes.get(life, 0) + strikes
            return
        self._turn += 1
        if self._turn % len(self._anybody()) == 0:
            self._reconsider()

    def _reconsider(self) -> None:
        """Nobody else knows better: those that are doubted are asked once more."""
        self._strikes = dict.fromkeys(self._strikes, ENOUGH - 1)

    def told_elsewhere(self) -> None:
        """Who was asked has told what it knows: the broker is not there."""
        life = None if self.broker is None else self._player_as_told(self.broker)
        if life is None or life == self.target.life:  # it contradicts itself
            self._strike(ENOUGH)
            return
        if life in self._strikes:
            self._strikes[life] = ENOUGH - 1
        if self.target.life is None:
            self._turn += 1

    def sent_away(self) -> None:
        """Whoever was asked for the broker will not have this client: any other will do."""
        if self.target.broker:
            self._is_sent_away = True
        else:
            self._strike(ENOUGH)

    def welcomed(self, welcome: Welcome) -> None:
        """The one who was dialled plays the broker of the session from now on."""
        seat = self._seats.seat_of(welcome.node)
        life = Life(welcome.host, welcome.incarnation)
        if seat is not None and seat.term < welcome.term:
            self._seats.put(
                attrs.evolve(
                    seat,
                    term=welcome.term,
                    host=life.host,
                    incarnation=life.incarnation,
                    is_vacant=False,
                    taker="",
                )
            )
        self.broker = welcome.node
        self._here = (life, self.target.address)
        self.target = Target(self.target.address, welcome.node, life)
        self._strikes.clear()
        self._asked.clear()
        self._is_sent_away = False
