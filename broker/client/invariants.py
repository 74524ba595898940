"""What is true of a client after every step and every call: looked at again, and compared."""

from collections.abc import Iterator

from plait.broker.client.core import ClientCore
from plait.broker.client.states import Contact, Session
from plait.broker.client.stream import Stream

_FLOWING = (Session.STANDING, Session.LEAVING, Session.PARTING)


def check_invariants(core: ClientCore) -> None:
    """Raise AssertionError with all that is not as it should be."""
    broken = [*_states(core), *_stream(core.stream), *_publications(core)]
    broken += core.interests.contradictions()
    assert not broken, f"{core.node} after step {core.stream.step}: " + "; ".join(broken)


def _states(core: ClientCore) -> Iterator[str]:
    """Where the connection stands, and whether there is one."""
    session, stream = core.session, core.stream
    is_there = session.contact in (Contact.GREETING, Contact.ATTACHING, Contact.CONNECTED)
    if not session.is_over and (session.link is not None) != is_there:
        yield f"'{session.contact}' with link {session.link}"
    is_connected = session.contact is Contact.CONNECTED and not session.is_over
    if stream.is_connected != is_connected:
        yield f"'{session.contact}', and the stream is connected: {stream.is_connected}"
    if stream.is_within_batch and not stream.is_connected:
        yield "half a batch outlived its connection"
    if session.contact is Contact.APART and session.redial_at is None and not session.is_over:
        yield "nobody will ever dial"


def _stream(stream: Stream) -> Iterator[str]:
    """Counters only grow, and what is kept lies within the streams."""
    now = (
        stream.step,
        stream.taken,
        stream.sent.count,
        stream.sent.stable_count,
        stream.received.count,
        stream.received.stable_count,
        stream.forgot,
    )
    if any(after < before for before, after in zip(stream.counted, now, strict=False)):
        yield f"counters shrank from {stream.counted} to {now}"
    stream.counted = now
    steps = [control.step for control in stream.controls]
    if steps != sorted(steps):
        yield f"controls go back in time: {steps}"
    if steps and not stream.forgot < steps[0] <= steps[-1] <= stream.step + 1:
        yield f"controls of {steps}, kept from {stream.forgot} to {stream.step}"
    if any(not 0 <= control.position <= stream.sent.count for control in stream.controls):
        yield "a control lies beyond the stream"
    told = stream.told
    if told is not None and (told[0] > stream.received.count or told[1] > stream.taken):
        yield f"{told} was told, {(stream.received.count, stream.taken)} is so"


def _publications(core: ClientCore) -> Iterator[str]:
    """What is not stable is kept once, in order."""
    publishing = core.publishing
    seqs = [publication.seq for publication in (*core.stream.sent.kept, *publishing.waiting)]
    if seqs != sorted(set(seqs)) or (seqs and seqs[-1] != publishing.seq):
        yield f"publications {seqs} are kept, {publishing.seq} was the last"
    if publishing.handed_over > publishing.seq:
        yield f"{publishing.handed_over} was handed over, {publishing.seq} is the last"
    if publishing.waiting and core.session.session in _FLOWING:
        yield "publications wait although the session stands"
