"""The file of users: a name and what is kept of its password, one a line.

`alice SCRAM-SHA-256$100000:SALT$STORED-KEY:SERVER-KEY`, the three in base64. Empty lines, and those
that begin with `#`, are remarks.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from plait.broker.access.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM, Verifier
from plait.broker.principals import expected_principal_name

KEY_BYTES: Final = 32


class UsersError(ValueError):
    """A line of the file is not as it has to be."""


def read_users(text: str) -> dict[str, Verifier]:
    """Return the users of a file; `UsersError` names the first bad line."""
    users: dict[str, Verifier] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, kept = line.rpartition(" ")
        if expected := expected_principal_name(name):
            raise UsersError(f"line {number}: name {name!r}, expected {expected}")
        if name in users:
            raise UsersError(f"line {number}: {name} is there twice")
        try:
            users[name] = _read(kept)
        except (ValueError, binascii.Error):
            raise UsersError(
                f"line {number}: expected what `plait users add {name}` writes"
            ) from None
    return users


def write_users(users: Mapping[str, Verifier]) -> str:
    """Return the text of the file."""
    return "".join(f"{name} {_written(verifier)}\n" for name, verifier in users.items())


def _read(kept: str) -> Verifier:
    mechanism, how, keys = kept.split("$")
    iterations, salt = how.split(":")
    stored_key, server_key = keys.split(":")
    count = int(iterations)
    if mechanism != MECHANISM or not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        raise ValueError(kept)
    verifier = Verifier(
        salt=_decoded(salt),
        iterations=count,
        stored_key=_decoded(stored_key),
        server_key=_decoded(server_key),
    )
    if not len(verifier.stored_key) == len(verifier.server_key) == KEY_BYTES:
        raise ValueError(kept)
    return verifier


def _written(verifier: Verifier) -> str:
    salt, stored_key, server_key = (
        base64.b64encode(data).decode()
        for data in (verifier.salt, verifier.stored_key, verifier.server_key)
    )
    return f"{MECHANISM}${verifier.iterations}:{salt}${stored_key}:{server_key}"


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
