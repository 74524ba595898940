"""`plait certs` and `plait users`, and what the README promises to whoever has nothing yet."""

import re
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.broker.access.users import read_users
from plait.broker.net.credentials import Credentials
from plait.broker.net.security import Security
from plait.routing.rules_text import read_rules
from plait.scripts.main import cli
from tests.patience import PATIENCE_S
from tests.processes import PLAIT, finished, started

README = Path(__file__).parent.parent.parent / "README.md"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plait(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, words, prog_name="plait", input=stdin)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_one_command_makes_a_working_set(home: Path) -> None:
    done = plait("certs", "init", "certs", "--broker", "b1", "--client", "alice")

    assert done.exit_code == 0, done.output
    assert Security(Path("certs"), "b1").keys.roll.tokens is not None
    assert Credentials.read(Path("certs/clients/alice.toml")).principal() == "alice"
    assert len(read_rules(Path("certs/rules").read_text()).rules) == 3
    assert modes(home / "certs") == {0o600}


def test_what_is_there_stays_as_it_is() -> None:
    plait("certs", "init", "--broker", "b1", "--client", "alice")
    before = {path: path.read_bytes() for path in Path("certs").rglob("*") if path.is_file()}

    again = plait("certs", "init", "--broker", "b1", "--broker", "b2", "--client", "bob")

    assert again.exit_code == 0
    assert {path: path.read_bytes() for path in before} == before
    assert Path("certs/broker-b2.pem").exists()


@pytest.mark.parametrize("name", ["a/b", "..", "a+b", ""])
def test_a_name_that_nobody_may_have_gets_no_certificate(name: str) -> None:
    plait("certs", "init")

    refused = plait("certs", "issue", name)

    assert refused.exit_code == 2
    assert "expected" in refused.output


def test_nothing_is_issued_where_there_is_no_authority(home: Path) -> None:
    (home / "certs").mkdir()

    refused = plait("certs", "issue", "alice")

    assert refused.exit_code == 2
    assert "`plait certs init certs` makes it" in refused.output


def test_a_certificate_is_revoked_by_its_number() -> None:
    plait("certs", "init", "--broker", "b1", "--client", "alice")

    done = plait("certs", "revoke", "alice")
    everything = plait("certs", "revoke", "bob", "--all")
    unknown = plait("certs", "revoke", "carol")

    assert done.exit_code == everything.exit_code == 0
    revoked = Security(Path("certs"), "b1").keys.roll.revoked
    assert "client:bob" in revoked
    assert len(revoked) == 2
    assert unknown.exit_code == 2
    assert "--all revokes all of client carol" in unknown.output


def test_a_token_is_a_file_of_its_own() -> None:
    plait("certs", "init", "--broker", "b1")

    done = plait("certs", "token", "dave", "--minutes", "5", "--out", "dave.token")

    assert done.exit_code == 0, done.output
    assert stat.S_IMODE(Path("dave.token").stat().st_mode) == 0o600
    credentials = Credentials(tls_ca=Path("certs/brokers-ca.pem"), token_file=Path("dave.token"))
    assert credentials.principal() == "dave"
    assert Path("dave.token").read_text().strip() not in done.output


def test_users_come_and_go_and_no_password_is_kept(home: Path) -> None:
    plait("certs", "init")

    added = plait("users", "add", "alice", stdin="pencil\npencil\n")
    again = plait("users", "add", "bob", stdin="pencil\npencil\n")
    listed = plait("users", "list")
    removed = plait("users", "remove", "alice")

    assert [done.exit_code for done in (added, again, listed, removed)] == [0] * 4
    assert listed.output.split() == ["alice", "bob"]
    text = (home / "certs" / "users").read_text()
    users = read_users(text)
    assert list(users) == ["bob"]
    assert users["bob"].accepts("pencil")
    assert "pencil" not in text + added.output


def test_a_password_of_a_file_that_others_may_read_is_not_taken(home: Path) -> None:
    plait("certs", "init")
    (home / "password").write_text("pencil\n")
    (home / "password").chmod(0o640)

    refused = plait("users", "add", "alice", "--password-file", "password")

    assert refused.exit_code == 2
    assert "chmod 600 password" in refused.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--tls", "certs", "--insecure"), "take one"),
        (("--listen-brokers", ":4001"), "with --tls FOLDER only"),
        (("--tls", "certs"), "as `plait certs init certs` and"),
        (("--listen", "0.0.0.0:0"), "give --tls FOLDER"),
    ],
)
def test_a_broker_says_what_it_needs(words: tuple[str, ...], sentence: str) -> None:
    refused = finished([*PLAIT, "broker", "--name", "b1", *words])

    assert refused.returncode == 2
    assert sentence in refused.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected tls-ca"),
        ('tls-ca = "x"\ncolour = "red"\n', "found colour = 'red'"),
        ("tls-ca = 1\n", "found tls-ca = 1"),
        ("tls-ca", "profile.toml: "),
    ],
)
def test_what_is_wrong_with_a_profile_is_said(home: Path, text: str, sentence: str) -> None:
    (home / "profile.toml").write_text(text)

    refused = plait("sub", "--broker", ":1", "--profile", "profile.toml", "TRUE")

    assert refused.exit_code == 2
    assert sentence in refused.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--user", "alice"), "Say with --tls-ca"),
        (("--profile", "p", "--user", "alice"), "give it alone"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    home: Path, words: tuple[str, ...], sentence: str
) -> None:
    (home / "p").write_text('tls-ca = "x"\n')

    refused = plait("sub", "--broker", ":1", *words, "TRUE")

    assert refused.exit_code == 2
    assert sentence in refused.output


@pytest.mark.processes
def test_a_broker_that_is_insecure_is_shown_to_be() -> None:
    insecure = [*PLAIT, "broker", "--name", "b1", "--insecure"]
    with started(insecure, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().split()[-1]
        status = plait("status", "--broker", address)

    assert status.exit_code == 0
    assert "b1 is insecure: whoever reaches it is believed" in status.output


@pytest.mark.processes
def test_three_commands_of_the_readme_are_enough(home: Path) -> None:
    """In an empty home: TLS, two principals and rules."""
    section = README.read_text(encoding="utf-8").partition("## Beyond one machine")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    first, second, third = (line.split(" ", 1)[1] for line in block[1].splitlines())
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", **_path_of_python()}

    made = finished([*PLAIT, *first.split()], env=environment)
    assert made.returncode == 0, made.stderr
    broker = second.removesuffix(" &").replace(":4000", ":0").split()
    with started(
        [*PLAIT, *broker], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdout is not None
        address = running.stdout.readline().split(" is ready at ")[1].split(",")[0]
        alice = [*PLAIT, *third.replace(":4000", address).replace('"price > 100"', "TRUE").split()]
        with started(
            [*alice, "--count", "1"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as sub:
            assert sub.stderr is not None
            assert sub.stderr.readline().startswith("alice+")
            published = finished(
                [
                    *(*PLAIT, "pub", "--broker", address, "price=120"),
                    *("--profile", "certs/clients/bob.toml"),
                ],
                env=environment,
            )
            assert published.returncode == 0, published.stderr
            out, _ = sub.communicate(timeout=PATIENCE_S)
        stranger = finished([*PLAIT, "pub", "--broker", address, "price=1"], env=environment)

    assert "price=120" in out
    assert stranger.returncode == 3
    assert "connect with --tls-ca, or with a profile" in stranger.stderr


def _path_of_python() -> dict[str, str]:
    import os

    return {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
