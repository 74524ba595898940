"""Step logs to bytes and back: what goes with every batch, so every byte of it counts.

Both ends of a connection remember what was told over it: names are told once and are numbers from
then on, a log goes on where it ended, a step of a neighbour is one more than the last, and so is a
publication of its publisher. So a log of which there is nothing new takes no byte at all, and a
step that took a batch takes one or two. `LogWriter` and `LogReader` live as long as the connection,
and what one has written the other has to read, all of it and in that order. What both remember is
limited: beyond `TOLD_MAX` they begin anew.

A log is a header (a number: how many entries follow, and three bits), then its entries. Numbers are
written as in protocol buffers: seven bits to a byte, the least significant ones first. An entry is
the number of its source and two bits; everything else is there only if it is not as usual.

Who stands next to a broker is told to everybody around it, as the same bytes on every connection:
they are made once for all receivers, and read once by a process that is told by many.

Bytes come from strangers here as well. Whatever they are, reading them returns logs as `StepLog`
tells them or raises `RemoteProtocolError`; what it makes is at most some 200 times as large.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final, get_args, get_origin, get_type_hints

import attrs

from plait.broker.errors import LocalProtocolError, RemoteProtocolError
from plait.broker.limits import DEFAULT_LIMITS, Limits
from plait.faulttol.steplog import (
    BROKER,
    CLIENT,
    NOBODY,
    UNCHANGED,
    Entry,
    Key,
    LogPart,
    Membership,
    Standing,
    Taken,
    TopicStanding,
)
from plait.routing.ids import NodeId, OperationId
from plait.routing.limits import FILTER_TEXT_CHARACTERS_MAX, TOPIC_CHARACTERS_MAX
from plait.routing.topics.protocol import Topic

TOLD_MAX: Final = 16_384
"""Names, publishers, sources and held publications that both ends of a connection remember: those
of a few brokers fit; clients that come and go make it begin anew now and then."""

LOGS_MAX: Final = 4096
"""Brokers whose logs are told over one connection: those within δ hosts."""

STANDINGS_REMEMBERED: Final = 16_384
"""Of which both the bytes and what they say are kept: more than stand next to a few brokers."""
_STANDING_BYTES_MAX: Final = 256
"""Larger ones are those of clients that are away, with all that they had told: they are rare."""

_ANEW: Final = b"\x00"
"""In place of a header: forget all names and numbers."""

# The bits of a header, below the number of entries.
_IS_OTHER: Final = 1
"""Which log it is follows; else it is the one that was told first, most often the sender's own."""
_HAS_NEIGHBOURS: Final = 2
_HAS_BASE: Final = 4
_HEADER_BITS: Final = 3

# The bits of an entry, below the number of its source.
_HAS_UPTO: Final = 1
"""It is not the step after the last one."""
_HAS_MORE: Final = 2
"""It is no batch, or something was decided: a byte follows, of its kind and these bits."""
_SOURCE_BITS: Final = 2
_KIND_MASK: Final = 7
_HAS_HELD: Final = 8
_HAS_ORDER: Final = 16
_HAS_INSTALLED: Final = 32
_HAS_MEMBERS: Final = 64
_HAS_FURTHER: Final = 128

_NUMBER_BITS: Final = 70
"""Ten bytes: the difference of two numbers, with its sign."""
_KINDS: Final = tuple(Taken)
_BATCH: Final = Taken.BATCH
_USUAL: Final = ("kind", "source", "upto", "held", "order", "installed", "members")
_FURTHER: Final = [f.name for f in attrs.fields(Entry) if f.name not in _USUAL]
"""What else an entry may have, empty most often: written as it is declared."""
_further_of: Final = attrgetter(*_FURTHER)
_NOTHING_FURTHER: Final = _further_of(Entry(_BATCH))


def encode_logs(parts: Mapping[NodeId, LogPart]) -> bytes:
    """Logs as they are told to somebody who knows nothing."""
    return LogWriter().write(parts)


def decode_logs(data: bytes, limits: Limits = DEFAULT_LIMITS) -> dict[NodeId, LogPart]:
    """The logs of which nothing was told before."""
    return LogReader(limits).read(data)


@attrs.define(eq=False)
class _Source:
    """A neighbour in a log."""

    number: int
    node: NodeId
    upto: int = 0
    """Of the last batch."""


@attrs.define(eq=False)
class _Publisher:
    number: int
    node: NodeId
    incarnation: int
    seq: int = 0
    """Of its publication that was named last."""


@attrs.define(eq=False)
class _Log:
    """What was told of one: in another term it is another log."""

    number: int
    node: NodeId
    term: int
    base: int = 0
    last: int = 0
    sources: dict[NodeId, _Source] = attrs.field(factory=dict)
    by_number: list[_Source] = attrs.field(factory=list)
    held: dict[Key, None] = attrs.field(factory=dict)
    """Of the publications that were held, those that are not known to be settled."""


class _Told:
    """What both ends of a connection remember."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.logs: dict[tuple[NodeId, int], _Log] = {}
        self.logs_by_number: list[_Log] = []
        self.forget()

    def forget(self) -> None:
        """Begin anew: all that is left is which logs there are, and up to where they were told."""
        self.size = 0
        for log in self.logs_by_number:
            log.sources, log.by_number, log.held = {}, [], {}
        self.names: list[str] = []
        self.number_of: dict[str, int] = {}
        self.publishers: dict[tuple[NodeId, int], _Publisher] = {}
        self.publishers_by_number: list[_Publisher] = []

    def add_name(self, name: str) -> None:
        """A name has a number from now on; numbers begin at 1."""
        self.size += 1
        self.names.append(name)
        self.number_of[name] = len(self.names)

    def add_log(self, node: NodeId, term: int) -> _Log:
        """Something is told of this broker, in this term, for the first time."""
        log = self.logs[node, term] = _Log(len(self.logs) + 1, node, term)
        self.logs_by_number.append(log)
        return log

    def add_source(self, log: _Log, node: NodeId) -> _Source:
        """And something of this neighbour of it."""
        self.size += 1
        source = log.sources[node] = _Source(len(log.sources) + 1, node)
        log.by_number.append(source)
        return source

    def add_publisher(self, node: NodeId, incarnation: int) -> _Publisher:
        """And of publications of this one."""
        self.size += 1
        publisher = _Publisher(len(self.publishers) + 1, node, incarnation)
        self.publishers[node, incarnation] = publisher
        self.publishers_by_number.append(publisher)
        return publisher

    def hold(self, log: _Log, key: Key) -> None:
        """A publication is held."""
        self.size += 1
        log.held[key] = None

    def settle(self, log: _Log, key: Key) -> None:
        """It is settled, whether it was held or not."""
        if key in log.held:
            self.size -= 1
            del log.held[key]


# Writing


class LogWriter:
    """What is told of step logs over one connection, as bytes."""

    def __init__(self) -> None:
        """Begin with a connection."""
        self._told = _Told()
        self._out = bytearray()

    def write(self, parts: Mapping[NodeId, LogPart]) -> bytes:
        """Tell what these parts say beyond what was told: empty bytes if that is nothing."""
        out = self._out = bytearray()
        told = self._told
        if told.size > TOLD_MAX:
            told.forget()
            out += _ANEW
        for node, part in parts.items():
            log = told.logs.get((node, part.term))
            header = len(part.entries) << _HEADER_BITS
            if part.base != (log.base if log is not None else 0):
                header |= _HAS_BASE
            at_base = (part.neighbours, part.is_whole, part.numbers, part.topics)
            if any(at_base) or part.memory is not None:
                header |= _HAS_NEIGHBOURS
            if not header:
                continue
            if log is None or log.number > 1:
                header |= _IS_OTHER
            if header < 128:
                out.append(header)
            else:
                _put(out, header)
            if header & _IS_OTHER:
                _put(out, log.number if log is not None else 0)
            if log is None:
                log = told.add_log(node, part.term)
                self.put_name(node)
                self.put(part.term)
            self._put_part(log, part, header)
        return bytes(out)

    def put(self, number: int) -> None:
        """Write a number."""
        _put(self._out, number)

    def _put_part(self, log: _Log, part: LogPart, header: int) -> None:
        if header & _HAS_BASE:
            if part.base < log.base:
                raise LocalProtocolError(f"{log.node}: base {part.base} after {log.base}")
            _put(self._out, part.base - log.base)
            log.base = part.base
        first = max(log.last, log.base)
        if part.first != first:
            raise LocalProtocolError(f"{log.node}: told up to {first}, and on from {part.first}")
        if header & _HAS_NEIGHBOURS:
            self._put_neighbours(part)
        for entry in part.entries:
            self._put_entry(log, entry)
        log.last = first + len(part.entries)

    def _put_neighbours(self, part: LogPart) -> None:
        _put(self._out, len(part.neighbours) << 1 | part.is_whole)
        self._out += b"".join(
            [
                (_row_of.__wrapped__ if _is_large(standing) else _row_of)(node, standing)
                for node, standing in part.neighbours.items()
            ]
        )
        _NUMBERS.put(self, tuple(part.numbers.items()))
        _TOPICS.put(self, tuple(part.topics.items()))
        _put(self._out, part.memory is not None)
        if part.memory is not None:
            _MEMORY.put(self, tuple(part.memory.items()))

    def _put_entry(self, log: _Log, entry: Entry) -> None:
        out, kind, upto = self._out, entry.kind, entry.upto
        source = log.sources.get(entry.source)
        head = 0 if source is None else source.number << _SOURCE_BITS
        before = source.upto if source is not None and kind is _BATCH else 0
        if upto != before + (kind is _BATCH):
            head |= _HAS_UPTO
        # This is what a broker does for every step and neighbour, and most often that is all.
        more = 0
        if (
            kind is not _BATCH
            or entry.held
            or entry.order
            or entry.installed
            or entry.members is not UNCHANGED
            or _further_of(entry) != _NOTHING_FURTHER
        ):
            head |= _HAS_MORE
            more = _more(entry)
        if head < 128:
            out.append(head)
        else:
            _put(out, head)
        if source is None:
            source = self._told.add_source(log, entry.source)
            self.put_name(entry.source)
        if head & _HAS_MORE:
            out.append(more)
        if head & _HAS_UPTO:
            _put(out, _zigzag(upto - before))
        if kind is _BATCH:
            source.upto = upto
        if more:
            self._put_more(log, entry, more)

    def _put_more(self, log: _Log, entry: Entry, more: int) -> None:
        """What is rare: who came and went. And what conflicts bring: what had to wait."""
        if more & _HAS_HELD:
            _put(self._out, len(entry.held))
            for key, waits in entry.held:
                self._put_key(key, waits)
                self._told.hold(log, key)
        if more & _HAS_ORDER:
            self._put_order(log, entry.order)
        if more & _HAS_INSTALLED:
            _put(self._out, len(entry.installed))
            for name in entry.installed:
                self.put_text(name)
        if more & _HAS_MEMBERS:
            _MEMBERSHIP.put(self, entry.members)
        if more & _HAS_FURTHER:
            for name, form in _FURTHER_FORMS.items():
                form.put(self, getattr(entry, name))

    def _put_order(self, log: _Log, order: tuple[Key, ...]) -> None:
        """Most often those go on that have been held for longest: how many, and not which."""
        _put(self._out, len(order))
        run = 0
        for key in order:
            if next(iter(log.held), None) == key:
                run += 1
            else:
                self._put_run(run)
                run = 0
                self._put_key(key, 1)
            self._told.settle(log, key)
        self._put_run(run)

    def _put_run(self, run: int) -> None:
        if run:
            _put(self._out, (run - 1) << 1)

    def _put_key(self, key: Key, bit: int) -> None:
        node, incarnation, seq = key
        publisher = self._told.publishers.get((node, incarnation))
        if publisher is None:
            _put(self._out, bit)
            publisher = self._told.add_publisher(node, incarnation)
            self.put_name(node)
            _put(self._out, incarnation)
        else:
            _put(self._out, publisher.number << 1 | bit)
        _put(self._out, _zigzag(seq - publisher.seq - 1))
        publisher.seq = seq

    def put_key(self, key: Key) -> None:
        """Write which publication."""
        self._put_key(key, 0)

    def put_name(self, name: str) -> None:
        """Write a name: a number, if it was told before."""
        number = self._told.number_of.get(name)
        if number is None:
            self._told.add_name(name)
            self._out.append(0)
            self.put_text(name)
        else:
            _put(self._out, number)

    def put_text(self, text: str) -> None:
        """Write a text, with its length before it."""
        self.put_bytes(text.encode())

    def put_bytes(self, data: bytes) -> None:
        """Write bytes, with their number before them."""
        _put(self._out, len(data))
        self._out += data

    @staticmethod
    def of_its_own(form: "_Form", value: Any) -> bytes:
        """Write something as if nothing had been told before; returns it."""
        writer = LogWriter()
        form.put(writer, value)
        return writer.written

    @property
    def written(self) -> bytes:
        """What has been written since the last call of `write`."""
        return bytes(self._out)


def _more(entry: Entry) -> int:
    """Say what there is of an entry beside what it took."""
    return (
        entry.kind
        | (_HAS_HELD if entry.held else 0)
        | (_HAS_ORDER if entry.order else 0)
        | (_HAS_INSTALLED if entry.installed else 0)
        | (_HAS_MEMBERS if entry.members != UNCHANGED else 0)
        | (_HAS_FURTHER if _further_of(entry) != _NOTHING_FURTHER else 0)
    )


def _put(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _zigzag(number: int) -> int:
    """Small numbers of either sign are small numbers."""
    return number << 1 if number >= 0 else (-number << 1) - 1


# Reading


class LogReader:
    """What is told of step logs over one connection, read from its bytes."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        """Begin with a connection."""
        self._limits = limits
        self._told = _Told()
        self._data = b""
        self._at = 0
        self._standing_in = _reader_of_standings(limits)

    def read(self, data: bytes) -> dict[NodeId, LogPart]:
        """What these bytes say. After a `RemoteProtocolError` nothing more can be read."""
        if len(data) > self._limits.logs_bytes_max:
            raise RemoteProtocolError(
                f"logs of {len(data)} bytes, at most {self._limits.logs_bytes_max} allowed"
            )
        self._data, self._at = data, 0
        parts: dict[NodeId, LogPart] = {}
        try:
            if data.startswith(_ANEW):
                self._told.forget()
                self._at = 1
            elif data and self._told.size > TOLD_MAX:
                raise RemoteProtocolError(f"logs that remember {self._told.size} things")
            while self._at < len(data):
                node, part = self._part()
                if node in parts:
                    raise RemoteProtocolError(f"logs tell of {node} twice")
                parts[node] = part
        except IndexError:
            raise RemoteProtocolError(
                "logs that end too early, or name what was not told"
            ) from None
        return parts

    def number(self) -> int:
        """Read a number."""
        data, at = self._data, self._at
        byte = data[at]
        number, shift = byte & 127, 7
        while byte > 127:
            at += 1
            byte = data[at]
            number |= (byte & 127) << shift
            shift += 7
            if shift > _NUMBER_BITS:
                raise RemoteProtocolError("logs: a number of too many bytes")
        self._at = at + 1
        return number

    def amount(self) -> int:
        """Read a number that is not larger than numbers may be."""
        return self._sum(0, self.number())

    def count(self) -> int:
        """Read how many things follow, each of which takes a byte at least."""
        number = self.number()
        if number > len(self._data) - self._at:
            raise RemoteProtocolError(f"logs: {number} of something, which cannot be there")
        return number

    def sized(self) -> bytes:
        """Read bytes, as many as there are said to be."""
        count = self.count()
        at = self._at
        self._at = at + count
        return self._data[at : at + count]

    def text(self, chars_max: int) -> str:
        """Read a text."""
        try:
            text = self.sized().decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"logs: {error}") from None
        if len(text) > chars_max:
            raise RemoteProtocolError(f"logs: {len(text)} characters, at most {chars_max} allowed")
        return text

    def standing(self) -> Standing | None:
        """Read as what somebody stands below a broker; None if nobody does."""
        data = self.sized()
        return self._standing_in(data) if data else None

    def alone(self, form: "_Form", data: bytes) -> Any:
        """Read something that was written as if nothing had been told before, and all of it."""
        self._data, self._at = data, 0
        value = form.get(self)
        if self._at < len(data):
            raise RemoteProtocolError(f"logs: {len(data)} bytes, of which {self._at} say something")
        return value

    def identifier(self) -> str:
        """Read the name of something that is no node."""
        return self.text(self._limits.id_chars_max)

    def name(self) -> NodeId:
        """Read the name of a node, or a number that stands for it."""
        number = self.number()
        if number:
            return NodeId(self._told.names[number - 1])
        name = self._plain_name()
        self._told.add_name(name)
        return name

    def _plain_name(self) -> NodeId:
        name = self.text(self._limits.name_chars_max)
        if not name.isprintable():
            raise RemoteProtocolError(f"logs: {name!r}, expected printable characters")
        return NodeId(name)

    def kind(self) -> str:
        """Read what stands below a broker."""
        kind: str = self.name()
        if kind not in (BROKER, CLIENT):
            raise RemoteProtocolError(f"logs: {kind!r}, expected {BROKER} or {CLIENT}")
        return kind

    def filter(self) -> str:
        """Read the text of a filter."""
        return self.text(FILTER_TEXT_CHARACTERS_MAX)

    def node(self) -> NodeId:
        """Read the name of somebody: it is not empty."""
        name = self.name()
        if name == NOBODY:
            raise RemoteProtocolError("logs: nobody, where somebody is expected")
        return name

    def _part(self) -> tuple[NodeId, LogPart]:
        header = self.number()
        told = self._told
        number = self.number() if header & _IS_OTHER else 1
        if number:
            log = told.logs_by_number[number - 1]
        else:
            node = self.node()
            term = self.number()
            if (node, term) in told.logs:
                raise RemoteProtocolError(f"logs: {node} is told of under two numbers")
            if len(told.logs) == LOGS_MAX:
                raise RemoteProtocolError(f"logs of more than {LOGS_MAX} brokers")
            log = told.add_log(node, term)
        if header & _HAS_BASE:
            log.base = self._sum(log.base, self.number())
        first = max(log.last, log.base)
        at_base = self._at_base() if header & _HAS_NEIGHBOURS else ({}, False, {}, {}, None)
        neighbours, is_whole, numbers, topics, memory = at_base
        count = header >> _HEADER_BITS
        if count > len(self._data) - self._at:
            raise RemoteProtocolError(f"logs: {count} entries, which cannot be there")
        entries = self._entries(log, count)
        log.last = self._sum(first, count)
        part = LogPart(
            log.base, first, entries, neighbours, is_whole, log.term, numbers, topics, memory
        )
        return log.node, part

    def _at_base(
        self,
    ) -> tuple[
        dict[NodeId, Standing | None],
        bool,
        dict[Topic, int],
        dict[Topic, TopicStanding],
        dict[str, str] | None,
    ]:
        count = self.number()
        neighbours = {}
        for _ in range(count >> 1):
            node = self._plain_name()
            if not node:
                raise RemoteProtocolError("logs: nobody, where somebody is expected")
            neighbours[node] = self.standing()
        numbers, topics = dict(_NUMBERS.get(self)), dict(_TOPICS.get(self))
        memory = dict(_MEMORY.get(self)) if self.number() else None
        return neighbours, count & 1 == 1, numbers, topics, memory

    def thought(self) -> str:
        """Read something that is known of a manager, which may be long."""
        return self.text(self._limits.logs_bytes_max)

    def topic(self) -> Topic:
        """Read a topic, or a number that stands for it."""
        number = self.number()
        if number:
            return Topic(self._told.names[number - 1])
        name = self.text(TOPIC_CHARACTERS_MAX)
        self._told.add_name(name)
        return Topic(name)

    def _entries(self, log: _Log, count: int) -> tuple[Entry, ...]:
        data, sources = self._data, log.by_number
        entries = []
        for _ in range(count):
            head = data[self._at]
            if head > 127:
                head = self.number()
            else:
                self._at += 1
            number = head >> _SOURCE_BITS
            source = sources[number - 1] if number else self._new_source(log)
            if head & _HAS_MORE:
                entries.append(self._unusual(log, source, head))
                continue
            upto = source.upto
            upto = self._sum(upto, self._signed()) if head & _HAS_UPTO else upto + 1
            source.upto = upto
            entries.append(Entry(_BATCH, source.node, upto))
        return tuple(entries)

    def _new_source(self, log: _Log) -> _Source:
        node = self.name()
        if node in log.sources:
            raise RemoteProtocolError(f"logs: {node} is told of under two numbers")
        return self._told.add_source(log, node)

    def _unusual(self, log: _Log, source: _Source, head: int) -> Entry:
        """An entry that does not just take a batch."""
        more = self._data[self._at]
        self._at += 1
        if more & _KIND_MASK >= len(_KINDS):
            raise RemoteProtocolError(f"logs: an entry of kind {more & _KIND_MASK}")
        kind = _KINDS[more & _KIND_MASK]
        upto = source.upto if kind is _BATCH else 0
        if head & _HAS_UPTO:
            upto = self._sum(upto, self._signed())
        elif kind is _BATCH:
            upto += 1
        if kind is _BATCH:
            source.upto = upto
        return Entry(
            kind,
            source.node,
            upto,
            held=self._held(log) if more & _HAS_HELD else (),
            order=self._order(log) if more & _HAS_ORDER else (),
            installed=self._installed() if more & _HAS_INSTALLED else (),
            members=_MEMBERSHIP.get(self) if more & _HAS_MEMBERS else UNCHANGED,
            **(_get_each(_FURTHER_FORMS, self) if more & _HAS_FURTHER else {}),
        )

    def key(self) -> Key:
        """Read which publication."""
        return self._key(self.number() >> 1)

    def _held(self, log: _Log) -> tuple[tuple[Key, bool], ...]:
        held = []
        for _ in range(self.count()):
            number = self.number()
            key = self._key(number >> 1)
            self._told.hold(log, key)
            held.append((key, number & 1 == 1))
        return tuple(held)

    def _order(self, log: _Log) -> tuple[Key, ...]:
        count = self.number()
        order: list[Key] = []
        while len(order) < count:
            number = self.number()
            if number & 1:
                keys = [self._key(number >> 1)]
            elif number >> 1 < len(log.held):
                keys = list(islice(log.held, (number >> 1) + 1))
            else:
                raise RemoteProtocolError(f"logs: {len(log.held)} are held, {number >> 1} go on")
            for key in keys:
                self._told.settle(log, key)
            order += keys
        if len(order) > count:
            raise RemoteProtocolError(f"logs: {len(order)} are settled, {count} expected")
        return tuple(order)

    def _installed(self) -> tuple[str, ...]:
        return tuple([self.identifier() for _ in range(self.count())])

    def _key(self, number: int) -> Key:
        told = self._told
        if number:
            publisher = told.publishers_by_number[number - 1]
        else:
            node, incarnation = self.node(), self.amount()
            if (node, incarnation) in told.publishers:
                raise RemoteProtocolError(f"logs: {node} publishes under two numbers")
            publisher = told.add_publisher(node, incarnation)
        seq = publisher.seq = self._sum(publisher.seq + 1, self._signed())
        return publisher.node, publisher.incarnation, seq

    def _signed(self) -> int:
        number = self.number()
        return number >> 1 if not number & 1 else -((number + 1) >> 1)

    def _sum(self, one: int, other: int) -> int:
        number = one + other
        if not 0 <= number <= self._limits.number_max:
            raise RemoteProtocolError(f"logs: {number}, at most {self._limits.number_max} expected")
        return number


# Records, which are rare: their fields in the order of their declaration, each as what it is.


@attrs.frozen
class _Form:
    """How something of one type is written and read."""

    put: Callable[[LogWriter, Any], None]
    get: Callable[[LogReader], Any]


def _form_of(hint: Any, name: str = "") -> _Form:
    if hint == Key:
        return _Form(LogWriter.put_key, LogReader.key)
    if get_origin(hint) is tuple and get_args(hint)[-1] is not Ellipsis:
        forms = [_form_of(each, name) for each in get_args(hint)]
        return _Form(
            partial(_put_row, forms), lambda reader: tuple([form.get(reader) for form in forms])
        )
    if get_origin(hint) is tuple:
        element = _form_of(get_args(hint)[0], name)
        return _Form(partial(_put_all, element), lambda reader: _get_all(element, reader))
    if hint == Standing | None:
        return _Form(_put_standing, LogReader.standing)
    if attrs.has(hint):
        fields = _forms_of(hint)
        return _Form(partial(_put_fields, fields), lambda reader: _get_fields(hint, fields, reader))
    return _FORMS_OF_NAMES.get(name) or _FORMS_OF_TYPES[hint]


def _forms_of(declaration: type[Any]) -> dict[str, _Form]:
    hints = get_type_hints(declaration)
    return {f.name: _form_of(hints[f.name], f.name) for f in attrs.fields(declaration)}


def _put_row(forms: Sequence[_Form], writer: LogWriter, values: tuple[Any, ...]) -> None:
    for form, value in zip(forms, values, strict=True):
        form.put(writer, value)


def _put_all(element: _Form, writer: LogWriter, values: tuple[Any, ...]) -> None:
    writer.put(len(values))
    for value in values:
        element.put(writer, value)


def _get_all(element: _Form, reader: LogReader) -> tuple[Any, ...]:
    return tuple([element.get(reader) for _ in range(reader.count())])


def _put_fields(fields: Mapping[str, _Form], writer: LogWriter, value: Any) -> None:
    for name, form in fields.items():
        form.put(writer, getattr(value, name))


def _get_fields(declaration: type[Any], fields: Mapping[str, _Form], reader: LogReader) -> Any:
    return declaration(**_get_each(fields, reader))


def _get_each(fields: Mapping[str, _Form], reader: LogReader) -> dict[str, Any]:
    return {name: form.get(reader) for name, form in fields.items()}


def _is_large(standing: Standing | None) -> bool:
    return standing is not None and bool(standing.interests)


def _put_standing(writer: LogWriter, standing: Standing | None) -> None:
    if standing is None:
        writer.put_bytes(b"")
    else:
        writer.put_bytes((_bytes_of.__wrapped__ if standing.interests else _bytes_of)(standing))


@lru_cache(STANDINGS_REMEMBERED)
def _bytes_of(standing: Standing) -> bytes:
    return LogWriter.of_its_own(_STANDING, standing)


@lru_cache(STANDINGS_REMEMBERED)
def _row_of(node: NodeId, standing: Standing | None) -> bytes:
    """Somebody, with the whole name, and as what that stands below a broker."""
    writer = LogWriter()
    writer.put_text(node)
    _put_standing(writer, standing)
    return writer.written


@lru_cache(16)
def _reader_of_standings(limits: Limits) -> Callable[[bytes], Standing]:
    """What reads them, by these limits."""

    def read(data: bytes) -> Standing:
        standing: Standing = LogReader(limits).alone(_STANDING, data)
        return standing

    remembered = lru_cache(STANDINGS_REMEMBERED)(read)
    return lambda data: (remembered if len(data) <= _STANDING_BYTES_MAX else read)(data)


_TEXT: Final = _Form(LogWriter.put_text, LogReader.identifier)
_FORMS_OF_TYPES: Final[dict[Any, _Form]] = {
    bool: _Form(LogWriter.put, lambda reader: reader.number() > 0),
    int: _Form(LogWriter.put, LogReader.amount),
    str: _TEXT,
    NodeId: _Form(LogWriter.put_name, LogReader.node),
    OperationId: _TEXT,
    Topic: _Form(LogWriter.put_name, LogReader.topic),
}
_FORMS_OF_NAMES: Final[dict[str, _Form]] = {
    "kind": _Form(LogWriter.put_name, LogReader.kind),
    "filter": _Form(LogWriter.put_text, LogReader.filter),
    "memory": _Form(LogWriter.put_text, LogReader.thought),
}
_STANDING: Final = _form_of(Standing)
_NUMBERS: Final = _form_of(tuple[tuple[Topic, int], ...])
_TOPICS: Final = _form_of(tuple[tuple[Topic, TopicStanding], ...])
_MEMORY: Final = _form_of(tuple[tuple[str, str], ...], "memory")
_MEMBERSHIP: Final = _form_of(Membership)
_FURTHER_FORMS: Final = {name: form for name, form in _forms_of(Entry).items() if name in _FURTHER}
