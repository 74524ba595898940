"""`plait certs`: authorities, certificates and tokens for an overlay."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from plait.broker.access.admission import Role
from plait.broker.net.secret_files import read_secret, write_secret
from plait.scripts.certificate_folder import TOKEN_SECRET, CertificateFolder
from plait.scripts.errors import BadInputError
from plait.scripts.extras import needing
from plait.scripts.options import examples

DAYS: Final = 365
MINUTES: Final = 60
MINUTES_MAX: Final = 24 * 60

folder_argument: Final = click.argument(
    "folder", type=click.Path(file_okay=False, path_type=Path), default=Path("certs")
)
folder_option: Final = click.option(
    "--in",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("certs"),
    show_default=True,
    help="The folder that `plait certs init` has made.",
)
days_option: Final = click.option(
    "--days",
    type=click.IntRange(min=1),
    default=DAYS,
    show_default=True,
    help="For how long certificates are valid.",
)
hosts_option: Final = click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name or address of the machine, for who asks brokers over HTTPS.",
)


@click.group(
    epilog=examples(
        "plait certs init certs --broker b1 --broker b2 --client alice --client bob",
        "plait certs issue carol",
        "plait certs issue --broker b3 --host b3.example",
        "plait certs token dave --minutes 15 --out dave.token",
        "plait certs revoke carol",
    )
)
def command() -> None:
    """Authorities, certificates and tokens for an overlay, in one folder.

    Brokers are started with --tls FOLDER, and clients with the profile that is made for each:
    FOLDER/clients/NAME.toml. The keys of the authorities (*.key) stay with whoever issues.
    """


@command.command()
@folder_argument
@click.option("--broker", "brokers", multiple=True, help="Issue a certificate for this broker.")
@click.option("--client", "clients", multiple=True, help="And for this client.")
@days_option
@hosts_option
def init(
    folder: Path, brokers: Sequence[str], clients: Sequence[str], days: int, hosts: Sequence[str]
) -> None:
    """Make the authorities of an overlay, and certificates; what is there stays as it is.

    The clients that are named may publish and subscribe, and nobody else: FOLDER/rules says so.
    """
    made = CertificateFolder(folder)
    made.begin()
    click.echo(f"{folder}: authorities of brokers and of clients, keys for tokens")
    made.begin_rules(clients)
    for role, names in ((Role.BROKER, brokers), (Role.CLIENT, clients)):
        for name in names:
            if not made.certificate_of(role, name).exists():
                click.echo(f"{role} {name}: {made.issue(role, name, days=days, hosts=hosts)}")


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--broker", "is_broker", is_flag=True, help="For brokers of these names.")
@folder_option
@days_option
@hosts_option
def issue(
    names: Sequence[str], is_broker: bool, folder: Path, days: int, hosts: Sequence[str]
) -> None:
    """Issue certificates, for clients unless it is for brokers; they replace older ones."""
    role = Role.BROKER if is_broker else Role.CLIENT
    for name in names:
        file = CertificateFolder(folder).issue(role, name, days=days, hosts=hosts)
        click.echo(f"{role} {name}: {file}")


@command.command()
@click.argument("name")
@click.option("--broker", "is_broker", is_flag=True, help="That of a broker.")
@click.option("--all", "is_all", is_flag=True, help="Whatever this name shows, now or later.")
@folder_option
def revoke(name: str, is_broker: bool, is_all: bool, folder: Path) -> None:
    """Have a certificate accepted by nobody any more.

    It is added to FOLDER/revoked, which belongs beside the certificates of every broker; they look
    at it every second, and part with whoever has shown it.
    """
    role = Role.BROKER if is_broker else Role.CLIENT
    made = CertificateFolder(folder)
    what = f"{role}:{name}"
    if not is_all:
        with needing("tls"):
            from plait.scripts.certificates import serial_of
        file = made.certificate_of(role, name)
        if not file.exists():
            raise BadInputError(f"{file} is not there; --all revokes all of {role} {name}")
        what = serial_of(file.read_bytes())
    made.revoke(what, f"{role} {name}, {time.strftime('%Y-%m-%d')}")
    click.echo(f"{role} {name}: {what} is in {folder}/revoked")


@command.command()
@click.argument("name")
@folder_option
@click.option(
    "--minutes",
    type=click.IntRange(min=1, max=MINUTES_MAX),
    default=MINUTES,
    show_default=True,
    help="For how long it is valid.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write it to, for --token-file.",
)
def token(name: str, folder: Path, minutes: int, out: Path) -> None:
    """Issue a token, by which NAME is let in for a while."""
    with needing("tls"):
        from plait.broker.access.tokens import issue as issue_token
    key = read_secret(folder / TOKEN_SECRET)
    text = issue_token(name, key, now_s=int(time.time()), valid_s=60 * minutes)
    write_secret(out, f"{text}\n".encode(), replace=True)
    click.echo(f"client {name}: {out}, valid for {minutes} minutes")
