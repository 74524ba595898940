"""Passwords: the conversation of the RFC word for word, and that nothing else ends well."""

import base64

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plait.broker.access.errors import ScramError
from plait.broker.access.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramClient,
    ScramServer,
    Verifier,
    nobody,
    prepared,
)
from plait.broker.access.users import UsersError, read_users, write_users

# RFC 7677, section 3.
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CONVERSATION = (
    f"n,,n=user,r={CLIENT_NONCE}",
    f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
PENCIL = Verifier.of("pencil", salt=SALT, iterations=ITERATIONS_MIN)

NONCES = st.text("abcXYZ0129!#%/+=~", min_size=1, max_size=20)
NAMES = st.text("abZ09=,.-é😀", min_size=1, max_size=9)


def converse(
    server: ScramServer, client: ScramClient, verifier: Verifier, *, altered: int = -1, by: str = ""
) -> str:
    """Have the whole conversation; one of the four messages may be altered on its way."""

    def on_its_way(number: int, message: str) -> str:
        return by if number == altered else message

    user = server.on_first(on_its_way(0, client.first()))
    final = client.final(on_its_way(1, server.challenge(verifier)))
    client.check(on_its_way(3, server.on_final(on_its_way(2, final))))
    return user


def test_the_conversation_of_the_rfc() -> None:
    client = ScramClient("user", "pencil", CLIENT_NONCE)
    server = ScramServer(SERVER_NONCE)

    said = [client.first()]
    assert server.on_first(said[0]) == "user"
    said.append(server.challenge(PENCIL))
    said.append(client.final(said[1]))
    said.append(server.on_final(said[2]))
    client.check(said[3])
    assert tuple(said) == CONVERSATION


@settings(max_examples=25, deadline=None)
@given(NAMES, st.text("abc é,=", min_size=1), NONCES, NONCES, st.none() | st.binary(min_size=1))
def test_whoever_has_the_password_is_let_in_under_its_name(
    user: str, password: str, ours: str, theirs: str, binding: bytes | None
) -> None:
    verifier = Verifier.of(password, salt=SALT, iterations=ITERATIONS_MIN)
    client = ScramClient(user, password, ours, binding=binding)

    assert converse(ScramServer(theirs, binding=binding), client, verifier) == prepared(user)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.text("nyrsicpv=,abz09+/", max_size=60), st.data())
def test_no_message_can_be_altered_on_its_way(number: int, text: str, data: st.DataObject) -> None:
    original = CONVERSATION[number]
    at = data.draw(st.integers(0, len(original)))
    altered = data.draw(st.sampled_from([text, original[:at] + text + original[at:]]))
    assume(altered != original)
    server = ScramServer(SERVER_NONCE)

    try:
        user = converse(
            server, ScramClient("user", "pencil", CLIENT_NONCE), PENCIL, altered=number, by=altered
        )
    except ScramError:
        return
    # What may follow behind the last message has no meaning, and is covered by no signature.
    assert number == 3
    assert user == "user"
    assert altered.startswith(f"{original},")


@pytest.mark.parametrize("verifier", [PENCIL, nobody("user", b"key")])
def test_a_wrong_password_and_an_unknown_name_fail_alike(verifier: Verifier) -> None:
    client = ScramClient("user", "pen", CLIENT_NONCE)

    with pytest.raises(ScramError, match="password is not right"):
        converse(ScramServer(SERVER_NONCE), client, verifier)


def test_who_does_not_exist_is_always_asked_the_same() -> None:
    assert nobody("eve", b"key") == nobody("eve", b"key")
    assert nobody("eve", b"key").salt != nobody("eva", b"key").salt


def test_a_proof_for_one_connection_is_worth_nothing_on_another() -> None:
    client = ScramClient("user", "pencil", CLIENT_NONCE, binding=b"one")

    with pytest.raises(ScramError, match="another connection"):
        converse(ScramServer(SERVER_NONCE, binding=b"other"), client, PENCIL)


def test_channel_binding_cannot_be_talked_away() -> None:
    server = ScramServer(SERVER_NONCE, binding=b"one")

    with pytest.raises(ScramError, match="not taken up"):
        server.on_first(f"y,,n=user,r={CLIENT_NONCE}")


@pytest.mark.parametrize("iterations", [1, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1])
def test_a_broker_cannot_have_a_client_calculate_for_ever_or_hardly(iterations: int) -> None:
    client = ScramClient("user", "pencil", CLIENT_NONCE)
    client.first()

    with pytest.raises(ScramError, match="iterations"):
        client.final(f"r={CLIENT_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={iterations}")


def test_a_broker_that_does_not_go_on_from_our_nonce_is_not_answered() -> None:
    client = ScramClient("user", "pencil", CLIENT_NONCE)

    for nonce in (CLIENT_NONCE, "other"):
        with pytest.raises(ScramError, match="nonce"):
            client.final(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")


def test_the_long_calculation_is_made_once() -> None:
    keys: dict[tuple[bytes, int], bytes] = {}
    for _ in range(2):
        client = ScramClient("user", "pencil", CLIENT_NONCE, keys=keys)
        converse(ScramServer(SERVER_NONCE), client, PENCIL)

    assert list(keys) == [(SALT, ITERATIONS_MIN)]


@pytest.mark.parametrize(
    ("typed", "normal"), [("I\u00adX", "IX"), ("user", "user"), ("\u00aa", "a"), ("\u2168", "IX")]
)
def test_what_is_typed_is_normalised_as_rfc_4013_says(typed: str, normal: str) -> None:
    assert prepared(typed) == normal


@pytest.mark.parametrize("typed", ["", "\u0007", "\u0627\u0031"])
def test_what_nobody_types_is_refused(typed: str) -> None:
    with pytest.raises(ScramError):
        prepared(typed)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(["alice", "a b", "émile", "#x"]), st.binary(min_size=1)))
def test_a_file_of_users_is_read_as_it_was_written(salts: dict[str, bytes]) -> None:
    salts.pop("#x", None)
    users = {
        name: Verifier.of(name, salt=salt, iterations=ITERATIONS_MIN)
        for name, salt in salts.items()
    }

    assert read_users(write_users(users)) == users


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "alice pencil",
        "alice SCRAM-SHA-256$1:AAAA$AAAA:AAAA",
        "alice SCRAM-SHA-256$4096:AAAA$AAAA:AAAA",
        "a+b SCRAM-SHA-256$4096:AAAA$AAAA:AAAA",
    ],
)
def test_a_bad_line_of_a_file_of_users_is_named(line: str) -> None:
    with pytest.raises(UsersError, match="line 2: "):
        read_users(f"# who may come\n{line}\n")


def test_nobody_is_in_a_file_of_users_twice() -> None:
    text = write_users({"alice": PENCIL})

    with pytest.raises(UsersError, match="line 2: alice is there twice"):
        read_users(text + text)
