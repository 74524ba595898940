"""Doors with TLS, on real sockets: who is let in, who is not, and what is said to whom."""

import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
import trustme

from plait import ClosedError, Credentials, connect
from plait.broker.access.admission import Role
from plait.broker.access.errors import NotAdmittedError
from plait.broker.access.scram import ITERATIONS_MIN, Verifier
from plait.broker.access.tokens import issue as issue_token
from plait.broker.access.users import write_users
from plait.broker.errors import AddressError, UnusableFileError
from plait.broker.limits import DEFAULT_LIMITS
from plait.broker.net import security
from plait.broker.net.credentials import Approach, pass_through
from plait.broker.net.secret_files import write_secret
from plait.broker.net.security import USERS, Security
from plait.scripts.certificate_folder import TOKEN_SECRET, CertificateFolder
from plait.scripts.monitor import ask, request_move, split
from tests.net.overlay import Overlay, exchange, hello, raw_peer, take

LONG_AGO = -1 / 1440
"""In days: valid since five minutes, and until one minute ago."""


@pytest.fixture
def certs(tmp_path: Path) -> CertificateFolder:
    """The certificates of an overlay of b1 and b2, with the clients alice and bob."""
    folder = CertificateFolder(tmp_path / "certs")
    folder.begin()
    for role, name in (
        *((Role.BROKER, "b1"), (Role.BROKER, "b2")),
        *((Role.CLIENT, "alice"), (Role.CLIENT, "bob")),
    ):
        folder.issue(role, name, days=1)
    return folder


@pytest.fixture
async def guarded(
    overlay: Overlay, certs: CertificateFolder, monkeypatch: pytest.MonkeyPatch
) -> Overlay:
    """One broker that lets nobody in who does not show who it is."""
    monkeypatch.setattr(security, "LOOK_S", 0.02)
    await overlay.broker("b1", tls=certs.path)
    return overlay


def profile(certs: CertificateFolder, name: str) -> Credentials:
    return Credentials.read(certs.path / "clients" / f"{name}.toml")


def nothing_to_show(certs: CertificateFolder) -> Credentials:
    return Credentials(tls_ca=certs.path / "brokers-ca.pem")


def with_password(certs: CertificateFolder, name: str, password: str) -> Credentials:
    file = certs.path.parent / f"{name}.password"
    write_secret(file, f"{password}\n".encode(), replace=True)
    return attrs.evolve(nothing_to_show(certs), user=name, password_file=file)


def with_token(
    certs: CertificateFolder, name: str, *, valid_s: int = 60, issued_s_ago: int = 0
) -> Credentials:
    key = (certs.path / TOKEN_SECRET).read_bytes()
    token = issue_token(name, key, now_s=int(time.time()) - issued_s_ago, valid_s=valid_s)
    file = certs.path.parent / f"{name}.token"
    write_secret(file, token.encode(), replace=True)
    return attrs.evolve(nothing_to_show(certs), token_file=file)


def let_in(certs: CertificateFolder, name: str, password: str) -> None:
    """Add a user, at a price that suits a test."""
    verifier = Verifier.of(password, salt=os.urandom(16), iterations=ITERATIONS_MIN)
    write_secret(certs.path / USERS, write_users({name: verifier}).encode(), replace=True)


async def why_not(overlay: Overlay, credentials: Credentials, name: str | None = None) -> str:
    """What somebody is told who is not let in."""
    with pytest.raises(ClosedError) as refused:
        async with connect(overlay.address("b1"), name=name, credentials=credentials):
            pass
    return str(refused.value)


# Who is let in


async def test_brokers_and_clients_that_show_who_they_are_get_along(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    await guarded.broker("b2", join="b1", tls=certs.path)
    let_in(certs, "bob", "pencil")
    await _reread(guarded, "b1")

    async with (
        connect(guarded.address("b1"), name="alice", credentials=profile(certs, "alice")) as alice,
        connect(guarded.address("b2"), credentials=with_token(certs, "carol")) as carol,
        connect(guarded.address("b1"), credentials=with_password(certs, "bob", "pencil")) as bob,
    ):
        await bob.advertise("n > 0")
        heard = [await each.subscribe("n > 0") for each in (alice, carol)]
        await bob.publish({"n": 1}, confirm=True)

        assert [await take(each, 1) for each in heard] == [[1], [1]]
        assert carol.name.startswith("carol+")
        assert bob.name.startswith("bob+")
    status = await _status(guarded, certs, "b1")
    assert status["protection"] == "tls"
    assert [n["name"] for n in status["neighbours"] if n["kind"] == "broker"] == ["b2"]


async def _reread(overlay: Overlay, name: str) -> None:
    """Wait until a broker has seen that its files have changed."""
    before = len(overlay.logged(name, "keys read again"))
    await overlay.until_logged(name, "keys read again", before=before)


async def _status(overlay: Overlay, certs: CertificateFolder, name: str) -> dict[str, Any]:
    return await ask(*split(overlay.address(name)), Approach(profile(certs, "alice")))


async def test_megabytes_pass_whole(guarded: Overlay, certs: CertificateFolder) -> None:
    body = os.urandom(900_000)
    async with connect(guarded.address("b1"), credentials=profile(certs, "alice")) as alice:
        await alice.advertise("TRUE")
        subscription = await alice.subscribe("TRUE")
        for number in range(20):
            await alice.publish({"n": number}, body)
        bodies = []
        async for delivery in subscription:
            bodies.append(delivery.body)
            if len(bodies) == 20:
                break

    assert bodies == [body] * 20


async def test_a_client_goes_on_at_the_door_of_clients_of_whoever_takes_its_broker_up(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    await guarded.broker("b2", join="b1", tls=certs.path)
    async with (
        connect(guarded.address("b1"), credentials=profile(certs, "bob")) as bob,
        connect(guarded.address("b2"), credentials=profile(certs, "alice")) as alice,
    ):
        await bob.advertise("TRUE")
        subscription = await alice.subscribe("TRUE")
        await bob.publish({"n": 1}, confirm=True)
        await guarded.kill("b2")
        await bob.publish({"n": 2}, confirm=True)

        assert await take(subscription, 2) == [1, 2]
        assert alice.broker == "b2"


# Who is not, and what it is told


async def test_nobody_is_let_in_with_nothing_to_show(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    assert "give one with --tls-cert, or a password or a token" in await why_not(
        guarded, nothing_to_show(certs)
    )


async def test_nobody_is_let_in_under_the_name_of_another(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    reason = await why_not(guarded, profile(certs, "alice"), "bob")

    assert "the name bob does not belong to alice" in reason


async def test_a_certificate_that_has_expired_is_refused(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    certs.issue(Role.CLIENT, "alice", days=LONG_AGO)

    assert "has expired: have a new one issued" in await why_not(guarded, profile(certs, "alice"))


async def test_a_certificate_of_another_authority_is_refused(
    guarded: Overlay, certs: CertificateFolder, tmp_path: Path
) -> None:
    other = CertificateFolder(tmp_path / "other")
    other.begin()
    other.issue(Role.CLIENT, "alice", days=1)
    foreign = attrs.evolve(
        nothing_to_show(certs), tls_cert=other.certificate_of(Role.CLIENT, "alice")
    )

    assert "of another authority" in await why_not(guarded, foreign)


async def test_a_certificate_of_anybody_else_is_refused(
    guarded: Overlay, certs: CertificateFolder, tmp_path: Path
) -> None:
    foreign = trustme.CA().issue_cert("alice@example.com")
    write_secret(tmp_path / "x.pem", foreign.private_key_and_cert_chain_pem.bytes())

    reason = await why_not(
        guarded, attrs.evolve(nothing_to_show(certs), tls_cert=tmp_path / "x.pem")
    )

    assert "of another authority" in reason


async def test_a_broker_of_another_authority_is_told_nothing(
    guarded: Overlay, certs: CertificateFolder, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")

    reason = await why_not(
        guarded, attrs.evolve(profile(certs, "alice"), tls_ca=tmp_path / "ca.pem")
    )

    assert "the broker's certificate is not accepted" in reason
    assert "look at --tls-ca" in reason


async def test_a_client_that_answers_as_a_broker_is_told_nothing(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    """Its certificate is of the authority of clients, and not for a server at all."""
    authority = certs.path / "clients-ca.pem"

    reason = await why_not(guarded, attrs.evolve(profile(certs, "alice"), tls_ca=authority))

    assert "not accepted" in reason


async def test_a_wrong_password_an_unknown_user_and_one_without_are_refused_alike(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    let_in(certs, "bob", "pencil")
    await _reread(guarded, "b1")

    reasons = {
        (await why_not(guarded, with_password(certs, name, "pen"))).partition(": ")[2]
        for name in ("bob", "mallory")
    }

    assert len(reasons) == 1
    assert "the name or the password is not right" in reasons.pop()


async def test_a_token_has_its_time(guarded: Overlay, certs: CertificateFolder) -> None:
    late = with_token(certs, "carol", issued_s_ago=61)

    assert "has expired: have a new one issued" in await why_not(guarded, late)


async def test_a_connection_does_not_outlive_its_token(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    """And goes on with the next one, which whoever issues them has put in its place."""
    async with connect(
        guarded.address("b1"), credentials=with_token(certs, "carol", valid_s=1)
    ) as carol:
        await carol.advertise("TRUE")
        with_token(certs, "carol")
        lost = await guarded.until_logged("b1", "link lost")
        await carol.publish({"n": 1}, confirm=True)

    assert "token has expired" in lost["reason"]


# Brokers


async def test_a_broker_without_a_certificate_of_its_own_does_not_start(
    overlay: Overlay, certs: CertificateFolder, nursery: trio.Nursery
) -> None:
    with pytest.raises(UnusableFileError, match="plait certs issue --broker b9"):
        Security(certs.path, "b9")
    certs.certificate_of(Role.BROKER, "b1").rename(certs.certificate_of(Role.BROKER, "b9"))
    with pytest.raises(UnusableFileError, match="is the certificate of b1, and b9 needs its own"):
        Security(certs.path, "b9")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda c: c.issue(Role.BROKER, "b2", days=LONG_AGO),
            "certificate has expired",
        ),
        (
            lambda c: c.revoke("broker:b2", "lost"),
            "whatever broker b2 shows has been revoked",
        ),
    ],
)
async def test_a_broker_that_is_not_who_it_says_does_not_join(
    guarded: Overlay,
    certs: CertificateFolder,
    tmp_path: Path,
    spoil: Callable[[CertificateFolder], object],
    words: str,
) -> None:
    spoil(certs)
    if "revoked" in words:
        await _reread(guarded, "b1")

    await guarded.broker("b2", join="b1", tls=certs.path)
    await guarded.until_logged("b1", "not admitted", words)

    status = await ask(*split(guarded.address("b1")), Approach(profile(certs, "alice")))
    assert [n for n in status["neighbours"] if n["kind"] == "broker"] == []


async def test_a_client_does_not_come_in_by_the_door_of_brokers(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    door = guarded.address_for_brokers("b1")
    for credentials in (nothing_to_show(certs), profile(certs, "alice")):
        with pytest.raises(ClosedError, match="certificate"):
            async with connect(door, credentials=credentials):
                pass


# Those who were let in


async def test_whoever_is_revoked_has_to_go(guarded: Overlay, certs: CertificateFolder) -> None:
    async with connect(guarded.address("b1"), credentials=profile(certs, "bob")) as bob:
        await bob.advertise("TRUE")
        with pytest.raises(ClosedError, match="this certificate of alice has been revoked"):
            await _stay_until_revoked(guarded, certs)
        await bob.publish({"n": 1}, confirm=True)

    assert "has been revoked" in await why_not(guarded, profile(certs, "alice"))


async def _stay_until_revoked(overlay: Overlay, certs: CertificateFolder) -> None:
    async with connect(overlay.address("b1"), credentials=profile(certs, "alice")) as alice:
        certs.revoke(_serial(certs, "alice"), "lost")
        async for _ in await alice.subscribe("TRUE"):
            pass


def _serial(certs: CertificateFolder, name: str) -> str:
    from plait.scripts.certificates import serial_of

    return serial_of(certs.certificate_of(Role.CLIENT, name).read_bytes())


async def test_what_cannot_be_read_changes_nothing(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    (certs.path / USERS).write_text("alice pencil\n")
    await guarded.until_logged("b1", "keys not read again")

    async with connect(guarded.address("b1"), credentials=profile(certs, "alice")):
        pass


async def test_only_an_operator_moves_brokers(guarded: Overlay, certs: CertificateFolder) -> None:
    (certs.path / "operators").write_text("bob\n")
    await _reread(guarded, "b1")
    answers = [
        await request_move(guarded.address("b1"), "b1", "b2", print, Approach(profile(certs, name)))
        for name in ("alice", "bob")
    ]

    assert "alice may not move brokers" in answers[0]
    assert "may not" not in answers[1]


# Those who do not know of TLS, and those who know of nothing else


async def test_whoever_does_not_speak_tls_is_told_so(guarded: Overlay) -> None:
    async with raw_peer(guarded.address("b1")) as peer:
        await peer.send(hello("alice"))
        goodbye = await peer.last_words()

    assert "connect with --tls-ca" in goodbye.reason


async def test_a_broker_that_does_not_speak_tls_is_said_not_to(
    overlay: Overlay, certs: CertificateFolder
) -> None:
    await overlay.broker("b1")

    assert "nobody speaks TLS there" in await why_not(overlay, profile(certs, "alice"))


async def test_nothing_of_a_stranger_reaches_the_core(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    """Not even that somebody has come."""
    tls = Approach(nothing_to_show(certs)).begin
    for said in (b"", b"\x16\x03\x01\x00\x05hello", os.urandom(500)):
        await exchange(guarded.address("b1"), said) if said else None
    async with await _open(guarded.address("b1"), tls()) as stream:
        await stream.send_all(b"\x00\x00\x00\x02\x91\x03")  # a heartbeat

        assert b"shows first who it is" in b"".join([part async for part in stream])
    metric = await _page(guarded, certs, "/metrics")
    assert 'plait_links{kind="ungreeted"} 0' in metric or "ungreeted" not in metric
    assert "plait_protocol_errors_total 0" in metric


@asynccontextmanager
async def _closing(stream: trio.SSLStream[trio.SocketStream]) -> AsyncIterator[Any]:
    try:
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def _open(address: str, _: object) -> Any:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    stream = await trio.open_tcp_stream(*split(address))
    return _closing(trio.SSLStream(stream, context, https_compatible=True))


async def test_whoever_says_nothing_is_not_waited_for(
    overlay: Overlay, certs: CertificateFolder
) -> None:
    impatient = attrs.evolve(DEFAULT_LIMITS, greeting_timeout_s=0.05)
    await overlay.broker("b1", tls=certs.path, limits=impatient)

    assert await exchange(overlay.address("b1"), b"") == b""
    await overlay.until_logged("b1", "not admitted", "not shown within 0.05 s who it is")


class _Silent:
    """Shakes hands, and shows nothing then."""

    def begin(self) -> Any:
        return None

    async def shake_hands(self, _: object) -> None:
        pass

    async def admit(self, _: object) -> Any:
        await trio.sleep_forever()


async def test_nor_is_whoever_shows_nothing_once_hands_are_shaken(
    autojump_clock: trio.testing.MockClock,
) -> None:
    silent: Any = _Silent()

    with pytest.raises(NotAdmittedError, match="not shown within 5 s who it is"):
        await pass_through(silent, silent, within_s=5)
    assert trio.current_time() == 5


# Pages


async def _page(
    overlay: Overlay, certs: CertificateFolder, path: str, *, fields: str = "", proven: bool = True
) -> str:
    context = ssl.create_default_context(cafile=certs.path / "brokers-ca.pem")
    if proven:
        context.load_cert_chain(certs.certificate_of(Role.CLIENT, "alice"))
    tcp = await trio.open_tcp_stream(*split(overlay.http_address("b1")))
    stream = trio.SSLStream(tcp, context, server_hostname="localhost", https_compatible=True)
    async with stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode())
        return b"".join([bytes(part) async for part in stream]).decode()


async def test_pages_are_for_those_who_show_who_they_are(
    guarded: Overlay, certs: CertificateFolder
) -> None:
    let_in(certs, "bob", "pencil")
    await _reread(guarded, "b1")
    token_file = with_token(certs, "carol").token_file
    assert token_file is not None
    right, wrong = "Ym9iOnBlbmNpbA==", "Ym9iOnBlbg=="

    pages = [
        await _page(guarded, certs, "/metrics"),
        await _page(
            guarded, certs, "/status", fields=f"Authorization: Basic {right}\r\n", proven=False
        ),
        await _page(
            guarded,
            certs,
            "/status",
            fields=f"authorization: Bearer {token_file.read_text()}\r\n",
            proven=False,
        ),
        await _page(guarded, certs, "/metrics", proven=False),
        await _page(
            guarded, certs, "/status", fields=f"Authorization: Basic {wrong}\r\n", proven=False
        ),
        await _page(guarded, certs, "/status", fields="Authorization: Bearer x\r\n", proven=False),
    ]

    assert [page.split(" ")[1] for page in pages] == ["200", "200", "200", "401", "401", "401"]


# What is refused at the start


async def test_other_machines_reach_nothing_that_is_not_guarded(overlay: Overlay) -> None:
    for settings in ({"listen": "0.0.0.0:0"}, {"metrics": "0.0.0.0:0"}):
        with pytest.raises(AddressError, match="give --tls FOLDER"):
            await _alone(overlay, **settings)


async def _alone(overlay: Overlay, **settings: str) -> None:
    from plait.broker.net.broker_process import BrokerSettings, serve_broker
    from plait.routing.ids import NodeId

    await serve_broker(BrokerSettings(node=NodeId("x"), **settings))  # type: ignore[arg-type]


async def test_a_broker_that_is_insecure_says_so_everywhere(overlay: Overlay) -> None:
    await overlay.broker("b1", listen="0.0.0.0:0", is_insecure=True)

    assert (await overlay.status("b1"))["protection"] == "insecure"
    assert await overlay.metric("b1", "plait_insecure") == 1
    assert overlay.logged("b1", "insecure")


async def test_a_secret_that_others_may_read_is_refused(certs: CertificateFolder) -> None:
    (certs.path / "broker-b1.pem").chmod(0o644)

    with pytest.raises(UnusableFileError, match="chmod 600"):
        Security(certs.path, "b1")


async def test_a_folder_by_which_nobody_could_be_let_in_is_refused(
    certs: CertificateFolder,
) -> None:
    for name in ("clients-ca.pem", "tokens.pem"):
        (certs.path / name).unlink()

    with pytest.raises(UnusableFileError, match="no client could be let in"):
        Security(certs.path, "b1")
