"""All that nodes say to each other. One bare word per message; the codec knows nothing else.

A connection joins two nodes that stand next to each other in the tree, at whichever hosts they are.
It is greeted (`Hello`, `Welcome`) and then carries *batches*: what one node sends the other in one
of its steps, closed by `EndOfStep`. A batch is taken whole, in one step, or has not happened. In
batches travel

*operations* (`Join`, `Leave`, `Claim`, `Introduce`, `Advertise`, `Unadvertise`, `Subscribe`,
`Unsubscribe`), hop by hop: they are installed where they pass, and confirmed back (`Confirm`) from
the far ends;

*publications* (`Publish`), which carry nothing that changes from hop to hop but flags, so that a
broker passes on the very bytes it received; and what orderings have to say in the same streams.

Between batches there is `Progress`, and what hosts tell each other: who plays which broker and who
has failed (`Seating`), what is asked when somebody is silent, and what is said when a broker is
taken up elsewhere.
"""

import enum
from functools import cached_property
from typing import Final

import attrs

from plait.broker.limits import REASON_CHARS_MAX
from plait.faulttol.steplog import Place
from plait.routing.conflicts import FAST
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId
from plait.routing.orderings import DEFAULT_ORDERING, SUMMIT
from plait.routing.topics.position import Position
from plait.routing.topics.protocol import Topic

PROTOCOL_VERSION: Final = 2


class NodeKind(enum.StrEnum):
    """What kind of node greets."""

    BROKER = "broker"
    CLIENT = "client"
    MONITOR = "monitor"
    HOST = "host"
    """A process that stands by, or asks something."""


class RefusalCode(enum.StrEnum):
    """Why an operation was refused; all of them are definite: it did not happen."""

    BAD_FILTER = "bad-filter"
    TOO_MANY = "too-many"
    NOT_OWNER = "not-owner"
    NAME_TAKEN = "name-taken"
    NOT_ALLOWED = "not-allowed"
    NO_ORDER = "no-order"


class GoodbyeCode(enum.StrEnum):
    """Why a node takes its leave of a link."""

    LEFT = "left"
    SHUTTING_DOWN = "shutting-down"
    PROTOCOL = "protocol"
    ISOLATED = "isolated"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    DECLINED = "declined"
    ELSEWHERE = "elsewhere"


def _cut(reason: str) -> str:
    """Cut what is said to people, which may quote whatever somebody has sent."""
    if len(reason) <= REASON_CHARS_MAX:
        return reason
    note = f" ... ({len(reason)} characters)"
    return reason[: REASON_CHARS_MAX - len(note)] + note


# Who plays what


@attrs.frozen
class Life:
    """One incarnation of a host."""

    host: NodeId
    incarnation: int


@attrs.frozen(kw_only=True)
class Seat:
    """Who plays a broker. Of two that are known, the one of the later term counts."""

    broker: NodeId
    parent: str
    """The broker above it; empty for the root."""
    term: int
    host: NodeId
    incarnation: int
    """Of the host."""
    is_vacant: bool = False
    """Whether the host has given it up: that counts more than the same seat not given up."""
    taker: str = ""
    """The host that is to take up a seat that was given up; empty if any may."""
    left: int = 0
    """Of a broker that has left the tree: how many had by then, it among them, as far as its host
    knew; else 0. That counts more than the same seat of one that has not left."""

    @cached_property
    def life(self) -> Life:
        """The host, as it was when it took the broker up."""
        return Life(self.host, self.incarnation)


@attrs.frozen(kw_only=True)
class HostPlace:
    """Where a host listens. Of two that are known, the one of the later incarnation counts."""

    host: NodeId
    incarnation: int
    address: str
    site: str = ""
    """The broker that it stands by for; empty if for none."""
    rank: int = 0
    """Among those that stand by for that broker: 1 is the first to take over."""
    is_leaving: bool = False
    """Whether it has been told to stop: nobody is to leave anything to it."""
    clients_address: str = ""
    """Where it lets clients and monitors in, if brokers have a door of their own at `address`."""

    @property
    def address_for_clients(self) -> str:
        """Where clients and monitors find it."""
        return self.clients_address or self.address


@attrs.frozen(kw_only=True)
class Seating:
    """What the sender knows of who plays what, where, and who has failed; all of it only grows."""

    seats: tuple[Seat, ...] = ()
    hosts: tuple[HostPlace, ...] = ()
    failed: tuple[Life, ...] = ()
    """With each life, all earlier ones of that host have failed."""
    proven: tuple[Life, ...] = ()
    """Those of them that are proven not to run: the others may have been silent only."""


# Greetings


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
    """Whoever dials says who it is, whom it wants, and what it has of that."""

    version: int
    node: NodeId
    kind: NodeKind
    incarnation: int
    """Of a client, or of the host."""
    host: NodeId
    """The process that speaks; a client is its own."""
    address: str = ""
    """Where that listens."""
    to: str = ""
    """The broker that is wanted; empty for whichever is there."""
    term: int = 0
    """In which the sender is played; 0 for a client, and for a broker that is to join."""
    known_term: int = 0
    """The term of the broker that is wanted, as it is known; 0 without any common past."""
    taken: int = 0
    """The last of its steps that was taken."""
    absent_ms: int = 0
    """For how long a client has been without its broker; 0 if it had none."""
    past: Past = NO_PAST
    era: int = 0
    """Between brokers: how often their streams have begun anew, as the sender knows."""


@attrs.frozen(kw_only=True)
class Settings:
    """What all brokers of an overlay have in common."""

    ordering: str = DEFAULT_ORDERING
    policy: str = "filter"
    delta: int = 1
    detection: str = FAST
    managers: str = SUMMIT
    """Where the managers of topics are, under `tno`."""


@attrs.frozen(kw_only=True)
class Welcome:
    """The broker that was wanted is played here."""

    node: NodeId
    term: int
    host: NodeId
    incarnation: int
    """Of the host."""
    settings: Settings
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    resumed: bool
    """Whether what both have of each other stands; else the sender knows nothing of the other."""
    taken: int = 0
    """The last step of the receiver that was taken: what came after is to be sent again. Also of
    a client's session that is lost; then 0 if nobody knows."""
    secret: str = ""
    """To a client whose session begins: nobody goes on with it who does not know this."""
    era: int = 0
    """Between brokers: if it is later than the receiver's, that is to begin anew, too."""


@attrs.frozen(kw_only=True)
class Goodbye:
    """The last thing a node says on a link, or its notice that it is about to stop."""

    code: GoodbyeCode
    reason: str = attrs.field(converter=_cut)


@attrs.frozen
class Heartbeat:
    """Nothing to say, but still here."""


# At a door that is guarded, before any greeting


class Mechanism(enum.StrEnum):
    """By what whoever has dialled shows who it is."""

    CERTIFICATE = "certificate"
    """As TLS has seen already."""
    SCRAM = "SCRAM-SHA-256"
    SCRAM_PLUS = "SCRAM-SHA-256-PLUS"
    """The same, bound to this connection."""
    TOKEN = "token"  # noqa: S105 - a word, not a secret


@attrs.frozen(kw_only=True)
class Authenticate:
    """Whoever has dialled shows who it is, or answers a challenge."""

    mechanism: Mechanism
    proof: str = attrs.field(default="", repr=False)


@attrs.frozen
class Challenge:
    """The answer if a password is to be proven: what the proof has to be about."""

    proof: str


@attrs.frozen(kw_only=True)
class Admitted:
    """Whoever has dialled is let in, and says `Hello` next."""

    principal: str
    """As whom."""
    proof: str = ""
    """That the password is known here, too."""


# Batches, and what lies between them


@attrs.frozen(kw_only=True)
class EndOfStep:
    """What was sent since the last one is a batch: all that the sender sent in this step.

    How logs lie in their bytes is `broker/log_codec.py`.
    """

    step: int
    logs: bytes = b""
    """In which order the sender, and others near it, took what they did."""


@attrs.frozen(kw_only=True)
class Progress:
    """How far the sender's side has come with the two streams of publications on this link.

    From below it counts what is confirmed, from above what is stable. It belongs to no step.
    """

    received: int
    sent: int
    forgotten: int
    """The last step of the receiver of which the sender will never need anything again."""
    logs: bytes = b""
    """What is stable depends on steps of which the receiver may not have heard yet."""


# Operations


@attrs.frozen(kw_only=True)
class Join:
    """Whoever has been welcomed asks to be let in, under the name that it has greeted with.

    Confirmed when nobody in the overlay has objected (`Claim`); else there is a `Refuse`.
    """

    operation: OperationId


@attrs.frozen(kw_only=True)
class Leave:
    """A node that nobody stands below leaves."""

    operation: OperationId
    node: NodeId


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
class Introduce:
    """New streams begin, as more than δ had failed: say what lies beyond the receiver.

    Confirmed when all that has been told, by those too who begin anew beyond it.
    """

    operation: OperationId


@attrs.frozen(kw_only=True)
class Advertise:
    """A client announces what it will publish; told to every broker."""

    operation: OperationId
    advertisement: AdvertisementId
    client: NodeId
    filter: str
    path: tuple[NodeId, ...]
    """The last δ + 1 nodes it passed, the sender last; its client by the name of its life (`p/7`),
    but in what that says itself."""


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
class Rank:
    """A client asks that a topic ranks above another one: they change places if it does not.

    Confirmed when the root has taken it.
    """

    operation: OperationId
    topic: Topic
    above: Topic


@attrs.frozen(kw_only=True)
class Confirm:
    """An operation is installed wherever it had to be, seen from the sender."""

    operation: OperationId


@attrs.frozen(kw_only=True)
class Refuse:
    """An operation was not carried out, and nothing of it remains."""

    operation: OperationId
    code: RefusalCode
    reason: str = attrs.field(converter=_cut)


@attrs.frozen(kw_only=True)
class Revoke:
    """A client may no longer have what it has advertised or subscribed to: it is to withdraw it."""

    name: str
    """Of the advertisement or the subscription."""
    reason: str = attrs.field(converter=_cut)


# Publications


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
    REQUESTED: Final = 64
    """Set from hop to hop under `published`: the receiver is to acknowledge it to the sender."""
    DEFERRED: Final = 128
    """The same: clients behind the receiver wait until the sender has acknowledged it."""


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


@attrs.frozen(kw_only=True)
class PlacesRequest:
    """Under `sequencer-filtered`: the root is asked for places for a publication."""

    publisher: NodeId
    incarnation: int
    seq: int
    subscribers: tuple[NodeId, ...]
    """Whoever is to get it."""


@attrs.frozen
class Turn:
    """Behind what a publication comes for one subscriber."""

    subscriber: NodeId
    """And which life of it."""
    way: tuple[NodeId, ...]
    """The brokers beyond the receiver on the way to it, the last one first."""
    after_step: int
    """Of the root, in which it placed what goes before: that publication."""
    after_publisher: NodeId
    after_incarnation: int
    after_seq: int

    @property
    def after(self) -> Place:
        """The place of what goes before."""
        return (
            self.after_step,
            self.after_publisher,
            self.after_incarnation,
            self.after_seq,
        )


@attrs.frozen(kw_only=True)
class Turns:
    """Under `sequencer-filtered`: whose turn it is with a publication.

    The root answers so whoever asks; and the publication has them before it that are beyond.
    """

    publisher: NodeId
    incarnation: int
    seq: int
    step: int
    """Of the root, in which it gave them."""
    turns: tuple[Turn, ...]
    is_answer: bool = False


@attrs.frozen
class Behind:
    """So far a topic is, when a publication on another one comes."""

    topic: Topic
    number: int


@attrs.frozen(kw_only=True)
class Stamped:
    """Under `tno`: where the publication belongs that comes next, or that is settled next."""

    publisher: NodeId
    incarnation: int
    seq: int
    number: int
    """On its topic; 0 if its manager was on its way elsewhere."""
    behind: tuple[Behind, ...]
    """On other topics."""
    epoch: int = 0
    """How often the order of topics had changed, if it can."""
    is_late: bool = False
    """To a client: whether its broker says that it comes out of order."""

    @property
    def position(self) -> Position:
        """The same, without what it belongs to."""
        return Position(number=self.number, behind=_numbers(self.behind), epoch=self.epoch)


@attrs.frozen(kw_only=True)
class StampRequest:
    """Under `tno-tagged`: the root is asked where a publication belongs."""

    publisher: NodeId
    incarnation: int
    seq: int
    topic: Topic
    """Empty for one that goes without order."""


@attrs.frozen(kw_only=True)
class StampReply:
    """The answer, to the broker where the publication was published."""

    publisher: NodeId
    incarnation: int
    seq: int
    number: int
    behind: tuple[Behind, ...]

    @property
    def position(self) -> Position:
        """The same, without what it belongs to."""
        return Position(number=self.number, behind=_numbers(self.behind))


@attrs.frozen(kw_only=True)
class Begun:
    """Under `tno-tagged`: a subscription has begun when its topics were so far."""

    subscription: SubscriptionId
    behind: tuple[Behind, ...]

    @property
    def numbers(self) -> dict[Topic, int]:
        """The same, by topic."""
        return _numbers(self.behind)


def behind_of(position: Position) -> tuple[Behind, ...]:
    """What a publication comes behind, as it is sent."""
    return tuple(Behind(topic, number) for topic, number in position.behind.items())


def _numbers(behind: tuple[Behind, ...]) -> dict[Topic, int]:
    return {each.topic: each.number for each in behind}


@attrs.frozen(kw_only=True)
class Recall:
    """Under `tno`: the manager of a topic, which is below, is to come up to the sender."""

    topic: Topic


@attrs.frozen(kw_only=True)
class Entrust:
    """Under `tno`: the manager of a topic moves to the receiver."""

    topic: Topic
    number: int
    """Of the last publication on it."""
    is_left: bool
    """Whether somebody has left it who may have got something on it."""


class To(enum.StrEnum):
    """For whom an errand is."""

    COORDINATOR = "coordinator"
    """At the root."""
    MANAGER = "manager"
    """Of this topic, wherever a hash has put it."""
    ASKER = "asker"
    """Whoever asked, by the way that is written on it."""
    EVERYBODY = "everybody"
    EPOCH = "epoch"
    """Everybody: a new order of topics, and who shares which."""
    PLACE = "place"
    """Whoever is to manage this topic; that is found out on the way down."""


@attrs.frozen(kw_only=True)
class Errand:
    """Under `tno`, with managers where a hash puts them: what they say, and what is said to them.

    What is said is `routing/topics`' own, as text (`routing/topics/portable.py`).
    """

    to: To
    topic: Topic
    """If it is about one."""
    asker: str
    """Whom it is to be answered to, or is an answer to."""
    way: tuple[NodeId, ...]
    """The brokers between the receiver and the asker, that of the asker first."""
    said: bytes


# When hosts fail, and when they hand over


@attrs.frozen(kw_only=True)
class Probe:
    """A host asks another one of which of these it has heard of late."""

    lives: tuple[Life, ...]


@attrs.frozen(kw_only=True)
class ProbeReply:
    """The answer: it lives itself, and has heard of these."""

    life: Life
    heard: tuple[Life, ...]


@attrs.frozen(kw_only=True)
class AttachRequest:
    """The sender is taking up this broker: the receiver is to say what it has of it.

    It is a neighbour of that broker; or the host that has given it up, which attaches the broker to
    itself, with nothing but what it knows of step logs.
    """

    broker: NodeId
    known_term: int = 0
    """How far its step log is known to the sender, in which term: who stood next to it before that
    need not be said, by each of those who did."""
    known_step: int = 0


@attrs.frozen(kw_only=True)
class Attach:
    """What the sender has of its link to a broker that has failed, as of when it heard it last.

    After it comes what it has to say of tables and logs, in one `AttachTables` or several. Then, as
    ordinary messages, what was in the streams: the publications sent to that broker and not stable,
    those received from it and not stable, and the controls; all in the order of their streams.
    """

    node: NodeId
    kind: NodeKind
    incarnation: int
    to: NodeId
    term: int
    """Of the broker that has failed, as the sender had it."""
    taken: int
    sent_stable: int
    sent_steps: tuple[int, ...]
    """In which step of the sender each was sent that follows."""
    received_stable: int
    received_steps: tuple[int, ...]
    """The same of what was received, in steps of the broker that has failed."""


@attrs.frozen(kw_only=True)
class SentControl:
    """Where a message that is no publication stood in a stream; the message itself follows."""

    step: int
    position: int
    publisher: str
    """Of the publication of which it says that it is settled; empty if none."""
    incarnation: int
    seq: int


@attrs.frozen(kw_only=True)
class ToldEntry:
    """An advertisement or a subscription that the sender had told the broker that has failed."""

    id: str
    client: NodeId
    filter: str
    ordered: bool
    path: tuple[NodeId, ...]
    told_in: int
    """The sender's step; 0 if that is long ago."""
    withdrawn_in: int
    """And that of the withdrawal; 0 if it stands."""


@attrs.frozen(kw_only=True)
class AttachTables:
    """A part of what belongs to an `Attach`: what was told, and what is known of the logs.

    In parts, as the tables may be large, and nobody else is to wait while they are read.
    """

    controls: tuple[SentControl, ...] = ()
    advertisements: tuple[ToldEntry, ...] = ()
    subscriptions: tuple[ToldEntry, ...] = ()
    known_advertisements: tuple[AdvertisementId, ...] = ()
    """What that broker has told the sender."""
    known_subscriptions: tuple[SubscriptionId, ...] = ()
    logs: bytes = b""
    era: int = 0
    """How often the streams between the two have begun anew."""
    is_last: bool = False


@attrs.frozen(kw_only=True)
class Announce:
    """A host has taken something up: who is told keeps these logs, tells others, and confirms."""

    number: int
    reach: int
    """How many hosts further it is to be told."""
    logs: bytes


@attrs.frozen(kw_only=True)
class Announced:
    """Everybody has heard that the receiver's announcement was to reach by the sender."""

    number: int


@attrs.frozen(kw_only=True)
class Relocate:
    """The receiver is to give a broker up, to this host: for its old place, or for an empty one."""

    broker: NodeId
    host: NodeId


@attrs.frozen(kw_only=True)
class Relocated:
    """The answer: it has begun, or why not; if that may change, a second one follows."""

    broker: NodeId
    reason: str = ""
    """Empty if it has begun."""
    is_remembered: bool = False
    """Whether it begins without being asked again as soon as there is no reason against it."""


# Questions


@attrs.frozen
class StatusRequest:
    """A monitor asks how the broker is."""


@attrs.frozen(kw_only=True)
class StatusReply:
    """The answer: a JSON document, UTF-8."""

    report: bytes


# All of it


Operation = (
    Join | Leave | Claim | Introduce | Advertise | Unadvertise | Subscribe | Unsubscribe | Rank
)
"""What is passed on from broker to broker, and confirmed back."""

Message = (
    Publish
    | Heartbeat
    | Goodbye
    | Leave
    | Advertise
    | Unadvertise
    | Subscribe
    | Unsubscribe
    | Confirm
    | Refuse
    | StatusRequest
    | StatusReply
    | Settled
    | Acknowledge
    | Defer
    | PlacesRequest
    | Claim
    | Hello
    | Welcome
    | EndOfStep
    | Progress
    | Seating
    | AttachRequest
    | Attach
    | AttachTables
    | Probe
    | ProbeReply
    | Announce
    | Announced
    | Join
    | Relocate
    | Relocated
    | Turns
    | Introduce
    | Stamped
    | Recall
    | Entrust
    | StampRequest
    | StampReply
    | Begun
    | Authenticate
    | Challenge
    | Admitted
    | Revoke
    | Errand
    | Rank
)

MESSAGE_TYPES: Final[dict[int, type[Message]]] = {
    1: Publish,
    3: Heartbeat,
    6: Goodbye,
    8: Leave,
    10: Advertise,
    11: Unadvertise,
    12: Subscribe,
    13: Unsubscribe,
    14: Confirm,
    15: Refuse,
    16: StatusRequest,
    17: StatusReply,
    18: Settled,
    30: Acknowledge,
    31: Defer,
    32: PlacesRequest,
    37: Claim,
    40: Hello,
    41: Welcome,
    42: EndOfStep,
    43: Progress,
    44: Seating,
    45: AttachRequest,
    46: Attach,
    47: AttachTables,
    48: Probe,
    49: ProbeReply,
    50: Announce,
    51: Announced,
    52: Join,
    53: Relocate,
    54: Relocated,
    55: Turns,
    56: Introduce,
    57: Stamped,
    58: Recall,
    59: Entrust,
    60: StampRequest,
    61: StampReply,
    62: Begun,
    63: Authenticate,
    64: Challenge,
    65: Admitted,
    70: Revoke,
    71: Errand,
    72: Rank,
}
"""By their numbers on the wire, which come first. None is ever used again for something else."""
