"""The lines of a configuration: how each is read, and what they amount to together."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from topologies.checks import circles, root_flaws, unknown_parents
from topologies.configuration import (
    DETECTIONS,
    LOGGING_LEVELS,
    ORDERINGS,
    ROUTING_POLICIES,
    Configuration,
    Detection,
    LoggingLevel,
    Ordering,
    ProcessKind,
    RoutingPolicy,
)
from topologies.errors import Position, Problem, nearest
from topologies.language import Line, Notice, NoticeKind, quoted
from topologies.overlay import Overlay, Site

URL: Final = re.compile(r"[a-z]+://[^\s/:]+:[0-9]{1,5}(/\S*)?", re.IGNORECASE)

SettingValue = RoutingPolicy | Ordering | Detection | LoggingLevel | int


@attrs.frozen
class SiteLine:
    """`Site S Parent P`; no parent makes it the root."""

    at: Position
    name: str
    parent: str | None
    parent_at: Position


@attrs.frozen
class ProcessLine:
    """`Process N Is KIND On S`, and perhaps its URL."""

    at: Position
    name: str
    kind: ProcessKind
    site: str
    site_at: Position
    url: str | None


@attrs.frozen
class SettingLine:
    """Any other line: the attribute of the configuration that it sets."""

    at: Position
    attribute: str
    value: SettingValue


Declaration = SiteLine | ProcessLine | SettingLine


def _site(line: Line) -> SiteLine:
    at = line.here
    name = _site_name(line)
    line.keyword("Parent")
    parent_at = line.here
    if line.peek().lower() == "none":
        line.keyword("none")
        return SiteLine(at, name, None, parent_at)
    return SiteLine(at, name, _site_name(line), parent_at)


def _site_name(line: Line) -> str:
    if line.peek().lower() == "none":
        raise line.wrong("a site name other than 'none', which means no parent")
    return line.name("site")


def _process(line: Line) -> ProcessLine:
    at = line.here
    name = line.name("process")
    line.keyword("Is")
    kind = ProcessKind(line.keyword(*ProcessKind))
    line.keyword("On")
    site_at = line.here
    site = _site_name(line)
    url = None
    if not line.is_at_end:
        line.keyword("URL")
        if not URL.fullmatch(line.peek()):
            raise line.wrong("a URL like tcp://host:port/name")
        url = line.word("a URL")
    return ProcessLine(at, name, kind, site, site_at, url)


def _choice(attribute: str, values: Mapping[str, SettingValue]) -> Callable[[Line], SettingLine]:
    def read(line: Line) -> SettingLine:
        at = line.here
        return SettingLine(at, attribute, values[line.keyword(*values)])

    return read


def _delta(line: Line) -> SettingLine:
    at = line.here
    return SettingLine(at, "delta", line.whole_number("failures to survive"))


DECLARATIONS: Final[Mapping[str, Callable[[Line], Declaration]]] = {
    "Site": _site,
    "Process": _process,
    "RoutingPolicy": _choice("routing_policy", ROUTING_POLICIES),
    "Ordering": _choice("ordering", ORDERINGS),
    "Detection": _choice("detection", DETECTIONS),
    "LoggingLevel": _choice("logging_level", LOGGING_LEVELS),
    "Delta": _delta,
}


def declaration_problems(
    declarations: Sequence[Declaration], file: str, unread: Collection[str]
) -> Iterator[Problem]:
    """Yield what keeps these lines from making a configuration.

    `unread` are the words on lines that were not understood. A name among them is not called
    unknown: one mistake should not be reported as several.
    """
    sites: dict[str, SiteLine] = {}
    processes: dict[str, ProcessLine] = {}
    for line in declarations:
        match line:
            case SiteLine():
                yield from _added(line, sites, "site")
            case ProcessLine():
                yield from _added(line, processes, "process")
    yield from _tree_problems(sites, file, unread)
    for process in processes.values():
        if process.site not in sites and process.site not in unread:
            suggestion = nearest(process.site, sites)
            yield Problem(process.site_at, quoted(process.site), "a site declared here", suggestion)
    staffed = {line.site for line in processes.values() if line.kind is ProcessKind.BROKER}
    for site in sites.values():
        if site.name not in staffed and site.name not in unread:
            yield Problem(site.at, f"site '{site.name}' without a broker", "one broker or more")


Named = TypeVar("Named", SiteLine, ProcessLine)


def _added(line: Named, known: dict[str, Named], kind: str) -> Iterator[Problem]:
    first = known.setdefault(line.name, line)
    if first is not line:
        expected = f"a {kind} name not yet taken, as it is at {first.at}"
        yield Problem(line.at, f"a second {kind} '{line.name}'", expected)


def _tree_problems(
    sites: Mapping[str, SiteLine], file: str, unread: Collection[str]
) -> Iterator[Problem]:
    if not sites and not unread:
        yield Problem(Position(file, 0, 0), "no site", "a line 'Site NAME Parent none'")
        return
    parents = {name: line.parent for name, line in sites.items()}
    has_root = None in parents.values()
    flaws = [
        *(root_flaws(parents) if has_root or not unread else ()),
        *(flaw for flaw in unknown_parents(parents) if parents[flaw.node] not in unread),
        *circles(parents),
    ]
    for flaw in flaws:
        site = sites[flaw.node]
        suggestion = nearest(site.parent, sites) if site.parent and site.parent not in sites else ""
        yield Problem(site.parent_at, flaw.found, flaw.expected, suggestion)


def assemble(declarations: Sequence[Declaration]) -> Configuration:
    """Return what these lines declare, once `declaration_problems` has found nothing wrong.

    They may come in any order, except that the first broker of a site is the one in charge.
    """
    processes = [line for line in declarations if isinstance(line, ProcessLine)]
    settings: dict[str, Any] = {}
    notices = []
    for line in declarations:
        if isinstance(line, SettingLine):
            if line.attribute in settings:
                text = f"{line.attribute} is set once more; the last one holds"
                notices.append(Notice(NoticeKind.REPEATED_SETTING, line.at, text))
            settings[line.attribute] = line.value
    return Configuration(
        overlay=Overlay(_sites(declarations, processes)),
        urls={line.name: line.url for line in processes if line.url is not None},
        warnings=tuple(notices),
        **settings,
    )


def _sites(declarations: Sequence[Declaration], processes: Sequence[ProcessLine]) -> Iterator[Site]:
    names: dict[tuple[str, ProcessKind], tuple[str, ...]] = defaultdict(tuple)
    for process in processes:
        names[process.site, process.kind] += (process.name,)
    for line in declarations:
        if isinstance(line, SiteLine):
            yield Site(
                name=line.name,
                parent=line.parent,
                brokers=names[line.name, ProcessKind.BROKER],
                publishers=names[line.name, ProcessKind.PUBLISHER],
                subscribers=names[line.name, ProcessKind.SUBSCRIBER],
            )
