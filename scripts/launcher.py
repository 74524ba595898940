"""Starts one operating-system process per broker, watches them, and leaves none behind.

It also does to them what scripts ask for: kills one and starts it again, freezes one and lets it go
on. Each of these is in the history of the run, and there before it is done.

All processes are started at once, because importing is most of what a start costs. Each then waits
to be told its join point (`scripts/supervision.py` is the other end): its parent's address, known
as soon as the parent is ready. So an overlay starts about as fast as the machine can import, and
nobody has to guess which ports are free.

What keeps processes from being left behind, from the usual to the worst:

- the end of the `with` block asks them to stop, leaves of the tree first, so that everything
  accepted drains towards whoever is still there;
- an exception, Ctrl-C among them, asks them all at once, and kills who does not listen;
- if this process is killed, they notice it themselves.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from plait.faulttol.files import make_folder
from plait.scripts.errors import EnvironmentFailedError
from plait.scripts.happenings import BrokerLost, BrokerReady, BrokersStarted, BrokersStopped, Tell
from plait.scripts.hosts import Host, ThisHost

READY_TIMEOUT_S: Final = 60.0
"""Half a second is usual; the rest is for loaded machines."""
READY_TIMEOUT_PER_BROKER_S: Final = 3.0
"""All start at once, and importing half a second each is what a core can do one after the other."""
STOP_TIMEOUT_S: Final = 15.0
"""A broker drains for at most ten seconds, see `broker/limits.py`."""
STOP_TIMEOUT_PER_BROKER_S: Final = 1.0
"""They stop level by level, which in a line is one after the other."""
ABORT_TIMEOUT_S: Final = 2.0
"""After an error nobody waits for a drain."""
POLL_INTERVAL_S: Final = 0.01
LOG_LINES_SHOWN: Final = 8
NAMES_SHOWN: Final = 8
LINE_CHARS_SHOWN: Final = 200


Note = Callable[[str, str], None]
"""Takes a kind of the launcher's records, and the process it is about."""


def no_note(kind: str, about: str) -> None:
    """Write nothing down."""


@attrs.frozen(kw_only=True)
class BrokerPlan:
    """One broker to start; `parent` is the broker it joins at, `None` for the root."""

    name: str
    parent: str | None
    arguments: tuple[str, ...] = ()
    """More options of `plait broker`."""
    listen: str = ""
    """Where it is to listen; at any free port of its host if that is empty."""
    is_guarded: bool = False
    """Whether brokers have a door of their own."""
    host: Host = attrs.field(factory=ThisHost)


class BrokerProcess:
    """One life of a broker: its process, the pipe that ties it to us, its log."""

    def __init__(
        self,
        plan: BrokerPlan,
        log_path: Path,
        *,
        incarnation: int,
        listen: str,
        listen_brokers: str = "",
    ) -> None:
        self.plan = plan
        self.log_path = log_path
        self.incarnation = incarnation
        self.address = ""
        self.address_for_brokers = ""
        """Where others join it."""
        self.ready = trio.Event()
        self.is_killed = False
        """Whether it was we who ended it."""
        self.is_told_to_stop = False
        """Whether it may end by itself."""
        self.ended = trio.Event()
        self.is_frozen = False
        self._pid_there = 0
        command = plan.host.command(
            *("broker", "--json", "--supervised", "--name", plan.name, *plan.arguments),
            *("--incarnation", str(incarnation), "--listen", listen),
            *(("--listen-brokers", listen_brokers) if listen_brokers else ()),
        )
        with log_path.open("ab") as log:
            # Started by this very thread, and not with trio's help, which uses another one: to
            # the kernel the parent of a process is a thread, and trio's threads come and go.
            self._popen = subprocess.Popen(  # noqa: S603 - our own program, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C in a terminal goes to a whole process group; it is ours to handle.
                process_group=0,
            )

    @property
    def pid(self) -> int:
        """The process id, on its own machine."""
        return self._pid_there or self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def tell_join_point(self, address: str) -> None:
        """Let the broker begin; an empty address makes it the root."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # whoever watches it says what happened
            self._popen.stdin.write(f"{address}\n".encode())
            self._popen.stdin.flush()

    async def watch(self) -> int:
        """Note when the broker is ready; return its exit code when it has ended."""
        assert self._popen.stdout is not None
        buffer = b""
        async with trio.lowlevel.FdStream(os.dup(self._popen.stdout.fileno())) as output:
            async for chunk in output:
                buffer += chunk
                if not self.ready.is_set() and b"\n" in buffer:
                    self._take_ready(buffer.split(b"\n")[0])
        # Its output has ended and so has it, give or take a moment.
        return await trio.to_thread.run_sync(self._popen.wait, abandon_on_cancel=True)

    def _take_ready(self, line: bytes) -> None:
        """Read where it listens, as `plait broker --json` says it."""
        try:
            ready = json.loads(line)
            self.address, self._pid_there = str(ready["address"]), int(ready["pid"])
            self.address_for_brokers = str(ready["brokers"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            said = line.decode(errors="replace")[:LINE_CHARS_SHOWN]
            raise EnvironmentFailedError(
                f"broker {self.plan.name}: found {said!r} as the first line of its output, expected"
                " the one by which plait says that it is ready; does a shell there print something?"
            ) from error
        self.ready.set()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one that has ended does not mind."""
        self.plan.host.send(number, self.pid, self._popen)

    def kill(self) -> None:
        """End it as it stands."""
        self.is_killed = True
        self.signal(signal.SIGKILL)

    def ask_to_stop(self) -> None:
        """Let it finish what it has accepted, and end: nobody holds its standard input any more."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()

    def bury(self) -> None:
        """Make sure that it is dead, and leave no zombie and no open pipe."""
        if self.is_frozen:
            self.kill()  # on another machine it could not notice that we are gone
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def last_words(self) -> str:
        """Return the end of its log, for an error message."""
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        end = "".join(f"\n  {line}" for line in lines[-LOG_LINES_SHOWN:])
        return f"the end of {self.log_path}:{end}" if end else f"{self.log_path} is empty"


class RunningOverlay:
    """The brokers of an overlay, all of them ready; and what may be done to them."""

    def __init__(self, launcher: "_Launcher") -> None:
        self._launcher = launcher
        self.is_in_hurry = False
        """Whether nothing more is to be expected of the brokers than to end."""

    @property
    def processes(self) -> Mapping[str, BrokerProcess]:
        """The present life of every broker."""
        return self._launcher.processes

    def address_of(self, broker: str) -> str:
        """Return where a broker listens, `host:port`."""
        return self.processes[broker].address

    def describe(self, sites: Mapping[str, str]) -> dict[str, dict[str, object]]:
        """Return what somebody in another process needs to know of each broker."""
        return {
            name: {"address": process.address, "pid": process.pid, "site": sites[name]}
            for name, process in self.processes.items()
        }

    def crash(self, broker: str) -> None:
        """End a broker as it stands."""
        self._launcher.note("crashed", broker)
        self._launcher.has_faults = True
        self.processes[broker].kill()

    async def stop(self, broker: str) -> None:
        """Ask a process to stop, and wait until it has: what it plays goes on elsewhere."""
        self._launcher.note("stopped", broker)
        process = self.processes[broker]
        process.is_told_to_stop = True
        process.signal(signal.SIGTERM)
        await process.ended.wait()

    async def recover(self, broker: str) -> None:
        """Start a broker that has ended in its next life, at its old address; wait until it serves.

        For `READY_TIMEOUT_S` at most: a broker may have nobody left to join.
        """
        self._launcher.note("restarted", broker)
        await self._launcher.start_again(broker)

    def freeze(self, broker: str) -> None:
        """Stop a broker in its tracks."""
        self._launcher.note("frozen", broker)
        self._launcher.has_faults = True
        self.processes[broker].is_frozen = True
        self.processes[broker].signal(signal.SIGSTOP)

    def unfreeze(self, broker: str) -> None:
        """Let it go on."""
        self._launcher.note("unfrozen", broker)
        self.processes[broker].is_frozen = False
        self.processes[broker].signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def launch(
    plans: Sequence[BrokerPlan], *, log_directory: Path, tell: Tell, note: Note = no_note
) -> AsyncIterator[RunningOverlay]:
    """Start the brokers of a tree, parents before children in `plans`; stop them at the end.

    A broker that ends by itself cancels what runs inside, with `EnvironmentFailedError`; unless
    one has crashed or was frozen before, which it may have been unable to survive.
    """
    launcher = _Launcher(log_directory, tell, note)
    with launcher.burying_all():
        launcher.start_all(plans)
        try:
            async with trio.open_nursery() as launcher.nursery:
                for process in launcher.processes.values():
                    launcher.look_after(process)
                await launcher.all_ready()
                overlay = RunningOverlay(launcher)
                yield overlay
                await launcher.stop_leaves_first(plans, is_in_hurry=overlay.is_in_hurry)
        except BaseException:
            await launcher.stop_at_once()
            raise
    tell(BrokersStopped(len(plans)))


class _Launcher:
    def __init__(self, log_directory: Path, tell: Tell, note: Note) -> None:
        self.processes: dict[str, BrokerProcess] = {}
        self.nursery: trio.Nursery
        self.note = note
        self._log_directory = log_directory
        self._tell = tell
        self._earlier_lives: list[BrokerProcess] = []
        self.has_faults = False
        self._is_stopping = False

    def start_all(self, plans: Sequence[BrokerPlan]) -> None:
        make_folder(self._log_directory)
        for plan in plans:
            self._start(plan, incarnation=1, listen=plan.listen or plan.host.listen)
        self._tell(BrokersStarted(len(plans)))

    def _start(
        self, plan: BrokerPlan, *, incarnation: int, listen: str, listen_brokers: str = ""
    ) -> BrokerProcess:
        log_path = self._log_directory / f"{plan.name}.log"
        process = BrokerProcess(
            plan, log_path, incarnation=incarnation, listen=listen, listen_brokers=listen_brokers
        )
        self.processes[plan.name] = process
        return process

    async def start_again(self, broker: str) -> None:
        before = self.processes[broker]
        self._earlier_lives.append(before)
        process = self._start(
            before.plan,
            incarnation=before.incarnation + 1,
            listen=before.address,
            listen_brokers=before.address_for_brokers if before.plan.is_guarded else "",
        )
        self.look_after(process)
        with trio.move_on_after(READY_TIMEOUT_S):
            await process.ready.wait()

    def look_after(self, process: BrokerProcess) -> None:
        self.nursery.start_soon(self._watch, process)
        self.nursery.start_soon(self._introduce, process)

    @contextlib.contextmanager
    def burying_all(self) -> Iterator[None]:
        """Whatever happens, a second Ctrl-C included: no process is left behind."""
        try:
            yield
        finally:
            for process in (*self._earlier_lives, *self.processes.values()):
                process.bury()

    async def _watch(self, process: BrokerProcess) -> None:
        code = await process.watch()
        process.ended.set()
        may_end = self._is_stopping or process.is_told_to_stop
        if process.is_killed or (may_end and code == 0):
            return
        when = "" if process.ready.is_set() else " before it was ready"
        if self.has_faults:
            self.note("stopped", process.plan.name)
            self._tell(BrokerLost(process.plan.name, f"{_ending(code)}{when}"))
            return
        raise EnvironmentFailedError(
            f"broker {process.plan.name} {_ending(code)}{when}; {process.last_words()}"
        )

    async def _introduce(self, process: BrokerProcess) -> None:
        parent = self.processes[process.plan.parent] if process.plan.parent else None
        if parent:
            await parent.ready.wait()
        process.tell_join_point(parent.address_for_brokers if parent else "")
        await process.ready.wait()
        # In a later life it joins whoever is left, and only it knows whom.
        place = (process.plan.parent or "") if process.incarnation == 1 else None
        self._tell(BrokerReady(process.plan.name, process.pid, process.address, place))

    async def all_ready(self) -> None:
        count = len(self.processes)
        timeout_s = READY_TIMEOUT_S + count * READY_TIMEOUT_PER_BROKER_S
        with trio.move_on_after(timeout_s):
            for process in self.processes.values():
                await process.ready.wait()
            return
        late = [name for name, process in self.processes.items() if not process.ready.is_set()]
        raise EnvironmentFailedError(
            f"{count - len(late)} of {count} brokers ready after {timeout_s:g} s, "
            f"not {_some_of(late)}; {self.processes[late[0]].last_words()}"
        )

    async def stop_leaves_first(self, plans: Sequence[BrokerPlan], *, is_in_hurry: bool) -> None:
        self._is_stopping = True
        if is_in_hurry:
            for process in self.processes.values():
                process.kill()
        timeout_s = STOP_TIMEOUT_S + len(plans) * STOP_TIMEOUT_PER_BROKER_S
        with trio.move_on_after(timeout_s):
            for level in _levels(plans):
                await self._stop([self.processes[name] for name in level])
            return
        late = [name for name, process in self.processes.items() if process.is_running]
        raise EnvironmentFailedError(f"not stopped after {timeout_s:g} s: {_some_of(late)}")

    async def stop_at_once(self) -> None:
        with trio.CancelScope(deadline=trio.current_time() + ABORT_TIMEOUT_S, shield=True):
            await self._stop(self.processes.values())

    async def _stop(self, processes: Iterable[BrokerProcess]) -> None:
        processes = list(processes)
        for process in processes:
            process.ask_to_stop()
        # Looked at, not listened to: after an error nobody is left who watches them.
        while any(process.is_running for process in processes):  # noqa: ASYNC110
            await trio.sleep(POLL_INTERVAL_S)


def _levels(plans: Sequence[BrokerPlan]) -> list[list[str]]:
    """Return the brokers by their depth in the tree, the deepest first."""
    depth: dict[str | None, int] = {None: -1}
    levels: list[list[str]] = []
    for plan in plans:
        depth[plan.name] = depth[plan.parent] + 1
        if depth[plan.name] == len(levels):
            levels.append([])
        levels[depth[plan.name]].append(plan.name)
    return levels[::-1]


def _some_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}"


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by signal {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
