"""Step logs that clients bring of brokers that have failed, and have made up in part."""

from random import Random

import pytest

from plait.broker.effects import Effect, SendMessage
from plait.broker.log_codec import decode_logs
from plait.broker.messages import AttachTables, GoodbyeCode
from plait.broker.sim.nodes import Node
from plait.faulttol.steplog import Entry, Membership, Standing, StepLog, Taken
from plait.routing.ids import NodeId
from tests.host.peers import Peer, Visited
from tests.host.worlds import MS, Client, Conversation
from tests.sweeps import Seeds

A, B, C = map(NodeId, "abc")
READER, TICKER, EVIL = map(NodeId, ("reader", "ticker", "evil"))


class Forged:
    """The broker b between a and c has failed, and a client of it knows better what it had done."""

    def __init__(self) -> None:
        self.overlay = overlay = Conversation()
        overlay.brokers("a", b="a", c="b")
        self.reader: Client = overlay.client("reader", "b")
        self.reader.subscribes("TRUE")
        ticker = overlay.client("ticker", "a")
        ticker.advertises("TRUE")
        overlay.settle()
        ears = Visited(overlay)
        evil = ears.peer("evil", "b").joins()
        overlay.settle(0.2)
        evil.steps(evil.subscription("evil/1"))
        overlay.settle(0.1)
        ticker.publishes(x=1)
        overlay.settle(1.5 * MS)
        self.log = overlay.machine("b").steps.log.copy()
        overlay.crashes("b")
        overlay.settle(1.5 * MS)
        assert evil.welcome is not None
        self.evil: Peer = ears.peer(
            "evil", "a", to="b", known_term=1, secret=evil.welcome.secret, taken=evil.step
        )
        overlay.settle(5 * MS)
        assert self.evil.is_to_attach
        self.taken = evil.step

    def attaches(self, *entries: Entry) -> None:
        """It says that these came behind all that it was told of."""
        log: StepLog = self.log.copy()
        for entry in entries:
            log.append(entry)
        self.evil.attaches("b", taken=self.taken, logs={B: log})
        self.overlay.settle(8.0)

    @property
    def trace(self) -> str:
        return "\n".join(self.overlay.world.trace)


IMPOSSIBLE = {
    "a batch that a never sent": Entry(Taken.BATCH, A, 99),
    "a batch of a client that is none": Entry(Taken.BATCH, READER, 77),
    "a broker is gone that lives": Entry(Taken.GONE, C, 0),
    "a broker is removed that lives": Entry(Taken.REPLAY, members=Membership(removed=(C,))),
    "a stream begins anew that has not": Entry(Taken.ANEW, A, 3),
}


@pytest.mark.parametrize("entry", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_a_client_says_and_cannot_be_so_is_set_aside_and_nobody_else_misses_anything(
    entry: Entry,
) -> None:
    run = Forged()
    run.attaches(entry)

    assert run.evil.goodbye is not None
    assert run.evil.goodbye.code is GoodbyeCode.REFUSED
    assert "error contradiction brokers=['b']" in run.trace
    assert "set_aside=['evil']" in run.trace
    assert run.overlay.players("b") == ["a"]
    assert run.reader.received == ["ticker:1"]
    assert run.overlay.unfinished() == []


def test_who_says_what_was_is_believed_though_it_is_the_only_one() -> None:
    run = Forged()
    run.attaches()

    assert run.evil.goodbye is None
    assert "contradiction" not in run.trace
    assert run.reader.received == ["ticker:1"]
    assert run.overlay.violations() + run.overlay.unfinished() == []


def some_entry(random: Random) -> Entry:
    """Anything at all."""
    names = [*(A, B, C), READER, EVIL, NodeId("x")]
    kind = random.choice(list(Taken))
    keys = [(random.choice(names), 1, random.randint(1, 3)) for _ in range(random.randint(0, 2))]
    joined = Standing(kind=random.choice(["client", "broker"]), incarnation=random.randint(0, 2))
    return Entry(
        kind,
        random.choice(names),
        random.randint(0, 12),
        tuple((key, True) for key in keys),
        tuple(keys[: random.randint(0, 2)]),
        tuple(random.sample(["evil/1", "reader/1", "zz"], random.randint(0, 1))),
        Membership(
            joined=joined if kind is Taken.JOINED else None,
            admitted=tuple(random.sample(names, random.randint(0, 1))),
            removed=tuple(random.sample(names, random.randint(0, 1))),
        ),
    )


def test_whatever_a_client_makes_up_no_process_ends_and_brokers_stand_where_they_stood(
    seeds: Seeds,
) -> None:
    for seed in seeds(10, 200):
        random, run = Random(seed), Forged()
        run.attaches(*(some_entry(random) for _ in range(random.randint(1, 4))))

        assert run.overlay.players("b") == ["a"], seed
        assert run.overlay.machine("b").neighbours.named(C) is not None, seed
        assert not [text for text in run.overlay.unfinished() if "connected" in text], seed


def test_what_hosts_know_of_who_stood_next_to_a_broker_its_clients_do_not_repeat() -> None:
    overlay = Conversation()
    overlay.brokers("a", b="a")
    readers = [overlay.client(f"reader{number}", "b") for number in range(5)]
    for reader in readers:
        reader.subscribes("TRUE")
    ticker = overlay.client("ticker", "a")
    ticker.advertises("TRUE")
    overlay.settle()
    rows: list[int] = []

    def look(_: Node, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendMessage) and isinstance(effect.message, AttachTables):
                told = decode_logs(effect.message.logs)
                rows.append(sum(len(part.neighbours) for part in told.values()))

    overlay.world.on_effects = look
    ticker.publishes(x=1)
    overlay.settle(1.5 * MS)
    overlay.crashes("b")
    overlay.settle(8.0)

    assert rows == [0] * len(readers)
    assert [reader.received for reader in readers] == [["ticker:1"]] * len(readers)
    assert overlay.troubles() == []


def test_of_a_step_that_only_its_sender_knows_the_sender_may_have_forgotten_what_it_was() -> None:
    """What nobody wants is stable at once, and its publisher is the only one that hears so."""
    overlay = Conversation()
    overlay.brokers("a", b="a")
    reader = overlay.client("reader", "b")
    reader.subscribes("x = 1")
    writer, ticker = overlay.client("writer", "b"), overlay.client("ticker", "b")
    for client in (writer, ticker):
        client.advertises("TRUE")
    overlay.settle()
    overlay.freezes("reader")
    writer.publishes(x=1)
    overlay.settle(5 * MS)
    ticker.publishes(x=2)
    while ticker.core.unconfirmed:
        overlay.settle(MS / 2)
    overlay.crashes("b")
    overlay.goes_on("reader")
    overlay.settle(8.0)

    assert "contradiction" not in "\n".join(overlay.world.trace)
    assert reader.received == ["writer:1"]
    assert overlay.troubles() == []
