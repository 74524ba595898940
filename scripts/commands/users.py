"""`plait users`: who may connect with a password."""

import secrets
from pathlib import Path
from typing import Final

import click

from plait.broker.access.errors import ScramError
from plait.broker.access.scram import SALT_BYTES, Verifier
from plait.broker.access.users import UsersError, read_users, write_users
from plait.broker.net.secret_files import read_secret, read_secret_line, write_secret
from plait.broker.net.security import USERS
from plait.broker.principals import expected_principal_name
from plait.scripts.errors import BadInputError
from plait.scripts.options import examples

folder_option: Final = click.option(
    "--in",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("certs"),
    show_default=True,
    help="The folder that brokers are started with (--tls).",
)


@click.group(
    epilog=examples(
        "plait users add alice",
        "plait users add bob --password-file bob.password",
        "plait users remove bob",
    )
)
def command() -> None:
    """Who may connect with a password: the file FOLDER/users.

    It has no passwords, only what they are checked against. Brokers look at it every second.
    """


@command.command()
@click.argument("name")
@folder_option
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take the password from there instead of asking for it.",
)
def add(name: str, folder: Path, password_file: Path | None) -> None:
    """Let NAME in with a password, or with another one."""
    if expected := expected_principal_name(name):
        raise BadInputError(f"name {name!r}: expected {expected}")
    if password_file is not None:
        password = read_secret_line(password_file)
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    users = _read(folder)
    try:
        users[name] = Verifier.of(password, salt=secrets.token_bytes(SALT_BYTES))
    except ScramError as error:
        raise BadInputError(f"password: {error}") from error
    write_secret(folder / USERS, write_users(users).encode(), replace=True)
    click.echo(f"{name} is in {folder / USERS}")


@command.command()
@click.argument("name")
@folder_option
def remove(name: str, folder: Path) -> None:
    """Let NAME in no more, and part with it if it is there."""
    users = _read(folder)
    if name not in users:
        raise BadInputError(f"{folder / USERS}: there is no {name}")
    del users[name]
    write_secret(folder / USERS, write_users(users).encode(), replace=True)
    click.echo(f"{name} is not in {folder / USERS} any more")


@command.command("list")
@folder_option
def list_users(folder: Path) -> None:
    """Name them."""
    for name in sorted(_read(folder)):
        click.echo(name)


def _read(folder: Path) -> dict[str, Verifier]:
    file = folder / USERS
    try:
        return read_users(read_secret(file).decode()) if file.exists() else {}
    except (UsersError, UnicodeDecodeError) as error:
        raise BadInputError(f"{file}: {error}") from error
