"""The life of a publication as ARCHITECTURE.md tells it, step by step, on one broker."""

import re
from pathlib import Path

from broker.codec import FrameDecoder, encode, encode_content
from broker.core import BrokerCore
from broker.effects import SendMessage
from broker.inputs import LinkId, LinkOpened, MessagesReceived
from broker.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Hello,
    Join,
    Message,
    NodeKind,
    Progress,
    Publish,
    Subscribe,
)
from faulttol.neighbourhood import TopologyLink
from routing.ids import AdvertisementId, NodeId, OperationId, SubscriptionId

BROKER = NodeId("b1")
TICKER_LINK, READER_LINK = LinkId(1), LinkId(2)


def greeting(client: NodeId) -> list[Message]:
    link = TopologyLink(child=client, parent=BROKER, kind="client", incarnation=1, address="")
    return [
        Hello(
            version=PROTOCOL_VERSION,
            node=client,
            kind=NodeKind.CLIENT,
            incarnation=1,
        ),
        Join(operation=OperationId(f"{client}#1.1"), link=link, distance=0),
    ]


def broker_with_a_ticker_and_a_reader() -> BrokerCore:
    core = BrokerCore(BROKER, 1)
    core.start(0.0)
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
    for link, messages in (
        (TICKER_LINK, [*greeting(ticker), advertise]),
        (READER_LINK, [*greeting(reader), subscribe]),
    ):
        core.step(0.0, LinkOpened(link))
        core.step(0.0, MessagesReceived(link, messages))
    return core


def test_the_life_of_a_publication() -> None:
    core = broker_with_a_ticker_and_a_reader()

    # 1. Bytes arrive.
    content = encode_content({"symbol": "IBM", "price": 101.5})
    arriving = encode(Publish(NodeId("ticker"), 1, 1, 0, content, b"body"))

    # 2. Bytes become messages; a Publish keeps its bytes.
    decoder = FrameDecoder()
    messages = decoder.feed(arriving[:7]) + decoder.feed(arriving[7:])
    [publication] = messages
    assert isinstance(publication, Publish)
    assert publication.frame == arriving

    # 3. The core is told.
    effects = core.step(1.0, MessagesReceived(TICKER_LINK, messages))

    # 4. to 6. It is new, one reader wants it, and there is no parent to climb to.
    counters = core.publications.counters
    assert counters.received == counters.matched == 1
    assert counters.duplicate == 0

    # 7. and 8. It is settled, and sent once for all receivers.
    sent = [e for e in effects if isinstance(e, SendMessage) and e.message is publication]
    assert [effect.links for effect in sent] == [(READER_LINK,)]

    # 9. The bytes that came in go out.
    assert encode(publication) == arriving

    # 10. It is kept until the reader has confirmed it; then its publisher hears of it.
    assert core.publications.unstable == 1
    core.step(2.0, MessagesReceived(READER_LINK, [Progress(received=1, sent=0)]))
    assert core.publications.unstable == 0
    assert core.neighbours.below[NodeId("ticker")].progress == (1, 0)


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
