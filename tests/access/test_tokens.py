"""Tokens: who may issue them, and until when they are worth something."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.broker.access.admission import Token
from plait.broker.access.errors import TokenError
from plait.broker.access.tokens import TOKEN_CHARS_MAX, VALID_MAX_S, TokenKeys, issue, new_key

NOW = 1_800_000_000
PRIVATE, PUBLIC = new_key()
OTHER_PRIVATE, OTHER_PUBLIC = new_key()
KEYS = TokenKeys.read(PUBLIC)
TOKEN = issue("alice", PRIVATE, now_s=NOW, valid_s=900)


def test_a_token_says_whose_it_is_and_until_when() -> None:
    assert KEYS.read_token(TOKEN, NOW + 899) == Token("alice", NOW + 900)


@pytest.mark.parametrize(("now", "words"), [(NOW + 900, "expired"), (NOW - 61, "not valid yet")])
def test_a_token_has_its_time(now: int, words: str) -> None:
    with pytest.raises(TokenError, match=words):
        KEYS.read_token(TOKEN, now)


def test_a_token_of_another_key_is_refused_until_that_is_accepted_too() -> None:
    token = issue("alice", OTHER_PRIVATE, now_s=NOW, valid_s=900)

    with pytest.raises(TokenError, match="not accepted here"):
        KEYS.read_token(token, NOW)
    assert TokenKeys.read(PUBLIC + OTHER_PUBLIC).read_token(token, NOW).name == "alice"


@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
def test_no_character_of_a_token_can_be_altered(at: int, character: str) -> None:
    altered = TOKEN[:at] + character + TOKEN[at + 1 :]

    # Of the last one, base64 has two bits that mean nothing.
    if altered != TOKEN and at < len(TOKEN) - 1:
        with pytest.raises(TokenError):
            KEYS.read_token(altered, NOW)


def signed(header: object, claims: object) -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(PRIVATE, None)
    assert isinstance(key, Ed25519PrivateKey)
    parts = [
        base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in (header, claims)
    ]
    text = b".".join(parts)
    return (text + b"." + base64.urlsafe_b64encode(key.sign(text)).rstrip(b"=")).decode()


CLAIMS = {"sub": "alice", "iat": NOW, "exp": NOW + 60}


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        ({"alg": "none"}, CLAIMS),
        ({"alg": "HS256"}, CLAIMS),
        ({"alg": "EdDSA", "crit": ["x"]}, CLAIMS),
        ({"alg": "EdDSA"}, {**CLAIMS, "sub": ""}),
        ({"alg": "EdDSA"}, {**CLAIMS, "sub": "a+b"}),
        ({"alg": "EdDSA"}, {**CLAIMS, "sub": 7}),
        ({"alg": "EdDSA"}, {**CLAIMS, "exp": None}),
        ({"alg": "EdDSA"}, {**CLAIMS, "exp": 1e99}),
        ({"alg": "EdDSA"}, {**CLAIMS, "iat": True}),
        ({"alg": "EdDSA"}, {**CLAIMS, "exp": NOW + VALID_MAX_S + 1}),
        ({"alg": "EdDSA"}, [CLAIMS]),
        ([], CLAIMS),
    ],
)
def test_a_token_that_is_signed_and_says_something_else_is_refused(
    header: object, claims: object
) -> None:
    with pytest.raises(TokenError):
        KEYS.read_token(signed(header, claims), NOW)


@given(st.text(max_size=30) | st.text("aA.-_=", max_size=30))
def test_anything_else_is_no_token(text: str) -> None:
    with pytest.raises(TokenError):
        KEYS.read_token(text, NOW)


def test_a_token_has_a_length() -> None:
    with pytest.raises(TokenError, match="not a token"):
        KEYS.read_token("a" * TOKEN_CHARS_MAX + ".b.c", NOW)


def test_nobody_issues_a_token_for_ever() -> None:
    with pytest.raises(TokenError, match="at most"):
        issue("alice", PRIVATE, now_s=NOW, valid_s=VALID_MAX_S + 1)


@pytest.mark.parametrize("pem", [b"", b"x", PRIVATE, b"-----END PUBLIC KEY-----"])
def test_what_is_no_public_key_is_refused(pem: bytes) -> None:
    with pytest.raises(TokenError, match="key"):
        TokenKeys.read(pem)
