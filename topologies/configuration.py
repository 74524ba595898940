"""What a configuration says: the overlay, and how events are routed, ordered and logged."""

import enum
from collections.abc import Mapping
from typing import Final

import attrs

from plait.topologies.language import Notice
from plait.topologies.overlay import Overlay


class ProcessKind(enum.StrEnum):
    """What a process does."""

    BROKER = "broker"
    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"


class RoutingPolicy(enum.StrEnum):
    """Where events go: everywhere, or only towards those interested."""

    FLOODING = "flooding"
    FILTER = "filter"


class Ordering(enum.StrEnum):
    """What subscribers may rely on; see the orderings of `routing`."""

    NONE = "none"
    FIFO = "fifo"
    PAIRWISE = "pairwise"
    SEQUENCER = "sequencer"
    SEQUENCER_FILTERED = "sequencer-filtered"
    PUBLISHED = "published"
    PUBLISHED_PROGRESSIVE = "published-progressive"
    PUBLISHED_WHOLE_QUEUE = "published-whole-queue"
    TNO = "tno"
    TNO_TAGGED = "tno-tagged"
    TNO_PUBLISHED_2011 = "tno-published-2011"
    TNO_PUBLISHED_2015 = "tno-published-2015"


class Detection(enum.StrEnum):
    """How brokers find out what has to wait, under pairwise order; see `routing`'s conflicts."""

    FAST = "fast"
    EXACT = "exact"


class Managers(enum.StrEnum):
    """Where topics are managed, under total notification order."""

    SUMMIT = "summit"
    ROOT = "root"
    HASH = "hash"
    HASH_COUNT = "hash-count"
    HASH_RATE = "hash-rate"


class LoggingLevel(enum.StrEnum):
    """Whether brokers log every forward."""

    FULL = "full"
    LIGHT = "light"


# All that people write for these. The first word for a value is its canonical one.
ROUTING_POLICIES: Final = {
    "flooding": RoutingPolicy.FLOODING,
    "filter": RoutingPolicy.FILTER,
    "filtering": RoutingPolicy.FILTER,
    "filtered": RoutingPolicy.FILTER,
}
ORDERINGS: Final = {
    "NO": Ordering.NONE,
    "NONE": Ordering.NONE,
    "FIFO": Ordering.FIFO,
    "PAIRWISE": Ordering.PAIRWISE,
    "TOTAL": Ordering.PAIRWISE,
    # Total notification order: no two events reach two subscribers in opposite orders. That is
    # the pairwise order under the name it has in the literature on topic-based systems, and there
    # what is published has a topic and a stamp.
    "TNO": Ordering.TNO,
    "TNO-TAGGED": Ordering.TNO_TAGGED,
    "TNO-PUBLISHED-2011": Ordering.TNO_PUBLISHED_2011,
    "TNO-PUBLISHED-2015": Ordering.TNO_PUBLISHED_2015,
    "SEQUENCER": Ordering.SEQUENCER,
    "SEQUENCER-FILTERED": Ordering.SEQUENCER_FILTERED,
    "PUBLISHED": Ordering.PUBLISHED,
    "PUBLISHED-PROGRESSIVE": Ordering.PUBLISHED_PROGRESSIVE,
    "PUBLISHED-WHOLE-QUEUE": Ordering.PUBLISHED_WHOLE_QUEUE,
}
DETECTIONS: Final = {"fast": Detection.FAST, "exact": Detection.EXACT}
MANAGERS: Final = {managers.value: managers for managers in Managers}
LOGGING_LEVELS: Final = {"full": LoggingLevel.FULL, "light": LoggingLevel.LIGHT}


@attrs.frozen
class Heartbeat:
    """How often neighbours let each other hear that they live, and who has failed."""

    interval_ms: int
    timeout_ms: int
    """A neighbour that is silent for so long."""


@attrs.frozen
class Configuration:
    """An overlay and its settings. `urls` has the address of every process that was given one."""

    overlay: Overlay
    routing_policy: RoutingPolicy = RoutingPolicy.FLOODING
    ordering: Ordering = Ordering.FIFO
    logging_level: LoggingLevel = LoggingLevel.LIGHT
    delta: int = 1
    detection: Detection = attrs.field(default=Detection.FAST, kw_only=True)
    managers: Managers = attrs.field(default=Managers.SUMMIT, kw_only=True)
    heartbeat: Heartbeat | None = attrs.field(default=None, kw_only=True)
    """What brokers do without being told, if there is none."""
    urls: Mapping[str, str] = attrs.field(factory=dict)
    warnings: tuple[Notice, ...] = attrs.field(default=(), eq=False)


def kinds_of(overlay: Overlay) -> dict[str, ProcessKind]:
    """Return what each process of an overlay is; a standby is a broker, too."""
    return {
        **dict.fromkeys((*overlay.brokers, *overlay.standbys), ProcessKind.BROKER),
        **dict.fromkeys(overlay.publishers, ProcessKind.PUBLISHER),
        **dict.fromkeys(overlay.subscribers, ProcessKind.SUBSCRIBER),
    }


def format_configuration(configuration: Configuration) -> str:
    """Return the canonical text of a configuration: settings, sites, processes site by site."""
    sites = configuration.overlay.sites
    kinds = kinds_of(configuration.overlay)
    lines = [
        f"RoutingPolicy {_spelled(configuration.routing_policy, ROUTING_POLICIES)}",
        f"Ordering {_spelled(configuration.ordering, ORDERINGS)}",
        f"LoggingLevel {_spelled(configuration.logging_level, LOGGING_LEVELS)}",
        f"Delta {configuration.delta}",
        f"Detection {_spelled(configuration.detection, DETECTIONS)}",
        *_managers_lines(configuration.managers),
        *_heartbeat_lines(configuration.heartbeat),
        "",
        *(f"Site {site.name} Parent {site.parent or 'none'}" for site in sites),
        "",
    ]
    for site in sites:
        for process in site.processes:
            url = configuration.urls.get(process)
            address = f" URL {url}" if url else ""
            lines.append(f"Process {process} Is {kinds[process]} On {site.name}{address}")
    return "".join(f"{line}\n" for line in lines)


def _managers_lines(managers: Managers) -> list[str]:
    return [] if managers is Managers.SUMMIT else [f"Managers {_spelled(managers, MANAGERS)}"]


def _heartbeat_lines(heartbeat: Heartbeat | None) -> list[str]:
    if heartbeat is None:
        return []
    return [f"Heartbeat {heartbeat.interval_ms} Timeout {heartbeat.timeout_ms}"]


def _spelled(value: object, names: Mapping[str, object]) -> str:
    return next(name for name, meaning in names.items() if meaning is value)
