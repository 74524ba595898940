"""What the README shows is what happens: its sessions are typed, its programs are run.

Console blocks are one session in one terminal: lines behind `$ ` are typed, the lines that follow
have to appear. In them `...` stands for anything, a number of milliseconds for any, and so does
every number of a simulation, whose random runs change with the code. Python blocks are run between
them, and find the brokers that the session has started; a `text` block behind one is its output.
Ports are replaced by free ones.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import attrs
import pytest

from faulttol.history import HEADER, KINDS

ROOT: Final = Path(__file__).parent.parent
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
PATIENCE_S: Final = 20.0


@attrs.frozen
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str


def blocks(text: str) -> list[Block]:
    return [Block(*match) for match in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]


def with_free_ports(text: str) -> str:
    """Replace every port that the README shows by one that is free."""
    sockets: dict[str, socket.socket] = {}
    for port in sorted(set(re.findall(r"(?<=:)(?:40|91)\d\d\b", text))):
        sockets[port] = socket.create_server(("127.0.0.1", 0))
    for port, reserved in sockets.items():
        text = re.sub(rf"(?<=:){port}\b", str(reserved.getsockname()[1]), text)
        reserved.close()
    return text


def shape_of(line: str, *, is_simulated: bool) -> re.Pattern[str]:
    number = r"(?P<number>\d[\d.,]*)" + ("" if is_simulated else "(?= ms)")
    shape, end = "", 0
    for token in re.finditer(rf"(?P<anything>\.\.\.)|(?P<blanks> +)|{number}", line):
        assert token.lastgroup is not None
        wild = {"anything": ".*", "blanks": " +", "number": r"\d[\d.,]*"}[token.lastgroup]
        shape += re.escape(line[end : token.start()]) + wild
        end = token.end()
    return re.compile(shape + re.escape(line[end:]))


class Terminal:
    """Types commands, and keeps what anybody prints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: list[str] = []
        self._background: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        # What a person has done who followed the README: our commands are on the PATH.
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        }

    def type(self, command: str, expected: list[str]) -> None:
        """Run a command, or begin it if it ends in `&`; the expected lines have to appear."""
        shown_before = len(self._lines)
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command.removesuffix('&')}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        reader = threading.Thread(target=self._keep, args=(process.stdout,))
        reader.start()
        self._readers.append(reader)
        if command.endswith("&"):
            self._background.append(process)
        else:
            assert process.wait(PATIENCE_S) == 0, f"$ {command}: exit code {process.returncode}"
            reader.join()
        for line in expected:
            self._expect(line, shown_before, command)

    def _keep(self, output: IO[str]) -> None:
        with output:
            self._lines.extend(line.rstrip("\n") for line in output)

    def _expect(self, line: str, since: int, command: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        shape = shape_of(line, is_simulated=command.startswith("plait simulate"))
        while not any(shape.fullmatch(shown) for shown in self._lines[since:]):
            output = "\n".join(self._lines[since:])
            assert time.monotonic() < deadline, f"$ {command}\nexpected: {line}\nshown:\n{output}"
            time.sleep(0.02)

    def close(self) -> None:
        # The last that came goes first: whoever leaves wants to tell somebody.
        for process in reversed(self._background):
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    for name in ("topologies", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def commands_of(session: str) -> list[tuple[str, list[str]]]:
    commands: list[tuple[str, list[str]]] = []
    for line in session.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), []))
        elif commands[-1][0].endswith("\\"):
            commands[-1] = (commands[-1][0].removesuffix("\\") + line.strip(), [])
        elif line.strip() not in ("", "..."):
            commands[-1][1].append(line)
    return commands


@pytest.mark.processes
def test_the_sessions_and_programs_of_the_readme_do_what_it_says(
    terminal: Terminal, tmp_path: Path
) -> None:
    shown = blocks(with_free_ports(README))
    for block, next_block in zip(shown, [*shown[1:], Block("", "")], strict=True):
        if block.language == "console":
            for command, expected in commands_of(block.text):
                terminal.type(command, expected)
        elif block.language == "python":
            program = tmp_path / "program.py"
            program.write_text(block.text)
            expected = next_block.text.splitlines() if next_block.language == "text" else []
            terminal.type(f"python {program.name}", expected)


def test_the_commands_for_newcomers_are_there_and_can_be_run() -> None:
    (first_screen,) = [block for block in blocks(README) if block.language == "sh"][:1]
    commands = re.findall(r"^(\./\S+)", first_screen.text, re.M)

    assert commands == ["./scripts/demo", "./scripts/test"]
    assert all(os.access(ROOT / command, os.X_OK) for command in commands)


def test_the_table_of_the_history_is_exact() -> None:
    """Somebody writes a reader from this table: every kind, every field, nothing else."""
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*?) \| .* \|$", README, re.M)
    table = {
        kind: set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", fields)))
        for kinds, fields in rows
        for kind in re.findall(r"`(\w+)`", kinds)
    }

    assert table == {kind: {field.name for field in fields} for kind, fields in KINDS.items()}
    assert all(f"`{field.name}`" in README for field in HEADER)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)

    assert [link for link in links if not (ROOT / link).exists()] == []
