"""The figures of a session, for people."""

from collections.abc import Iterable, Iterator
from typing import Final

from plait.scripts.bench.figures import Figures, Trials
from plait.scripts.bench.memory import Memory, MemoryFigures
from plait.scripts.bench.peers import PeerFigures
from plait.scripts.bench.workloads import PAYLOAD_BYTES, Workload

NOISE_PERCENT: Final = 15.0
"""Other programs that use more of the machine than this spoil a figure."""
_WIDTH: Final = 36


def report(figures: Figures) -> str:
    """Set the figures in tables, with the ratios below."""
    lines = [
        f"{figures.rounds} rounds of {figures.seconds:g} s, everybody by turns: medians. "
        f"{PAYLOAD_BYTES} bytes; ordering {figures.ordering}."
    ]
    for workload in dict.fromkeys(trials.workload for trials in figures.trials):
        lines += _table([one for one in figures.trials if one.workload == workload], workload)
    if figures.memory is not None:
        lines += _memory(figures.memory)
    if figures.peers is not None:
        lines += _peers(figures.peers)
    if figures.ratios:
        lines += ["", "plait reaches"]
        for ratio in figures.ratios:
            wanted = f" (wanted: {ratio.wanted})" if ratio.wanted else ""
            lines.append(f"{_number(ratio.value):>8}  {ratio.meaning}{wanted}")
    return "\n".join(lines)


def _table(trials: list[Trials], workload: Workload) -> Iterator[str]:
    publishers = f"{workload.publishers} publisher{'s' * (workload.publishers > 1)}"
    pace = f"{workload.rate:g} a second each" if workload.rate else "as fast as it goes"
    wish = "each wants a class of its own" if workload.is_selective else "each wants everything"
    yield ""
    yield f"{workload.name}: {publishers}, {pace}; {workload.subscribers} subscribers, {wish}"
    yield (
        f"{'':<{_WIDTH}}{'msg/s':>9}{'deliv./s':>11}{'p50 ms':>8}{'p99 ms':>8}"
        f"{'CPU µs per delivery':>21}{'others':>9}"
    )
    for one in trials:
        median = one.median
        cpu = f"{median.system_us:.2f} + {median.clients_us:.2f}"
        yield (
            f"{one.system.title:<{_WIDTH}}{median.messages_per_s:>9,.0f}"
            f"{median.deliveries_per_s:>11,.0f}{median.p50_ms:>8.2f}{median.p99_ms:>8.2f}"
            f"{cpu:>21}{others_text(max(each.others_percent for each in one.outcomes)):>9}"
        )
        yield from _missing(one)


def _memory(memory: MemoryFigures) -> Iterator[str]:
    yield ""
    yield (
        f"memory: subscriptions of three constraints, each of them installed at all "
        f"{len(memory.empty.resident_bytes)} brokers"
    )
    yield (
        f"{'subscriptions':<{_WIDTH}}{'MB per broker':>20}{'bytes each':>12}"
        f"{'ms to subscribe: alone, all at once':>38}"
    )
    yield _memory_line(memory.empty)
    for stage, bytes_each in zip(memory.stages, memory.bytes_each, strict=True):
        times = f"{stage.alone_p50_ms:.2f}, {stage.concurrent_ms:.2f}"
        yield f"{_memory_line(stage.memory)}{bytes_each:>12,.0f}{times:>38}"


def _memory_line(memory: Memory) -> str:
    low, high = min(memory.resident_bytes) / 1e6, max(memory.resident_bytes) / 1e6
    return f"{memory.subscriptions:<{_WIDTH},}{f'{low:.1f} to {high:.1f}':>20}"


def _peers(peers: PeerFigures) -> Iterator[str]:
    yield ""
    yield "peers, in a harness of their own: " + "; ".join(peers.versions.values())
    for scenario, rows in peers.rows.items():
        yield f"{scenario:<{_WIDTH}}{'msg/s':>9}{'p50 ms':>19}{'p99 ms':>8}{'others':>30}"
        for peer in rows:
            yield (
                f"{peer:<{_WIDTH}}{peers.messages_per_s(scenario, peer):>9,.0f}"
                f"{'':>11}{peers.latency_ms(scenario, peer):>8.2f}"
                f"{peers.latency_ms(scenario, peer, 'p99'):>8.2f}{'':>21}"
                f"{others_text(peers.others_percent(scenario, peer)):>9}"
            )
    for peer, reason in peers.left_out.items():
        yield f"{peer} is left out: {reason}"


def trials_table(rows: Iterable[tuple[str, Trials]], *, label: str, width: int) -> Iterator[str]:
    """What each of these reached over TCP, in medians, behind a label of its own."""
    yield (
        f"{label:<{width}}{'msg/s':>9}{'p50 ms':>8}{'p99 ms':>8}"
        f"{'CPU µs per delivery':>21}{'disagree':>10}{'others':>9}"
    )
    for text, one in rows:
        median = one.median
        yield (
            f"{text:<{width}}{median.messages_per_s:>9,.0f}"
            f"{median.p50_ms:>8.2f}{median.p99_ms:>8.2f}"
            f"{f'{median.system_us:.2f} + {median.clients_us:.2f}':>21}"
            f"{max(outcome.disagreeing for outcome in one.outcomes):>10}"
            f"{others_text(max(outcome.others_percent for outcome in one.outcomes)):>9}"
        )
        yield from _missing(one)


def _missing(trials: Trials) -> Iterator[str]:
    missing = sum(outcome.missing for outcome in trials.outcomes)
    if missing:
        yield f"  {missing} deliveries are missing"


def others_text(percent: float) -> str:
    """How much of the machine other programs used at most; marked if that is too much."""
    return f"{percent:.0f} %{'!' if percent > NOISE_PERCENT else ' '}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
