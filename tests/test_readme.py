"""What README and the pages of docs/ show is what happens: sessions are typed, programs are run.

Console blocks of a page are one session in one terminal: lines behind `$ ` are typed, those that
follow have to appear. In them `...` stands for anything, and a number of milliseconds, or of runs a
second, for any. What a seed decides is compared exactly, from the first line to the last; when the
code changes what it decides, `scripts/test tests/test_readme.py --rewrite-samples` shows it anew.
Python blocks are run between the sessions, and find the brokers that these have started;
a `text` block behind one is its output. Ports are replaced by free ones.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import attrs
import pytest

from plait.faulttol.history import HEADER, KINDS
from tests.patience import PATIENCE_S, attempts
from tests.processes import PLAIT, finished, started

ROOT: Final = Path(__file__).parent.parent
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
README_WORDS_MAX: Final = 600
PAGES: Final = {
    path.name: path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}


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


DIGITS: Final = r"\d[\d.,]*"
DEPENDS_ON_THE_MACHINE: Final = rf"{DIGITS}(?= ms| runs a second)"


def shape_of(line: str) -> str:
    """Return the regular expression of a line that is shown."""
    shape, end = "", 0
    for token in re.finditer(
        rf"(?P<anything>\.\.\.)|(?P<blanks> +)|(?P<number>{DEPENDS_ON_THE_MACHINE})", line
    ):
        assert token.lastgroup is not None
        wild = {"anything": ".*", "blanks": " +", "number": DIGITS}[token.lastgroup]
        shape += re.escape(line[end : token.start()]) + wild
        end = token.end()
    return shape + re.escape(line[end:])


def shape_of_output(sample: Sequence[str]) -> str:
    """Return the regular expression of a whole output; a line `...` is any number of lines."""
    return "".join("(?:.*\n)*?" if line == "..." else f"{shape_of(line)}\n" for line in sample)


def sample_of(output: Sequence[str], older: Sequence[str]) -> list[str]:
    """Shorten an output as an older one was: to lines that differ from its in numbers only.

    What was measured stays as it was: the machine may be busy now.
    """
    sample, rest = [], list(output)
    for line in older:
        if line != "...":
            kept = [re.sub(DIGITS, lambda _: DIGITS, re.escape(part)) for part in line.split("...")]
            kind = re.compile(".*".join(f"({part})" for part in kept))
            while (match := kind.fullmatch(rest.pop(0))) is None:
                pass
            measured = re.findall(DEPENDS_ON_THE_MACHINE, line)
            line = "...".join(match.groups())
            for number in measured:
                line = re.sub(DEPENDS_ON_THE_MACHINE, number, line, count=1)
        sample.append(line)
    return sample


class Terminal:
    """Types commands, and keeps what anybody prints."""

    def __init__(self, folder: Path, processes: contextlib.ExitStack) -> None:
        self._folder = folder
        self._processes = processes
        self._lines: list[str] = []
        self._background: list[subprocess.Popen[str]] = []
        # What a person has done who followed the README: our commands are on the PATH.
        self._environment = os.environ | {
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def type(self, command: str, expected: Sequence[str]) -> None:
        """Run a command, or begin it if it ends in `&`; the expected lines have to appear."""
        shown_before = len(self._lines)
        process = self._processes.enter_context(
            started(
                ["/bin/sh", "-c", f"exec {command.removesuffix('&')}"],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
        assert process.stdout is not None
        reader = threading.Thread(target=self._keep, args=(process.stdout,))
        reader.start()
        if command.endswith("&"):
            self._background.append(process)
        else:
            assert process.wait(PATIENCE_S) == 0, f"$ {command}: exit code {process.returncode}"
            reader.join()
        for line in expected:
            self._expect(line, shown_before, command)

    def output_of(self, command: str) -> list[str]:
        """Run a command that nothing else has to do with, and return what it prints."""
        done = finished(["/bin/sh", "-c", command], cwd=self._folder, env=self._environment)
        assert done.returncode == 0, f"$ {command}: exit code {done.returncode}\n{done.stderr}"
        return done.stdout.splitlines()

    def _keep(self, output: IO[str]) -> None:
        with output:
            self._lines.extend(line.rstrip("\n") for line in output)

    def _expect(self, line: str, since: int, command: str) -> None:
        shape = re.compile(shape_of(line))
        for _ in attempts(f"{line!r} after $ {command}"):
            if any(shape.fullmatch(shown) for shown in self._lines[since:]):
                return

    def leave(self) -> None:
        # The last that came goes first: whoever leaves wants to tell somebody.
        for process in reversed(self._background):
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    for name in ("topologies", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    with contextlib.ExitStack() as processes:
        terminal = Terminal(tmp_path, processes)
        yield terminal
        terminal.leave()


def commands_of(session: str) -> list[tuple[str, list[str]]]:
    commands: list[tuple[str, list[str]]] = []
    for line in session.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), []))
        elif commands[-1][0].endswith("\\"):
            commands[-1] = (commands[-1][0].removesuffix("\\") + line.strip(), [])
        else:
            commands[-1][1].append(line)
    return commands


def is_seeded(command: str) -> bool:
    """Whether what a command prints is decided by what is typed, and by nothing else."""
    return command.startswith("plait simulate ")


def is_typed(block: Block) -> bool:
    return block.language in ("console", "python")


@pytest.mark.processes
@pytest.mark.parametrize(
    "page", [n for n, text in PAGES.items() if any(map(is_typed, blocks(text)))]
)
def test_the_sessions_and_programs_of_a_page_do_what_it_says(
    page: str, terminal: Terminal, tmp_path: Path
) -> None:
    shown = blocks(with_free_ports(PAGES[page]))
    for block, next_block in zip(shown, [*shown[1:], Block("", "")], strict=True):
        if block.language == "console":
            for command, expected in commands_of(block.text):
                if not is_seeded(command):
                    lines = [line for line in expected if line.strip() not in ("", "...")]
                    terminal.type(command, lines)
        elif block.language == "python":
            program = tmp_path / "program.py"
            program.write_text(block.text)
            expected = next_block.text.splitlines() if next_block.language == "text" else []
            terminal.type(f"python {program.name}", expected)


SEEDED: Final = [
    (page, command, sample)
    for page, text in PAGES.items()
    for block in blocks(text)
    if block.language == "console"
    for command, sample in commands_of(block.text)
    if is_seeded(command)
]


def test_there_are_samples_that_a_seed_decides() -> None:
    assert {"--seed", "--seeds"} <= {word for _, command, _ in SEEDED for word in command.split()}


@pytest.mark.processes
@pytest.mark.parametrize(("page", "command", "sample"), SEEDED, ids=[c for _, c, _ in SEEDED])
def test_what_a_seed_decides_is_shown_exactly(
    page: str, command: str, sample: list[str], terminal: Terminal, request: pytest.FixtureRequest
) -> None:
    output = terminal.output_of(command)
    if request.config.getoption("--rewrite-samples"):
        before, after = "\n".join(sample), "\n".join(sample_of(output, sample))
        path = ROOT / page if page == "README.md" else ROOT / "docs" / page
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(before, after), encoding="utf-8")
        sample = after.splitlines()

    text = "".join(f"{line}\n" for line in output)
    assert re.fullmatch(shape_of_output(sample), text), (
        f"{page} shows something else (--rewrite-samples mends that):\n{text}"
    )


def test_a_sample_is_compared_to_the_last_digit_and_shortened_as_it_was() -> None:
    sample = ["  0.5  b1 -> b2: Hello node=b1 ...", "...", "3 runs, 20 runs a second."]
    output = [
        *("  0.5  b1 -> b2: Hello node=b1 kind=broker", "  0.6  something else"),
        "3 runs, 7 runs a second.",
    ]
    changed = ["  0.7  b4 -> b2: Hello node=b4 kind=broker", "a", "b", "12 runs, 1 runs a second."]

    assert re.fullmatch(shape_of_output(sample), "\n".join([*output, ""]))
    assert not re.fullmatch(shape_of_output(sample), "\n".join([*changed, ""]))
    assert sample_of(changed, sample) == [
        *("  0.7  b4 -> b2: Hello node=b4 ...", "...", "12 runs, 20 runs a second.")
    ]


def test_the_commands_for_newcomers_are_there_and_can_be_run() -> None:
    (first_screen,) = [block for block in blocks(README) if block.language == "sh"][:1]
    commands = re.findall(r"^(\./\S+)", first_screen.text, re.M)

    assert commands == ["./scripts/demo", "./scripts/test"]
    assert all(os.access(ROOT / command, os.X_OK) for command in commands)


def test_the_table_of_the_history_is_exact() -> None:
    """Somebody writes a reader from this table: every kind, every field, nothing else."""
    page = PAGES["history.md"]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*?) \| .* \|$", page, re.M)
    table = {
        kind: set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", fields)))
        for kinds, fields in rows
        for kind in re.findall(r"`(\w+)`", kinds)
    }

    assert table == {kind: {field.name for field in fields} for kind, fields in KINDS.items()}
    assert all(f"`{field.name}`" in page for field in HEADER)


def anchors_of(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, "ARCHITECTURE.md"])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page if (ROOT / page).exists() else ROOT / "docs" / page
    text = path.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        there = (path.parent / target) if target else path
        assert there.exists(), f"{page} links to {target}"
        if anchor:
            assert anchor in anchors_of(there.read_text(encoding="utf-8")), f"{target}#{anchor}"


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\((\w+\.md)\)", PAGES["index.md"]))

    assert linked == PAGES.keys() - {"README.md", "index.md"}


def test_the_readme_is_short() -> None:
    text = re.sub(r"^```.*?^```", "", README, flags=re.M | re.S)

    assert len(text.split()) <= README_WORDS_MAX


def test_the_picture_of_the_readme_is_drawn_from_the_overlay_that_it_shows(tmp_path: Path) -> None:
    drawn = tmp_path / "overlay.svg"
    conf = ROOT / "topologies" / "demo.conf"
    command = [*PLAIT, "topology", "draw", str(conf), "--svg", str(drawn)]
    assert finished(command).returncode == 0

    assert drawn.read_text() == (ROOT / "docs" / "overlay.svg").read_text()
