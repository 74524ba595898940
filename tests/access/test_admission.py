"""Being let in: every message at every stage is answered, or ends it with a reason."""

import contextlib

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.broker.access.admission import (
    Applicant,
    Certificate,
    Doorkeeper,
    Role,
    Roll,
    Token,
)
from plait.broker.access.errors import NotAdmittedError, TokenError
from plait.broker.access.scram import ITERATIONS_MIN, ScramClient, Verifier
from plait.broker.messages import (
    MESSAGE_TYPES,
    Admitted,
    Authenticate,
    Challenge,
    Goodbye,
    GoodbyeCode,
    Heartbeat,
    Mechanism,
    Message,
    StatusRequest,
)
from plait.broker.principals import Caller, Door, Principal, Proof

PENCIL = Verifier.of("pencil", salt=b"salt", iterations=ITERATIONS_MIN)
GOODBYE = Goodbye(code=GoodbyeCode.LEFT, reason="changed my mind")


@attrs.frozen
class Words:
    """Tokens that are just words."""

    def read_token(self, text: str, now_s: float) -> Token:
        if text != "carol's":
            raise TokenError("the token is signed with a key that is not accepted here")
        return Token("carol", 100)


ROLL = Roll(users={"bob": PENCIL}, tokens=Words(), operators=frozenset({"bob"}), secret=b"s")
ALICE = Certificate(role=Role.CLIENT, name="alice", serial="1f")
B2 = Certificate(role=Role.BROKER, name="b2", serial="2f")


def keeper(
    door: Door = Door.CLIENTS, shown: Certificate | None = None, roll: Roll = ROLL
) -> Doorkeeper:
    return Doorkeeper(door, roll, shown, binding=b"this connection", nonce="ours")


def converse(doorkeeper: Doorkeeper, applicant: Applicant) -> Caller:
    said: Authenticate | None = applicant.begin()
    while said is not None:
        said = applicant.hear(doorkeeper.hear(said, 0.0))
    assert doorkeeper.admission is not None
    assert applicant.principal == doorkeeper.admission.caller.principal.name
    return doorkeeper.admission.caller


def bobs(password: str = "pencil", binding: bytes | None = b"this connection") -> Applicant:
    return Applicant(scram=ScramClient("bob", password, "theirs", binding=binding))


@pytest.mark.parametrize(
    ("door", "shown", "applicant", "principal"),
    [
        (Door.CLIENTS, ALICE, Applicant(), Principal("alice", Proof.CERTIFICATE)),
        (Door.CLIENTS, None, Applicant(token="carol's"), Principal("carol", Proof.TOKEN)),
        (Door.CLIENTS, ALICE, Applicant(token="carol's"), Principal("carol", Proof.TOKEN)),
        (Door.CLIENTS, None, bobs(), Principal("bob", Proof.PASSWORD, is_operator=True)),
        (Door.CLIENTS, None, bobs(binding=None), Principal("bob", Proof.PASSWORD, True)),
        (Door.BROKERS, B2, Applicant(), Principal("b2", Proof.CERTIFICATE)),
    ],
)
def test_whoever_shows_who_it_is_is_let_in(
    door: Door, shown: Certificate | None, applicant: Applicant, principal: Principal
) -> None:
    assert converse(keeper(door, shown), applicant) == Caller(door, principal)


@pytest.mark.parametrize(
    ("door", "shown", "applicant", "words"),
    [
        (Door.CLIENTS, None, Applicant(), "no certificate was shown"),
        (Door.CLIENTS, B2, Applicant(), "not that of a client"),
        (Door.BROKERS, ALICE, Applicant(), "not that of a broker"),
        (Door.BROKERS, attrs.evolve(ALICE, role=None), Applicant(), "not that of a broker"),
        (Door.BROKERS, B2, Applicant(token="carol's"), "nothing else will do"),
        (Door.BROKERS, B2, bobs(), "nothing else will do"),
        (Door.CLIENTS, None, Applicant(token="mine"), "not accepted here"),
        (Door.CLIENTS, None, bobs("pen"), "the password is not right"),
        (Door.CLIENTS, None, bobs(binding=b"another"), "another connection"),
    ],
)
def test_nobody_else_is(
    door: Door, shown: Certificate | None, applicant: Applicant, words: str
) -> None:
    doorkeeper = keeper(door, shown)

    with pytest.raises(NotAdmittedError, match=words):
        converse(doorkeeper, applicant)
    assert doorkeeper.admission is None


@pytest.mark.parametrize("revoked", ["1f", "client:alice"])
def test_what_is_revoked_opens_nothing(revoked: str) -> None:
    roll = attrs.evolve(ROLL, revoked=frozenset({revoked, "broker:alice", "client:b2"}))

    with pytest.raises(NotAdmittedError, match="revoked"):
        converse(keeper(shown=ALICE, roll=roll), Applicant())
    assert converse(keeper(Door.BROKERS, B2, roll), Applicant()).principal.name == "b2"


def test_whoever_is_there_goes_when_what_it_has_shown_is_worth_nothing_any_more() -> None:
    callers = {
        proof: Caller(Door.CLIENTS, Principal(name, proof))
        for name, proof in (("bob", Proof.PASSWORD), ("carol", Proof.TOKEN))
    }
    nothing = Roll()

    assert all(ROLL.objection_to(caller) is None for caller in callers.values())
    assert all(nothing.objection_to(caller) is not None for caller in callers.values())


messages = st.one_of(
    st.builds(Authenticate, mechanism=st.sampled_from(Mechanism), proof=st.text(max_size=9)),
    st.builds(
        Authenticate,
        mechanism=st.sampled_from([Mechanism.SCRAM, Mechanism.SCRAM_PLUS]),
        proof=st.sampled_from(
            ["n,,n=bob,r=x", "p=tls-server-end-point,,n=bob,r=x", "c=biws,r=xours,p=AAAA"]
        ),
    ),
    st.sampled_from([Challenge("x"), Admitted(principal="bob"), Heartbeat(), GOODBYE]),
)


@settings(deadline=None)
@given(
    st.sampled_from([Door.CLIENTS, Door.BROKERS]),
    st.sampled_from([None, attrs.evolve(ALICE, role=None)]),
    st.lists(messages, max_size=4),
)
def test_nobody_is_let_in_by_chance(
    door: Door, shown: Certificate | None, said: list[Message]
) -> None:
    doorkeeper = keeper(door, shown)

    for message in said:
        with contextlib.suppress(NotAdmittedError):
            doorkeeper.hear(message, 0.0)
    assert doorkeeper.admission is None


@given(st.lists(messages, min_size=1, max_size=3), st.booleans())
def test_nobody_takes_an_answer_that_proves_nothing_for_being_let_in(
    said: list[Message], is_with_password: bool
) -> None:
    applicant = bobs() if is_with_password else Applicant()
    applicant.begin()

    try:
        answers = [applicant.hear(message) for message in said]
    except NotAdmittedError:
        return
    assert not is_with_password
    assert answers == [None] * len(said)


def test_no_message_of_the_core_is_taken_before() -> None:
    for kind in MESSAGE_TYPES.values():
        if kind not in (Authenticate, Goodbye):
            stand_in = object.__new__(kind)
            with pytest.raises(NotAdmittedError, match="shows first who it is"):
                keeper().hear(stand_in, 0.0)
    with pytest.raises(NotAdmittedError, match="shows first"):
        keeper().hear(StatusRequest(), 0.0)
