"""Who has come, through which door: what the core is told of whoever opens a connection.

The driver looks at certificates, passwords and tokens; the core has no cryptography, and gets the
outcome, a `Caller`, with `LinkOpened`. So a role follows from the door and from what was proven
there, and never from what a message claims. At the open door, which only a loopback address has
unless somebody insists, nothing is proven, and everybody is believed.

A *principal* is whoever can prove its name. A node's name belongs to one principal: its own name,
and this with a plus and anything behind it (`alice`, `alice+laptop`), as in mail.
"""

import enum
from typing import Final

import attrs

from plait.broker.messages import NodeKind

OWNED_BEHIND: Final = "+"


class Door(enum.StrEnum):
    """Where a connection was accepted."""

    OPEN = "open"
    """One door for all: whoever comes is what it says."""
    CLIENTS = "clients"
    """For clients and monitors, who have proven who they are."""
    BROKERS = "brokers"
    """For brokers, who have shown certificates of their own authority."""


class Protection(enum.StrEnum):
    """What keeps those out whom nobody has asked in."""

    LOOPBACK = "loopback"
    """No other machine reaches this host."""
    TLS = "tls"
    """Whoever comes shows who it is."""
    INSECURE = "insecure"
    """Nothing: somebody has said so."""


class Proof(enum.StrEnum):
    """By what somebody has shown who it is."""

    NOTHING = "nothing"
    CERTIFICATE = "certificate"
    PASSWORD = "password"  # noqa: S105 - a word, not a secret
    TOKEN = "token"  # noqa: S105


@attrs.frozen
class Principal:
    """Somebody who has proven a name; nobody in particular has none."""

    name: str
    proof: Proof = Proof.NOTHING
    is_operator: bool = False
    """Whether it may have brokers played elsewhere."""

    def owns(self, node: str) -> bool:
        """Whether a node of this name may only be this principal's."""
        return bool(self.name) and (
            node == self.name or node.startswith(f"{self.name}{OWNED_BEHIND}")
        )


ANYBODY: Final = Principal("")


@attrs.frozen
class Caller:
    """Who is at the other end of a connection, before it has said a word to the core."""

    door: Door = Door.OPEN
    principal: Principal = ANYBODY


UNKNOWN_CALLER: Final = Caller()


def expected_principal_name(name: str) -> str | None:
    """What the name of a principal has to be, if this is none."""
    if name and name.isprintable() and OWNED_BEHIND not in name and "/" not in name:
        return None
    return "printable characters without '+' and '/'"


def objection_to(caller: Caller, kind: NodeKind, node: str, host: str) -> str | None:
    """Why somebody may not greet as this at the door it has come through; None if it may."""
    name = caller.principal.name
    is_process = kind in (NodeKind.BROKER, NodeKind.HOST)
    match caller.door:
        case Door.CLIENTS if is_process:
            return (
                f"the {kind} {node} has come to the door of clients: brokers join at the address "
                "of --listen-brokers"
            )
        case Door.CLIENTS if kind is NodeKind.CLIENT and not caller.principal.owns(node):
            return (
                f"the name {node} does not belong to {name}: take {name}, or {name}"
                f"{OWNED_BEHIND} and anything behind it"
            )
        case Door.BROKERS if kind is NodeKind.CLIENT:
            return (
                f"the client {node} has come to the door of brokers: clients connect at the "
                "address of --listen"
            )
        case Door.BROKERS if is_process and host != name:
            return (
                f"the {kind} {node} of host {host} has shown the certificate of {name}: start it "
                f"with one that says {host}, as `plait certs issue --broker {host}` makes it"
            )
    return None
