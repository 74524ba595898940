"""The life of a publication as ARCHITECTURE.md tells it, step by step, on one broker."""

import re
from pathlib import Path

from plait.broker.codec import FrameDecoder, encode, encode_content
from plait.broker.effects import SendMessage
from plait.broker.host.host import Host
from plait.broker.inputs import LinkId, LinkOpened, MessagesReceived
from plait.broker.messages import (
    PROTOCOL_VERSION,
    Advertise,
    EndOfStep,
    Hello,
    Join,
    Message,
    NodeKind,
    Progress,
    Publish,
    Subscribe,
)
from plait.routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId

BROKER = NodeId("b1")
TICKER_LINK, READER_LINK = LinkId(1), LinkId(2)


def greeting(client: NodeId) -> list[Message]:
    return [
        Hello(
            version=PROTOCOL_VERSION,
            node=client,
            kind=NodeKind.CLIENT,
            incarnation=1,
            host=client,
        ),
        Join(operation=OperationId(f"{client}#1.1")),
        EndOfStep(step=1),
    ]


def host_with_a_ticker_and_a_reader() -> Host:
    host = Host(BROKER, 1)
    host.start(0.0)
    ticker, reader = NodeId("ticker"), NodeId("reader")
    advertise = Advertise(
        operation=OperationId("ticker#1.2"),
        advertisement=AdvertisementId("ticker/1"),
        client=ticker,
        filter="symbol IS NOT NULL",
        path=(ticker,),
    )
    subscribe = Subscribe(
        operation=OperationId("reader#1.2"),
        subscription=SubscriptionId("reader/1"),
        client=reader,
        filter="price > 100",
        ordered=True,
        path=(reader,),
    )
    for link, client, request in (
        (TICKER_LINK, ticker, advertise),
        (READER_LINK, reader, subscribe),
    ):
        host.step(0.0, LinkOpened(link))
        host.step(0.0, MessagesReceived(link, greeting(client)))
        host.step(0.0, MessagesReceived(link, [request, EndOfStep(step=2)]))
    return host


def test_the_life_of_a_publication() -> None:
    host = host_with_a_ticker_and_a_reader()
    machine = host.parts.playing.machine(BROKER)
    assert machine is not None

    # 1. Bytes arrive.
    content = encode_content({"symbol": "IBM", "price": 101.5})
    arriving = encode(Publish(NodeId("ticker"), 1, 1, 0, content, b"body"))

    # 2. Bytes become messages; a Publish keeps its bytes.
    decoder = FrameDecoder()
    messages = decoder.feed(arriving[:7]) + decoder.feed(arriving[7:])
    [publication] = messages
    assert isinstance(publication, Publish)
    assert publication.frame == arriving

    # 3. The host is told, and keeps it: that is a part of a batch.
    effects = host.step(0.001, MessagesReceived(TICKER_LINK, messages))
    assert not [effect for effect in effects if isinstance(effect, SendMessage)]

    # 4. When the end of the batch has come, the broker takes it whole, in one step.
    before = machine.steps.number
    effects = host.step(0.001, MessagesReceived(TICKER_LINK, [EndOfStep(step=3)]))
    assert machine.steps.number == before + 1
    assert machine.steps.log.entries[-1].source == "ticker"

    # 5. and 6. One reader wants it, and there is no parent to climb to.
    counters = machine.publications.counters
    assert counters.received == counters.matched == 1

    # 7. and 8. It is settled, and sent once for all receivers, as a batch of this step.
    sent = [effect for effect in effects if isinstance(effect, SendMessage)]
    assert [(effect.links, type(effect.message)) for effect in sent] == [
        ((READER_LINK,), Publish),
        ((READER_LINK,), EndOfStep),
    ]
    assert sent[0].message is publication

    # 9. The bytes that came in go out.
    assert encode(publication) == arriving

    # 10. It is kept until the reader has confirmed it; then its publisher hears of it.
    assert machine.publications.unstable == 1
    confirmed = Progress(received=1, sent=0, forgotten=before + 1)
    host.step(2.0, MessagesReceived(READER_LINK, [confirmed]))
    assert machine.publications.unstable == 0
    assert machine.neighbours.below[NodeId("ticker")].progress == (1, 0)


def test_the_architecture_names_what_exists() -> None:
    """Every file and function that the list mentions is there."""
    root = Path(__file__).parent.parent
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    life = text.partition("## The life of a publication")[2].partition("\n## ")[0]
    named = re.findall(r"`([^`]+)`", life)
    sources = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("broker", "faulttol", "routing")
        for path in sorted((root / folder).rglob("*.py"))
    )

    for name in named:
        if name.endswith(".py"):
            assert (root / name).is_file(), name
        elif name != "ticker:7":
            identifier = name.partition("(")[0].rpartition(".")[2]
            assert re.search(rf"\b{identifier}\b", sources), name
