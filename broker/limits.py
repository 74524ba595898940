"""Every limit of a node, named once, with its unit and the reason for its default.

Limits are enforced where bytes enter (the codec) or where state grows (the cores).
Breaking one closes the link it came over, with a reason, and touches nothing else.

What one broker has accepted, every other one accepts as well. So each field of a message has a
limit of its own, and none is about a whole message: with every field at its limit, the path at its
longest and every counter at its largest, a message still fits into a frame. A list, which may be
of any length, travels in portions. `encode` refuses what a peer would refuse.
"""

from functools import cached_property
from typing import Final

import attrs

HEARTBEATS_MIN: Final = 2
"""That fit into a timeout: one of them may be late."""

REASON_CHARS_MAX: Final = 1024
"""A reason in words, for people; what it quotes may be as long as a content. It is cut there."""

PROOF_CHARS_MAX: Final = 4096
"""What somebody shows to be let in: a token, or a message about a password."""

COUNTER_BYTES: Final = 9
"""One integer on the wire, at most."""
UTF8_BYTES: Final = 4
"""One character on the wire, at most."""

ERAS_MAX: Final = 1 << 31
"""How often a neighbour may say that the streams of a link have begun anew: far more often than
they can have, and they can once more."""

STEPS_AT_ONCE: Final = 1 << 32
"""Steps of a broker that may pass unheard: far more than there ever are, and few of those that can
be counted. After the last one nobody could rebuild it."""

INCARNATION_MAX: Final = (1 << 53) - 1
"""What every reader of JSON reads exactly; as milliseconds since 1970, the year 287396."""
STATE_BYTES_MAX: Final = 64 << 20
"""What a broker reads of its state file: 100,000 seats with long names."""


@attrs.frozen(kw_only=True)
class Limits:
    """What a node accepts, keeps and waits for."""

    # Bytes that enter.
    frame_bytes_max: int = 1 << 20
    """One message, or one portion of its lists. A body is opaque and may be a picture; a film
    belongs elsewhere."""
    portion_bytes_max: int = 256 << 10
    """From here on the lists of a message travel in portions: some 20 ms of work each."""
    lists_bytes_max: int = 16 << 20
    """Of all portions of one message together: who plays 100,000 brokers fits."""
    logs_bytes_max: int = 2 << 20
    """Step logs in one message, in portions too: some 700,000 steps. In memory they are a hundred
    times as large, and a log that has grown so long means that something is not made stable."""
    attributes_max: int = 64
    """Attributes of one publication: more is a document, which belongs in the body."""
    content_bytes_max: int = 16 << 10
    """All attributes of one publication, encoded: they are what brokers index and cache."""
    status_clients_max: int = 500
    """Clients that a status report describes; it says how many there are."""
    name_chars_max: int = 255
    """A node id; also a file name of the history."""
    address_chars_max: int = 300
    """`host:port`: a host name has 253 characters at most."""
    number_max: int = 2**63 - 1
    """Any count or incarnation: half of what the wire can hold, so that there is a next one."""
    path_nodes_max: int = 32
    """Hops carried by an operation: δ + 1 of them, and nobody tolerates more than 31 crashes."""

    # State that grows.
    links_max: int = 4608
    """Connections a broker holds open, greeted or not."""
    strangers_max: int = 256
    """Those of them whose peer has not said who it is: one more, and the oldest is closed of the
    address from which most of them come. Whoever speaks at once is a stranger for a moment only."""
    clients_max: int = 4096
    """Clients of one broker: the other connections are for brokers, monitors and strangers."""
    subscriptions_per_client_max: int = 100_000
    advertisements_per_client_max: int = 10_000
    unconfirmed_publications_max: int = 20_000
    """Publications sent to one client and not yet confirmed by it; one more isolates the client.
    It is more than `publish_window_max`: that a client is slow, its lag tells before one publisher
    alone has to wait for it."""
    send_buffer_bytes_max: int = 64 << 20
    """Bytes waiting for one link's socket; a client beyond it is isolated."""
    sending_bytes_max: int = 256 << 20
    """The same of all links of a node together; beyond it, whoever but a broker has most of it is
    cut off, then the next."""
    unfinished_bytes_max: int = 64 << 20
    """What has come of messages that are not complete, of all links together; likewise."""
    send_buffer_bytes_high: int = 4 << 20
    """From here on, on a link between brokers, no more is read from clients until it drains."""
    status_held_max: int = 100
    """Held publications that a status report explains; it counts the others."""
    status_skipped_max: int = 10
    """Times of late at which a broker gave up on publications, which a status report explains."""
    cached_routes_max: int = 4096
    """Distinct contents per neighbour whose route is remembered while tables stand still."""
    dropped_clients_max: int = 4096
    """Clients that were dropped and are recognised when they come back: all of a broker's at once.
    Who was dropped before has to begin anew."""
    away_interests_max: int = 1000
    """Advertisements and subscriptions of a client whose connection has ended, with which it may
    miss nothing although its broker fails meanwhile: they are told to that broker's neighbours.
    For one that has more a coordinator waits, as for one that is connected."""
    unheard_steps_max: int = 10_000
    """Steps of a log that are kept until a client has heard that something was refused in them."""
    publish_window: int = 4096
    """Publications of one client that may be unconfirmed before `publish` slows down to
    `publish_rate_min`: far more than are on their way while all subscribers keep up."""
    publish_window_bytes: int = 16 << 20
    """And their bodies, before it slows down to `publish_bytes_rate_min`."""
    publish_rate_min: int = 1000
    """Publications a second that a client may hand over however slow others' subscribers are."""
    publish_bytes_rate_min: int = 2 << 20
    """And bytes of their bodies a second."""
    publish_window_max: int = 16_384
    """Unconfirmed ones at which `publish` waits all the same: the window, and what is handed over
    at the lowest rate until a subscriber that is `stall_timeout_s` behind has been isolated."""
    publish_window_bytes_max: int = 40 << 20
    """And their bodies, likewise: all of it may have to be sent again at once, into one send
    buffer."""
    publish_burst: int = 64
    """Publications that may make up for a pause of the publisher, at the lowest rate."""
    batch_bytes_max: int = 128 << 20
    """What has come over one link of a batch whose end has not: twice what may wait for a link. All
    that is sent again to a client or a broker after a lost connection is one batch."""
    delivery_buffer_max: int = 1024
    """Deliveries an application has not taken yet before its client stops reading."""

    departed_brokers_max: int = 1024
    """Brokers that have left the tree and are known to have: more do not leave while somebody still
    tells that they are there."""
    gone_hosts_max: int = 1024
    """Hosts that have failed, and play nothing, of which this is remembered: likewise."""

    # Time, in seconds.
    dial_timeout_s: float = 3.0
    """For a connection to come about; a machine that is switched off does not even refuse."""
    greeting_timeout_s: float = 5.0
    """From a connection to its greeting; a person typing into netcat is not a peer."""
    heartbeat_interval_s: float = 0.5
    """Every link carries something at least this often."""
    heartbeat_timeout_s: float = 3.0
    """A link silent for so long is dead, and a broker behind it is taken for failed: six
    heartbeats, for machines that swap. (A broker that is killed is noticed at once.) Both are the
    overlay's: who joins takes those of its join point."""
    visit_timeout_s: float = 1.0
    """A host that is asked whether it lives and does not answer for so long is silent."""
    stall_timeout_s: float = 10.0
    """A client that has not confirmed for so long what it was sent is isolated."""
    isolated_at_once: int = 100
    """Clients isolated in one step, and"""
    skipped_at_once: int = 4000
    """publications given up with them, or it ends with the client that brings it beyond that: what
    thousands leave behind that vanish together would hold up everybody else."""
    isolation_pause_s: float = 0.02
    """Until it is the turn of the next ones."""
    redial_first_s: float = 0.05
    """The first pause before dialling again; it doubles every time."""
    redial_last_s: float = 1.0
    """But no further than this."""
    fence_pause_first_s: float = 0.5
    """A broker that is fenced comes back at once; the second time after this pause, and it doubles
    every time: whoever fences it may go on doing so."""
    fence_pause_last_s: float = 30.0
    """But no further than this."""
    fence_memory_s: float = 120.0
    """A broker that has not been fenced for so long begins anew with that."""
    resume_timeout_s: float = 5.0
    """A client whose connection was lost may come back for so long and miss nothing."""
    attach_portion: int = 200
    """Advertisements, and subscriptions, in one message of an attachment: some 20 ms to read."""
    attach_steps: int = 5_000
    """Steps of a log in one, likewise."""
    attached_items_max: int = 1 << 20
    """Of all that one node attaches: publications, entries, steps; ten times what there should be
    after the longest time for which a slow client is waited for."""
    attached_bytes_max: int = 256 << 20
    """Bodies and contents of what one node attaches; no node has more on its way."""
    step_s: float = 0.02
    """What one link has sent is taken in for about so long, then it is the turn of others."""
    progress_delay_s: float = 0.02
    """Confirmations wait so long for company; nobody waits for them but for urgent ones."""
    progress_batch: int = 64
    """Or until there are so many."""
    clocks_apart_max_s: float = 86_400.0
    """An incarnation is the time at which a life began, by the clock of its machine: one that is
    further ahead of a broker's clock is a mistake, and would bar that name for as long."""
    unconfirmed_pause_s: float = 0.05
    """Between two reads of a client whose principal has more publications unconfirmed than it may:
    it is not stopped, as it may be its own confirmations that are missing."""
    revoke_timeout_s: float = 2.0
    """A client is dropped that has not withdrawn for so long what it may not have any more."""
    reviewed_at_once: int = 200
    """Advertisements and subscriptions that are held against new rules in one step, some 20 ms at
    most; and"""
    review_pause_s: float = 0.02
    """until it is the turn of the next ones."""
    drain_timeout_s: float = 10.0
    """A broker told to stop waits at most so long for what it accepted to become stable."""
    leaving_pause_s: float = 0.2
    """A host told to stop waits so long for others to say that they stop as well, before it hands
    over what it plays: to one that goes, too, it would be in vain."""

    @property
    def id_chars_max(self) -> int:
        """An id is the name of a node and two numbers that make it unique."""
        return self.name_chars_max + 48

    @cached_property
    def body_bytes_max(self) -> int:
        """What a frame has room for beside the largest content, the longest name and counters."""
        name_bytes = UTF8_BYTES * self.name_chars_max
        return self.frame_bytes_max - self.content_bytes_max - name_bytes - 8 * COUNTER_BYTES

    @property
    def report_bytes_max(self) -> int:
        """What a frame has room for beside its own header."""
        return self.frame_bytes_max - 8 * COUNTER_BYTES

    @property
    def answer_timeout_s(self) -> float:
        """For an answer to a client's greeting, or a heartbeat instead.

        Who has been silent, and does not answer now, has been frozen or cut off: the client goes to
        whoever takes over while that still waits for it, a heartbeat timeout long.
        """
        return HEARTBEATS_MIN * self.heartbeat_interval_s

    @property
    def heartbeat_interval_ms(self) -> int:
        """As people and messages have it."""
        return round(1000 * self.heartbeat_interval_s)

    @property
    def heartbeat_timeout_ms(self) -> int:
        """As people and messages have it."""
        return round(1000 * self.heartbeat_timeout_s)

    def with_heartbeats(self, interval_ms: int, timeout_ms: int) -> "Limits":
        """Return the same with other heartbeats; ValueError if one that is late would be fatal."""
        if not 0 < HEARTBEATS_MIN * interval_ms <= timeout_ms:
            raise ValueError(
                f"a heartbeat every {interval_ms} ms and a timeout of {timeout_ms} ms, "
                f"at least {HEARTBEATS_MIN} heartbeats to a timeout expected"
            )
        return attrs.evolve(
            self, heartbeat_interval_s=interval_ms / 1000, heartbeat_timeout_s=timeout_ms / 1000
        )


DEFAULT_LIMITS = Limits()
