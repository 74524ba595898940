"""The two machines of a client: every pair of a state and an event, legal or not."""

from itertools import product

import pytest

from plait.broker.client.states import (
    CONTACTS,
    IN_BATCHES,
    LEGAL,
    SESSIONS,
    ClientState,
    Contact,
    ContactEvent,
    Session,
    SessionEvent,
    after,
    seen,
)
from plait.broker.errors import LocalProtocolError
from plait.broker.messages import Goodbye, Heartbeat


@pytest.mark.parametrize(("contact", "event"), list(product(Contact, ContactEvent)))
def test_what_cannot_happen_to_a_connection_is_refused(
    contact: Contact, event: ContactEvent
) -> None:
    if (contact, event) in CONTACTS:
        assert after(CONTACTS, contact, event) in Contact
    else:
        with pytest.raises(LocalProtocolError, match="cannot happen to what is"):
            after(CONTACTS, contact, event)


@pytest.mark.parametrize(("session", "event"), list(product(Session, SessionEvent)))
def test_what_cannot_happen_to_a_session_is_refused(session: Session, event: SessionEvent) -> None:
    if (session, event) in SESSIONS:
        assert after(SESSIONS, session, event) in Session
    else:
        with pytest.raises(LocalProtocolError, match="cannot happen to what is"):
            after(SESSIONS, session, event)


def test_every_connection_can_be_lost_and_be_had_again() -> None:
    for contact in (Contact.GREETING, Contact.ATTACHING, Contact.CONNECTED):
        assert after(CONTACTS, contact, ContactEvent.LOST) is Contact.APART
    assert after(CONTACTS, Contact.APART, ContactEvent.DIALLED) is Contact.DIALLING


def test_every_session_can_end_and_none_goes_on_then() -> None:
    for session in set(Session) - {Session.OVER}:
        assert after(SESSIONS, session, SessionEvent.ENDED) is Session.OVER
    assert not [event for state, event in SESSIONS if state is Session.OVER]


def test_all_states_can_be_reached() -> None:
    assert {Contact.APART, *CONTACTS.values()} == set(Contact)
    assert {Session.NONE, *SESSIONS.values()} == set(Session)
    assert {seen(*pair) for pair in product(Contact, Session)} == set(ClientState)


def test_only_who_is_connected_is_ready() -> None:
    ready = [pair for pair in product(Contact, Session) if seen(*pair) is ClientState.READY]

    assert ready == [(Contact.CONNECTED, Session.STANDING)]


def test_batches_are_taken_from_the_broker_only() -> None:
    for contact, legal in LEGAL.items():
        assert (legal >= IN_BATCHES) == (contact is Contact.CONNECTED)
        assert not legal or legal >= {Heartbeat, Goodbye}
