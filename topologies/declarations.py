"""The lines of a configuration: how each is read, and what they amount to together."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from plait.topologies.checks import circles, root_flaws, unknown_parents
from plait.topologies.configuration import (
    DETECTIONS,
    LOGGING_LEVELS,
    MANAGERS,
    ORDERINGS,
    ROUTING_POLICIES,
    Configuration,
    Detection,
    Heartbeat,
    LoggingLevel,
    Managers,
    Ordering,
    ProcessKind,
    RoutingPolicy,
)
from plait.topologies.errors import Position, Problem, nearest
from plait.topologies.language import Line, Notice, NoticeKind, quoted
from plait.topologies.overlay import Overlay, Site

URL: Final = re.compile(r"[a-z]+://([^\s/:]+|\[[0-9a-f:.]+\]):([0-9]{1,5})(/\S*)?", re.IGNORECASE)
PORT_MAX: Final = 65535

HEARTBEATS_MIN: Final = 2
"""That fit into a timeout: one of them may be late."""

SettingValue = (
    RoutingPolicy | Ordering | Detection | Managers | LoggingLevel | Heartbeat | int | None
)


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
    more: str = ""
    """What follows the URL, for other programs."""


@attrs.frozen
class SettingLine:
    """Any other line: the attribute of the configuration that it sets.

    A value of `None` is no value: somebody has copied `NO|FIFO|TOTAL` from a manual.
    """

    at: Position
    attribute: str
    value: SettingValue


@attrs.define
class Unclear:
    """Names that may be declared where nothing was understood: they are not called unknown.

    One mistake should not be reported as several.
    """

    words: set[str] = attrs.field(factory=set)
    """On lines that were not understood."""
    is_anything: bool = False
    """Whether a file is missing, in which there may be any."""

    def __contains__(self, name: object) -> bool:
        """Tell whether a name may be declared there."""
        return self.is_anything or name in self.words

    def __bool__(self) -> bool:
        """Tell whether anything may be."""
        return self.is_anything or bool(self.words)


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
    url, more = None, ""
    if not (line.is_at_end or line.is_at_remark):
        line.keyword("URL")
        url = line.word("a URL like tcp://host:port/name")
        if not (line.is_at_end or line.is_at_remark):
            more = line.rest("more URLs")
    return ProcessLine(at, name, kind, site, site_at, url, more)


def _choice(attribute: str, values: Mapping[str, SettingValue]) -> Callable[[Line], SettingLine]:
    def read(line: Line) -> SettingLine:
        at = line.here
        alternatives = line.peek().upper().split("|")
        if len(alternatives) > 1 and {value.upper() for value in values}.issuperset(alternatives):
            line.word("a value")
            return SettingLine(at, attribute, None)
        return SettingLine(at, attribute, values[line.keyword(*values)])

    return read


def _delta(line: Line) -> SettingLine:
    at = line.here
    return SettingLine(at, "delta", line.whole_number("failures to survive"))


def _heartbeat(line: Line) -> SettingLine:
    at = line.here
    if line.peek() == "0":
        raise line.wrong("milliseconds between two heartbeats, at least 1")
    interval_ms = line.whole_number("milliseconds between two heartbeats")
    line.keyword("Timeout")
    least_ms = HEARTBEATS_MIN * interval_ms
    if line.peek().isdecimal() and int(line.peek()) < least_ms:
        raise line.wrong(f"{HEARTBEATS_MIN} heartbeats or more, so at least {least_ms}")
    timeout_ms = line.whole_number("milliseconds of silence")
    return SettingLine(at, "heartbeat", Heartbeat(interval_ms, timeout_ms))


DECLARATIONS: Final[Mapping[str, Callable[[Line], Declaration]]] = {
    "Site": _site,
    "Process": _process,
    "RoutingPolicy": _choice("routing_policy", ROUTING_POLICIES),
    "Ordering": _choice("ordering", ORDERINGS),
    "Detection": _choice("detection", DETECTIONS),
    "Managers": _choice("managers", MANAGERS),
    "OrderingPolicy": _choice("ordering", ORDERINGS),
    "LoggingLevel": _choice("logging_level", LOGGING_LEVELS),
    "Delta": _delta,
    "Heartbeat": _heartbeat,
}


def declaration_problems(
    declarations: Sequence[Declaration], file: str, unclear: Unclear
) -> Iterator[Problem]:
    """Yield what keeps these lines from making a configuration, whatever is unclear."""
    sites: dict[str, SiteLine] = {}
    processes: dict[str, ProcessLine] = {}
    for line in declarations:
        match line:
            case SiteLine():
                yield from _added(line, sites, "site")
            case ProcessLine():
                yield from _added(line, processes, "process")
    if (lone := _lone_site(processes.values())) is not None and not sites:
        sites[lone.name] = lone
    yield from _tree_problems(sites, file, unclear)
    for process in processes.values():
        if process.site not in sites and process.site not in unclear:
            suggestion = nearest(process.site, sites)
            yield Problem(process.site_at, quoted(process.site), "a site declared here", suggestion)
    staffed = _staffed(declarations)
    for site in sites.values():
        if not any(name in staffed or name in unclear for name in _climb(site.name, sites)):
            yield Problem(site.at, f"site '{site.name}' without a broker", "one broker or more")


def _staffed(declarations: Sequence[Declaration]) -> set[str]:
    """Return the sites that have a broker."""
    return {
        line.site
        for line in declarations
        if isinstance(line, ProcessLine) and line.kind is ProcessKind.BROKER
    }


def _climb(site: str, sites: Mapping[str, SiteLine]) -> list[str]:
    """Return a site and those above it, to the root or as far as they make sense."""
    climb: list[str] = []
    here: str | None = site
    while here is not None and here in sites and here not in climb:
        climb.append(here)
        here = sites[here].parent
    return climb


def _lone_site(processes: Iterable[ProcessLine]) -> SiteLine | None:
    """Return the one site that there is: if nobody has declared any, it can only be the root."""
    places = {line.site: line.site_at for line in reversed([*processes])}
    if len(places) != 1:
        return None
    ((name, at),) = places.items()
    return SiteLine(at, name, None, at)


Named = TypeVar("Named", SiteLine, ProcessLine)


def _added(line: Named, known: dict[str, Named], kind: str) -> Iterator[Problem]:
    first = known.setdefault(line.name, line)
    if first is not line and not _is_same(line, first):
        expected = f"a {kind} name not yet taken, as it is at {first.at}"
        yield Problem(line.at, f"a second {kind} '{line.name}'", expected)


def _is_same(one: SiteLine | ProcessLine, other: SiteLine | ProcessLine) -> bool:
    """Tell whether two lines say the same, wherever they stand."""
    return _said(one) == _said(other)


def _said(line: SiteLine | ProcessLine) -> tuple[object, ...]:
    values = (getattr(line, field.name) for field in attrs.fields(type(line)))
    return tuple(value for value in values if not isinstance(value, Position))


def _tree_problems(sites: Mapping[str, SiteLine], file: str, unclear: Unclear) -> Iterator[Problem]:
    if not sites and not unclear:
        yield Problem(Position(file, 1, 1), "no site", "a line 'Site NAME Parent none'")
        return
    parents = {name: line.parent for name, line in sites.items()}
    has_root = None in parents.values()
    flaws = [
        *(root_flaws(parents) if has_root or not unclear else ()),
        *(flaw for flaw in unknown_parents(parents) if parents[flaw.node] not in unclear),
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
    notices: list[Notice] = []
    sites: dict[str, SiteLine] = {}
    processes: dict[str, ProcessLine] = {}
    settings: dict[str, Any] = {}
    for line in declarations:
        match line:
            case SiteLine():
                if sites.setdefault(line.name, line) is not line:
                    notices.append(_repeated(line))
            case ProcessLine():
                if line.more:
                    text = f"{quoted(line.more)} behind the URL is left aside"
                    notices.append(Notice(NoticeKind.UNUSED_LINE, line.at, text))
                if processes.setdefault(line.name, line) is not line:
                    notices.append(_repeated(line))
                elif line.url is not None and address_in(line.url) is None:
                    text = f"{quoted(line.url)} is no address, which matters with --use-urls only"
                    notices.append(Notice(NoticeKind.ODD_URL, line.at, text))
            case SettingLine(value=None):
                text = f"{line.attribute} is not set"
                notices.append(Notice(NoticeKind.NO_CHOICE, line.at, text))
            case SettingLine():
                if line.attribute in settings:
                    text = f"{line.attribute} is set once more; the last one holds"
                    notices.append(Notice(NoticeKind.REPEATED_SETTING, line.at, text))
                settings[line.attribute] = line.value
    if (lone := _lone_site(processes.values())) is not None and not sites:
        sites[lone.name] = lone
        text = f"'{lone.name}' is taken to be the only one"
        notices.append(Notice(NoticeKind.NO_SITE, lone.at, text))
    staffed = _staffed(declarations)
    # A site without a broker is served by the nearest one above it that has some.
    homes = {
        name: next(above for above in _climb(name, sites) if above in staffed) for name in sites
    }
    for name, home in homes.items():
        if home != name:
            text = f"what is at '{name}' belongs to '{home}'"
            notices.append(Notice(NoticeKind.NO_BROKER, sites[name].at, text))
    return Configuration(
        overlay=Overlay(_sites(sites, processes.values(), homes)),
        urls={line.name: line.url for line in processes.values() if line.url is not None},
        warnings=tuple(notices),
        **settings,
    )


def _repeated(line: SiteLine | ProcessLine) -> Notice:
    return Notice(NoticeKind.REPEATED_LINE, line.at, f"'{line.name}' is declared once more")


def address_in(url: str) -> str | None:
    """Return the `host:port` of a URL; `None` if it has none."""
    match = URL.fullmatch(url)
    return f"{match[1]}:{match[2]}" if match is not None and int(match[2]) <= PORT_MAX else None


def _sites(
    sites: Mapping[str, SiteLine],
    processes: Iterable[ProcessLine],
    homes: Mapping[str, str],
) -> Iterator[Site]:
    names: dict[tuple[str, ProcessKind], tuple[str, ...]] = defaultdict(tuple)
    for process in processes:
        names[homes[process.site], process.kind] += (process.name,)
    for name, line in sites.items():
        if homes[name] == name:
            yield Site(
                name=name,
                parent=None if line.parent is None else homes[line.parent],
                brokers=names[name, ProcessKind.BROKER],
                publishers=names[name, ProcessKind.PUBLISHER],
                subscribers=names[name, ProcessKind.SUBSCRIBER],
            )
