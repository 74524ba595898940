"""Who a host is, and what it goes by."""

from functools import cached_property

import attrs

from plait.broker.limits import Limits
from plait.broker.machine.interests import POLICIES
from plait.broker.messages import Life, Settings, Welcome
from plait.broker.principals import Protection
from plait.routing.conflicts import DETECTIONS
from plait.routing.ids import NodeId
from plait.routing.orderings import MANAGERS, ORDERINGS_OF_HOSTS


@attrs.define(eq=False)
class Identity:
    """One host, for those of its parts that have to know."""

    name: NodeId
    incarnation: int
    address: str
    limits: Limits
    settings: Settings
    clients_address: str = ""
    """Where it lets clients and monitors in, if that is another door."""
    protection: Protection = Protection.LOOPBACK
    wall_clock_ms: int = 0
    """What the clock on the wall showed at the start."""
    clock: float = 0.0
    """What the clock of this machine shows, beginning anywhere;"""
    now: float = 0.0
    """and how much of that counts, for whoever waits (`waking.py`)."""
    started_at: float = 0.0
    is_ready: bool = False
    """It has its place in the overlay."""
    is_stopping: bool = False
    """It takes nobody in any more."""

    @cached_property
    def life(self) -> Life:
        """This life of it."""
        return Life(self.name, self.incarnation)

    @property
    def newest_incarnation(self) -> int:
        """None is later: they are taken from clocks, and one that is far ahead is a mistake.

        It would bar whatever follows under that name.
        """
        elapsed_s = self.clock - self.started_at
        return self.wall_clock_ms + round(1000 * (elapsed_s + self.limits.clocks_apart_max_s))

    def objection_to(self, welcome: Welcome) -> str | None:
        """What of the settings of an overlay is unknown here."""
        settings = welcome.settings
        for what, value, known in (
            ("orders by", settings.ordering, ORDERINGS_OF_HOSTS),
            ("detects conflicts by", settings.detection, DETECTIONS),
            ("routes by", settings.policy, POLICIES),
            ("has managers of topics at", settings.managers, MANAGERS),
            ("tolerates", settings.delta, range(self.limits.path_nodes_max)),
        ):
            if value not in known:
                return f"{welcome.host} {what} '{value}', unknown here"
        try:
            self._limits_of(welcome)
        except ValueError as error:
            return f"{welcome.host}: {error}"
        return None

    def adopt(self, welcome: Welcome) -> None:
        """Take the settings of the overlay that lets this host in."""
        self.limits = self._limits_of(welcome)
        self.settings = welcome.settings

    def _limits_of(self, welcome: Welcome) -> Limits:
        return self.limits.with_heartbeats(
            welcome.heartbeat_interval_ms, welcome.heartbeat_timeout_ms
        )
