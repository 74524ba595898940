"""The whole wire vocabulary. One bare word per message; the codec knows nothing else.

Links are FIFO and join a node to its neighbour in the tree. A link is greeted once (`Hello`,
`Welcome`) and then carries three kinds of traffic:

*Operations* (`Claim`, `Join`, `Leave`, `Advertise`, `Unadvertise`, `Subscribe`, `Unsubscribe`)
travel hop by hop, are installed where they pass, and are confirmed back (`Confirm`) from the far
ends.

*Publications* (`Publish`) carry nothing that changes from hop to hop, so a broker passes on the
very bytes it received. (Where the root settles everything, it writes a place on each, once.)

*Progress* says with two counters how far a neighbour's side has come with both streams of
publications on that link, see `faulttol/stability.py`.
"""

import enum
from typing import TYPE_CHECKING, Final, Union

import attrs

from broker.limits import REASON_CHARS_MAX
from broker.ticks import translated
from faulttol.neighbourhood import Life, TopologyLink
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId

if TYPE_CHECKING:
    from broker.vocabulary import HostMessage

PROTOCOL_VERSION: Final = 1


class NodeKind(enum.StrEnum):
    """What kind of node greets."""

    BROKER = "broker"
    CLIENT = "client"
    MONITOR = "monitor"
    HOST = "host"
    """A process that stands by, or asks something. Greets in `broker/vocabulary.py` only."""


class RefusalCode(enum.StrEnum):
    """Why an operation was refused; all of them are definite: it did not happen."""

    BAD_FILTER = "bad-filter"
    TOO_MANY = "too-many"
    NOT_OWNER = "not-owner"
    NAME_TAKEN = "name-taken"


class GoodbyeCode(enum.StrEnum):
    """Why a node takes its leave of a link."""

    LEFT = "left"
    SHUTTING_DOWN = "shutting-down"
    PROTOCOL = "protocol"
    ISOLATED = "isolated"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    FENCED = "fenced"
    STRANDED = "stranded"
    DECLINED = "declined"
    ELSEWHERE = "elsewhere"


def _cut(reason: str) -> str:
    """Cut what is said to people, which may quote whatever somebody has sent."""
    if len(reason) <= REASON_CHARS_MAX:
        return reason
    note = f" ... ({len(reason)} characters)"
    return reason[: REASON_CHARS_MAX - len(note)] + note


@attrs.frozen(kw_only=True)
class Past:
    """What a client has behind it when it greets, in this incarnation."""

    published: int = 0
    """The number of the last publication that it has ever handed over: what has been seen of it
    beyond that is another's."""
    secret: str = ""
    """That it was given by `Welcome` when its session began: by this it goes on with that."""


NO_PAST: Final = Past()


@attrs.frozen(kw_only=True)
class Hello:
    """Whoever dials says who it is, and what it still remembers of the peer."""

    version: int
    node: NodeId
    kind: NodeKind
    incarnation: int
    address: str = ""
    """Where it listens, `host:port`; empty for a node that does not."""
    peer: str = ""
    """The node with which it holds unfinished state; empty without any."""
    peer_incarnation: int = 0
    """The incarnation of that; 0 without any."""
    received: int = 0
    """Publications received from that incarnation: what comes after is to be sent again."""
    failed: tuple[Life, ...] = ()
    """Who it knows to have failed; it asks to be adopted in place of its parent among them."""
    is_top: bool = False
    """Whether it is the top of a branch that has been cut off, and comes with all of that."""
    expected: int = 0
    """The incarnation that it looks for, which has failed if a later one answers; 0 for any."""
    is_moving: bool = False
    """Whether it was to be moved here by a parent that has failed: if this broker has not taken it
    over by now, it goes elsewhere."""
    absent_ms: int = 0
    """How long a client has been without its broker; 0 if it had none."""
    past: Past = NO_PAST
    """What a client has behind it."""


@attrs.frozen(kw_only=True)
class Welcome:
    """The answer to `Hello`: the overlay's settings, and whether earlier state stands."""

    node: NodeId
    incarnation: int
    ordering: str
    policy: str
    delta: int
    detection: str
    """How a broker finds out whether a publication has to wait, see `routing/conflicts.py`."""
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    resumed: bool
    received: int
    adopts: bool = False
    """Whether it waits for the `Attach` of a node whose parent has failed."""
    top: str = ""
    """Where the top of the sender's branch listens: the root, unless the branch is cut off."""
    secret: str = ""
    """To a client whose session begins: nobody goes on with it who does not know this."""


@attrs.frozen(kw_only=True)
class Goodbye:
    """The last thing a node says on a link, or its notice that it is about to stop."""

    code: GoodbyeCode
    reason: str = attrs.field(converter=_cut)
    incarnation: int = 0
    """Of the sender, if it is a broker that has begun: any earlier one that answered there has
    failed."""
    instead: str = ""
    """Whom to ask instead: a branch is let in by the top of another one, and nowhere else."""


@attrs.frozen
class Heartbeat:
    """Nothing to say, but still here."""


@attrs.frozen(kw_only=True)
class Join:
    """A node joined `parent`; told to every node within distance δ of the join point."""

    operation: OperationId
    link: TopologyLink
    distance: int
    """Hops from the join point to the receiver."""


@attrs.frozen(kw_only=True)
class Leave:
    """A leaf node leaves; told to whoever was told that it joined."""

    operation: OperationId
    node: NodeId
    distance: int


@attrs.frozen(kw_only=True)
class Claim:
    """A broker asks all others whether a node that has come to it may join under its name.

    Whoever objects says so with `Refuse`, which goes back the same way.
    """

    operation: OperationId
    node: NodeId
    kind: NodeKind
    incarnation: int
    published: int
    """As the node has said in `Hello`."""
    broker: NodeId
    """To which it has come."""


@attrs.frozen(kw_only=True)
class Neighbourhood:
    """What lies within distance δ of the sender: for a node that joins, or when it has changed."""

    links: tuple[TopologyLink, ...]
    closed: tuple[Life, ...] = ()
    """Who has failed, and without whom the tree has been re-formed."""


@attrs.frozen(kw_only=True)
class Summon:
    """A hub tells a broker that stands next to a failed one, and sees whether it lives.

    No greeting comes before it, so nobody believes what it says: whoever is told asks the hub
    itself, at the place that it knows, by a `Summon` of nobody who has failed. The answer to either
    is `Present`; before that may come another `Summon`, with what is known there. Or who was taken
    for the hub tells an orphan, as it has come to know, that somebody else is; that is the last it
    says.
    """

    hub: NodeId
    failed: tuple[Life, ...]
    address: str
    """Of the hub, for a broker that had only begun to join, and may join there instead."""
    links: tuple[TopologyLink, ...] = ()
    """Who stands around the failed, as far as the sender knows; or, before `Present`, where it is
    itself, which was summoned and has a place already."""


@attrs.frozen(kw_only=True)
class Present:
    """The answer to `Summon`: who it is that lives here.

    That a connection comes about proves nothing: the operating system also accepts for a process
    that is stopped, and another one may listen where the one that is meant did.
    """

    node: NodeId
    incarnation: int


@attrs.frozen
class PublicationId:
    """Which publication."""

    publisher: NodeId
    incarnation: int
    seq: int


NO_OPERATION: Final = OperationId("")
"""Of advertisements and subscriptions that are installed everywhere."""


@attrs.frozen
class Had:
    """Somebody got a publication by a subscription that is withdrawn by now."""

    client: NodeId
    place: int
    """Of the publication, among those that an `Attach` announces."""


@attrs.frozen
class Asked:
    """When a subscription was confirmed, so that its client has it, by the clock of who tells.

    Both are 0 if that has not been, and 1 if it was long ago. They differ where it was confirmed
    somewhere else, as nobody knows how long it took to hear of that.
    """

    earliest: int
    latest: int

    @classmethod
    def at(cls, tick: int) -> "Asked":
        """It was confirmed by the one who tells, who knows when."""
        return cls(tick, tick)

    def translated(self, *, told_at: int, since: int, by: int) -> "Asked | None":
        """The same by a clock that showed something from `since` to `by` at `told_at`.

        None if it had not been confirmed.
        """
        if not self.latest:
            return None
        return Asked(
            translated(self.earliest, told_at=told_at, here=since),
            translated(self.latest, told_at=told_at, here=by),
        )


NOT_YET: Final = Asked.at(0)


@attrs.frozen
class Learnt:
    """A broker learnt of a subscription."""

    subscription: SubscriptionId
    tick: int
    """When, by the clock by which it tells when it has settled what."""


@attrs.frozen(kw_only=True)
class Attach:
    """A node whose parent has failed offers itself to the hub, with all that passed between them.

    After it come, in this order and as the ordinary messages, `advertisements` and `subscriptions`
    that lie on its side (with an empty operation: installed everywhere; else the operation under
    which they are being installed), and the publications that are not stable: those `received`
    from the failed parent, in that order, then those `sent` to it.
    """

    now: int
    """What its clock shows: when it settled what, and what was confirmed there, is told by that."""
    advertisements: int
    subscriptions: tuple[Asked, ...]
    """When they were confirmed there."""
    received: int
    sent: tuple[int, ...]
    """When they came there, or were published."""
    links: tuple[TopologyLink, ...]
    """What lies within distance δ of it."""
    seen: tuple[PublicationId, ...]
    """The last publication that it has seen of each publisher; where everything goes by the root,
    on its way down."""
    stable: tuple[PublicationId, ...]
    """Those of which it has heard lately that they are stable."""
    place: int = 0
    """Under `sequencer`: of the last publication that came down to it."""
    settled: tuple[int, ...] = ()
    """When a broker has settled those publications, so that whoever had asked for them by then has
    got them; 0 for those that it has not settled. Of a client: 1 for those that it wanted in order
    when they came."""
    had: tuple[Had, ...] = ()
    failed: tuple[Life, ...] = ()
    """Whose child it was, if anybody's."""
    confirmed: tuple[int, ...] = ()
    """When that had confirmed those advertisements and then those subscriptions, by its own clock,
    by which others among its neighbours tell it, too; 0 if that was long ago."""
    learnt: tuple[Learnt, ...] = ()
    """Of subscriptions beyond the failed parent that ask for what was sent to it."""


@attrs.frozen(kw_only=True)
class Pause:
    """A parent asks the broker that is to take over some of its children to let nothing new in."""

    move: int
    """The giver counts its moves."""


@attrs.frozen(kw_only=True)
class Prepare:
    """A parent tells a child where it is going to be moved: there it asks if the parent fails."""

    move: int
    link: TopologyLink
    """By which it will hang in the tree."""


@attrs.frozen(kw_only=True)
class Prepared:
    """The answer to `Pause` and `Prepare`."""

    move: int
    accepts: bool


@attrs.frozen(kw_only=True)
class Adopt:
    """A parent hands a child over, between which and itself nothing is under way any more.

    After it come, as the ordinary messages, the advertisements and the subscriptions that lie
    behind the child, then the advertisements that it has been told of and has not confirmed, and
    the subscriptions that it has been told of.
    """

    move: int
    now: int
    """What the parent's clock shows."""
    link: TopologyLink
    received: int
    """Publications that the parent has received from the child, all of them stable."""
    sent: int
    """And sent to it."""
    links: tuple[TopologyLink, ...]
    """What lies behind it: who stands next to it, if it fails."""
    stable: tuple[PublicationId, ...]
    """Publications of which those behind it may not have heard yet that they are stable; the first
    child of a move tells it for all."""
    asked: tuple[OperationId, ...]
    """What the child has not confirmed, and the parent is going to ask the one that takes it."""
    advertisements: int
    subscriptions: tuple[Asked, ...]
    """When they were confirmed there."""
    told: int
    known: tuple[Asked, ...]
    """When the subscriptions were confirmed that it has been told of."""


@attrs.frozen(kw_only=True)
class Adopted:
    """The answer to `Adopt`: whether the child is the sender's now."""

    move: int
    node: NodeId
    accepts: bool


@attrs.frozen(kw_only=True)
class Moved:
    """A parent tells a child that it has another parent now."""

    link: TopologyLink


@attrs.frozen(kw_only=True)
class Known:
    """A broker tells its parent a part of what it knows from above: others may have told it.

    What of that is no more the parent withdraws: the end of it may have been lost with who has
    failed.
    """

    advertisements: tuple[AdvertisementId, ...]
    subscriptions: tuple[SubscriptionId, ...]


@attrs.frozen(kw_only=True)
class Top:
    """A parent tells a child that their branch has another top now."""

    address: str


@attrs.frozen(kw_only=True)
class Resume:
    """The move is over, whatever came of it: new publications may be let in."""

    move: int


@attrs.frozen(kw_only=True)
class Withdraw:
    """A client is gone for good, and with it whatever it advertised and subscribed to."""

    operation: OperationId
    client: NodeId
    but: tuple[str, ...] = ()
    """It is back elsewhere, where these advertisements and subscriptions lie, and they stay."""


@attrs.frozen(kw_only=True)
class Advertise:
    """A client announces what it will publish; told to every broker."""

    operation: OperationId
    advertisement: AdvertisementId
    client: NodeId
    filter: str
    path: tuple[NodeId, ...]
    """The last δ + 1 nodes it passed, the sender last."""


@attrs.frozen(kw_only=True)
class Unadvertise:
    """A client will no longer publish under an advertisement."""

    operation: OperationId
    advertisement: AdvertisementId


@attrs.frozen(kw_only=True)
class Subscribe:
    """A client asks for publications; told to brokers from where such can come."""

    operation: OperationId
    subscription: SubscriptionId
    client: NodeId
    filter: str
    ordered: bool
    path: tuple[NodeId, ...]


@attrs.frozen(kw_only=True)
class Unsubscribe:
    """A client no longer asks."""

    operation: OperationId
    subscription: SubscriptionId


@attrs.frozen(kw_only=True)
class Confirm:
    """An operation is installed wherever it had to be, seen from the sender."""

    operation: OperationId
    tick: int = 0
    """When, by the clock of the broker that says so."""


@attrs.frozen(kw_only=True)
class Refuse:
    """An operation was not carried out, and nothing of it remains."""

    operation: OperationId
    code: RefusalCode
    reason: str = attrs.field(converter=_cut)


class Flag:
    """What a publisher may ask for, publication by publication.

    Bits, and plain integers: an `enum.IntFlag` takes half a microsecond for every `&`, which is a
    quarter of what a client spends on a delivery.
    """

    UNORDERED: Final = 1
    """Neither waits for others nor makes others wait."""
    URGENT: Final = 2
    """Its publisher waits for the confirmation: do not let that wait for company."""
    AWAITED: Final = 4
    """Set from hop to hop: the child that sends it up waits until the parent has settled it."""
    NOTICE: Final = 8
    """Only behind `Attach`: stands for the `Settled` of this publication."""
    ACKNOWLEDGED: Final = 16
    """Only behind `Attach`: the sender waited for it to be settled, and it was."""
    UNORDERED_ONLY: Final = 32
    """Set from hop to hop: not for subscriptions that ask for order, which came too late for it."""
    REQUESTED: Final = 64
    """Set from hop to hop under `published`: the receiver is to acknowledge it to the sender."""
    DEFERRED: Final = 128
    """The same: clients behind the receiver wait until the sender has acknowledged it."""


_PLACE_SHIFT: Final = 8
"""Beyond the flags, the same number holds a publication's place: no ordering but one has places,
and to the others they are no bytes."""


@attrs.define
class Publish:
    """A publisher offers one publication. Its fields are the same on every hop.

    Not frozen, as the one class that is made by the hundred thousand every second; nobody
    changes it all the same, except that the codec remembers its bytes.
    """

    publisher: NodeId
    incarnation: int
    """Of the publisher: `seq` goes up within it, and incarnations go up too."""
    seq: int
    flags: int
    content: bytes
    """The attributes, encoded: equal bytes are equal contents, whoever needs more decodes."""
    body: bytes
    frame: bytes | None = attrs.field(default=None, eq=False, repr=False)
    """The bytes it came in as, to be passed on as they are."""

    def with_flags(self, flags: int) -> "Publish":
        """Return the same publication with other flags, to be encoded anew."""
        return Publish(self.publisher, self.incarnation, self.seq, flags, self.content, self.body)

    @property
    def place(self) -> int:
        """Under `sequencer`: its place in the order of the root, which gives it; 0 before that.

        Publications of one publisher may have the same, and then follow each other by number.
        """
        return self.flags >> _PLACE_SHIFT

    def with_place(self, place: int) -> "Publish":
        """Return the same publication with another place, to be encoded anew."""
        return self.with_flags(self.flags & (1 << _PLACE_SHIFT) - 1 | place << _PLACE_SHIFT)


MESSAGE_BYTES: Final = 64
"""What any message counts as, beside a publication's content and body."""


def bytes_of(message: "Message") -> int:
    """About how much room a message takes."""
    if type(message) is Publish:
        return MESSAGE_BYTES + len(message.content) + len(message.body)
    return MESSAGE_BYTES


@attrs.frozen
class Settled:
    """The parent has settled a publication that the child sent up and waits for.

    It travels in the stream of publications down, and its place there says which of them the
    parent settled before, and which after.
    """

    number: int
    """Of the publication, among those that the child has sent up: 1, 2, 3 ..."""


@attrs.frozen(kw_only=True)
class Acknowledge:
    """Under `published`: whoever waits for the sender with this publication no longer has to.

    It travels in the stream of publications, behind everything that has to be known before.
    """

    publisher: NodeId
    incarnation: int
    seq: int


@attrs.frozen(kw_only=True)
class Defer:
    """Under `published`: with the publication that comes next, only these subscriptions wait."""

    subscriptions: tuple[SubscriptionId, ...]


@attrs.frozen
class Place:
    """Where a publication stands in what one subscriber gets."""

    subscriber: NodeId
    number: int
    """1, 2, 3 ... per subscriber, without a gap."""


@attrs.frozen(kw_only=True)
class PlacesRequest:
    """Under `sequencer-filtered`: the root is asked for places for a publication."""

    publisher: NodeId
    incarnation: int
    seq: int
    subscribers: tuple[NodeId, ...]
    """Whoever is to get it."""


@attrs.frozen(kw_only=True)
class PlacesReply:
    """The answer of the root, to the broker where the publication was published."""

    publisher: NodeId
    incarnation: int
    seq: int
    places: tuple[Place, ...]


@attrs.frozen(kw_only=True)
class Placed:
    """Under `sequencer-filtered`: the publication that comes next has these places beyond here."""

    places: tuple[Place, ...]


@attrs.frozen
class Progress:
    """How far the sender's side has come with the two streams of publications on this link.

    From below it counts what is confirmed, from above what is stable.
    """

    received: int
    """Of the publications the sender of this message received over the link."""
    sent: int
    """Of the publications the sender of this message sent over the link."""


@attrs.frozen
class StatusRequest:
    """A monitor asks how the broker is."""


@attrs.frozen(kw_only=True)
class StatusReply:
    """The answer: a JSON document, UTF-8."""

    report: bytes


Notice = Settled | Acknowledge | PlacesRequest | PlacesReply
"""What brokers tell each other in the stream of publications, where its place has a meaning."""

Operation = Join | Leave | Claim | Advertise | Unadvertise | Subscribe | Unsubscribe | Withdraw

_Message = (
    Hello
    | Welcome
    | Goodbye
    | Heartbeat
    | Operation
    | Neighbourhood
    | Confirm
    | Refuse
    | Publish
    | Settled
    | Acknowledge
    | Defer
    | PlacesRequest
    | PlacesReply
    | Placed
    | Progress
    | StatusRequest
    | StatusReply
    | Summon
    | Present
    | Attach
    | Pause
    | Prepare
    | Prepared
    | Adopt
    | Adopted
    | Moved
    | Resume
    | Top
    | Known
)
# By its name, as the other vocabulary is made of parts of this one.
Message = Union[_Message, "HostMessage"]

# The number is the first element on the wire; numbers are never used again for something else.
MESSAGE_TYPES: Final[dict[int, type[Message]]] = {
    1: Publish,
    2: Progress,
    3: Heartbeat,
    4: Hello,
    5: Welcome,
    6: Goodbye,
    7: Join,
    8: Leave,
    9: Neighbourhood,
    10: Advertise,
    11: Unadvertise,
    12: Subscribe,
    13: Unsubscribe,
    14: Confirm,
    15: Refuse,
    16: StatusRequest,
    17: StatusReply,
    18: Settled,
    19: Summon,
    20: Attach,
    21: Withdraw,
    22: Present,
    23: Pause,
    24: Prepare,
    25: Prepared,
    26: Adopt,
    27: Adopted,
    28: Moved,
    29: Resume,
    30: Acknowledge,
    31: Defer,
    32: PlacesRequest,
    33: PlacesReply,
    34: Placed,
    35: Top,
    36: Known,
    37: Claim,
}
