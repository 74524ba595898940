"""Pictures of an overlay: a tree of text for a terminal, an SVG for anything else."""

from collections.abc import Iterator
from html import escape
from typing import Final

from plait.topologies.overlay import Overlay, Site

COLUMN: Final = 150
"""Pixels from one leaf of the tree to the next; a name of 20 letters fits."""
ROW: Final = 110
MARGIN: Final = 80
LETTER_WIDTH: Final = 7.5
LINE_HEIGHT: Final = 15
BOX_HEIGHT: Final = 28
STYLE: Final = (
    "text{font:13px sans-serif;text-anchor:middle}"
    ".broker{fill:#e8f0fe;stroke:#3b6fb6}.root{fill:#cfe0fc;stroke-width:2}"
    ".link{stroke:#888}.publisher{fill:#a05a00}.subscriber{fill:#1d7a35}.standby{fill:#888}"
)


def draw_text(overlay: Overlay) -> str:
    """Return the tree with a line for each site: its broker, and who else is there."""
    lines = []
    # Not by recursion: a chain of brokers may be longer than Python's stack.
    waiting = [(overlay.root, "", "")]
    while waiting:
        broker, lead, lead_below = waiting.pop()
        lines.append(f"{lead}{broker}{_company(overlay.site_of(broker))}\n")
        branch, trunk = "└── ", "    "
        for child in reversed(overlay.children_of(broker)):
            waiting.append((child, lead_below + branch, lead_below + trunk))
            branch, trunk = "├── ", "│   "
    return "".join(lines)


def _company(site: Site) -> str:
    named = {
        "site": () if site.name == site.broker else (site.name,),
        "standby": site.standbys,
        "publishes": site.publishers,
        "subscribes": site.subscribers,
    }
    parts = [f"{what} {', '.join(names)}" for what, names in named.items() if names]
    return f"  ({'; '.join(parts)})" if parts else ""


def draw_svg(overlay: Overlay) -> str:
    """Return the tree as a picture, the root on top, with clients below their brokers."""
    places = _places(overlay)
    crowds = {broker: list(_crowd(overlay.site_of(broker))) for broker in overlay.brokers}
    tallest = max(map(len, crowds.values())) * LINE_HEIGHT
    row = ROW + tallest
    depth = max(level for _, level in places.values())
    width = 2 * MARGIN + max(column for column, _ in places.values()) * COLUMN
    height = MARGIN + depth * row + BOX_HEIGHT + tallest + MARGIN / 2
    points = {
        broker: (MARGIN + column * COLUMN, MARGIN / 2 + BOX_HEIGHT / 2 + level * row)
        for broker, (column, level) in places.items()
    }
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}">',
            f"<style>{STYLE}</style>",
            *_links(overlay, points),
            *(line for broker in overlay.brokers for line in _box(overlay, broker, points)),
            *(
                f'<text class="{kind}" x="{points[broker][0]:g}" '
                f'y="{points[broker][1] + BOX_HEIGHT / 2 + number * LINE_HEIGHT:g}">'
                f"{escape(name)}</text>"
                for broker, crowd in crowds.items()
                for number, (kind, name) in enumerate(crowd, start=1)
            ),
            "</svg>\n",
        ]
    )


def _places(overlay: Overlay) -> dict[str, tuple[float, int]]:
    """Return the column and the level of every broker: leaves side by side, others above."""
    places: dict[str, tuple[float, int]] = {}
    leaves = 0
    levels = overlay.distances_from(overlay.root)
    # Depth first, and then backwards: every broker after all of its children.
    order: list[str] = []
    waiting = [overlay.root]
    while waiting:
        order.append(waiting.pop())
        waiting += overlay.children_of(order[-1])
    for broker in reversed(order):
        columns = [places[child][0] for child in overlay.children_of(broker)]
        if not columns:
            columns = [leaves]
            leaves += 1
        places[broker] = (min(columns) + max(columns)) / 2, levels[broker]
    return places


def _links(overlay: Overlay, points: dict[str, tuple[float, float]]) -> Iterator[str]:
    for broker in overlay.brokers:
        for child in overlay.children_of(broker):
            (x1, y1), (x2, y2) = points[broker], points[child]
            yield f'<line class="link" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _box(overlay: Overlay, broker: str, points: dict[str, tuple[float, float]]) -> Iterator[str]:
    x, y = points[broker]
    width = max(50, len(broker) * LETTER_WIDTH + 16)
    kind = "broker root" if broker == overlay.root else "broker"
    yield (
        f'<rect class="{kind}" x="{x - width / 2:g}" y="{y - BOX_HEIGHT / 2:g}" '
        f'width="{width:g}" height="{BOX_HEIGHT}" rx="6"/>'
    )
    yield f'<text x="{x:g}" y="{y + 4:g}">{escape(broker)}</text>'


def _crowd(site: Site) -> Iterator[tuple[str, str]]:
    """Yield who is at a site beside its broker, with the class of each in the picture."""
    for kind, names in (
        ("standby", site.standbys),
        ("publisher", site.publishers),
        ("subscriber", site.subscribers),
    ):
        yield from ((kind, name) for name in names)
