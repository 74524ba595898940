"""Lines in a chart, as SVG: as much of plotting as the figures of a bench need.

No legend: every line ends in its name. Colours are told apart by those who see fewer of them
(Okabe and Ito), and the axes begin at zero, so that twice as high is twice as much.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

import attrs

WIDTH: Final = 640
HEIGHT: Final = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 128, 56, 52
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_TICKS: Final = 5
_X_VALUES_MAX: Final = 12
_LINE_HEIGHT: Final = 14
_TITLE_HEIGHT: Final = 20
_TITLE_CHARACTERS: Final = 64
"""Of a title in one line. A wide letter of that size takes 9.5 pixels, and few letters are wide."""
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#444}"
    ".title{font-size:15px;font-weight:600;fill:#222}"
    ".grid{stroke:#e4e4e4}.axis{stroke:#999}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}"
)


@attrs.frozen
class Line:
    """What one line of a chart shows."""

    name: str
    points: Sequence[tuple[float, float]]
    """From left to right."""
    is_reference: bool = False
    """Whether it is there to be compared with: grey and dashed."""


@attrs.frozen(kw_only=True)
class Chart:
    """A chart of lines."""

    title: str
    x: str
    """What is on the axis, with its unit."""
    y: str
    lines: Sequence[Line]
    is_log_x: bool = False
    """Whether ten times as much is as far to the right everywhere; then 1 is where 0 would be."""

    def to_svg(self) -> str:
        """Draw it."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                f'width="{WIDTH}" height="{HEIGHT}" role="img">',
                f"<title>{escape(self.title)}</title><style>{_STYLE}</style>",
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
                *(
                    _text(16, 24 + row * _TITLE_HEIGHT, line, "title")
                    for row, line in enumerate(self._title_lines)
                ),
                _text(16, self._top - 12, self.y),
                _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 12, self.x, anchor="middle"),
                *self._axes(),
                *self._drawn(),
                "</svg>\n",
            ]
        )

    @property
    def _title_lines(self) -> list[str]:
        return textwrap.wrap(self.title, _TITLE_CHARACTERS)

    @property
    def _top(self) -> int:
        return _TOP + (len(self._title_lines) - 1) * _TITLE_HEIGHT

    @property
    def _x_max(self) -> float:
        return max((x for line in self.lines for x, _ in line.points), default=1.0) or 1.0

    @property
    def _y_ticks(self) -> list[float]:
        return ticks(max((y for line in self.lines for _, y in line.points), default=1.0))

    @property
    def _x_ticks(self) -> list[float]:
        """All that is shown, if that is little; else round numbers."""
        values = sorted({x for line in self.lines for x, _ in line.points})
        return values if len(values) <= _X_VALUES_MAX else ticks(self._x_max)

    def _place(self, x: float, y: float) -> tuple[float, float]:
        across, up = x / self._x_max, y / self._y_ticks[-1]
        if self.is_log_x:
            across = math.log(max(x, 1.0)) / (math.log(self._x_max) or 1.0)
        return (
            _LEFT + across * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - up * (HEIGHT - self._top - _BOTTOM),
        )

    def _axes(self) -> Iterator[str]:
        for value in self._y_ticks:
            x, y = self._place(0, value)
            kind = "grid" if value else "axis"
            yield f'<path class="{kind}" d="M{x:.1f} {y:.1f}H{WIDTH - _RIGHT}"/>'
            yield _text(x - 8, y + 4, _number(value), anchor="end")
        for value in self._x_ticks:
            x, y = self._place(value, 0)
            yield f'<path class="axis" d="M{x:.1f} {y:.1f}v5"/>'
            yield _text(x, y + 20, _number(value), anchor="middle")

    def _drawn(self) -> Iterator[str]:
        colours = iter(_COLOURS * len(self.lines))
        ends = []
        for line in self.lines:
            colour = "#999" if line.is_reference else next(colours)
            dashes = ' stroke-dasharray="5 4"' if line.is_reference else ""
            places = [self._place(x, y) for x, y in line.points]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            yield f'<path class="line" stroke="{colour}"{dashes} d="M{path}"/>'
            for x, y in places:
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
            ends.append((places[-1][1], line.name, colour))
        lowest = -math.inf
        for height, name, colour in sorted(ends):
            lowest = max(height, lowest + _LINE_HEIGHT)  # names of lines that meet stay apart
            yield _text(WIDTH - _RIGHT + 10, lowest + 4, name, colour=colour)


def ticks(largest: float) -> list[float]:
    """Return round numbers from zero up to the first that is not below the largest value."""
    if largest <= 0:
        return [0.0, 1.0]
    rough = largest / _TICKS
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(s * magnitude for s in (1, 2, 2.5, 5, 10) if s * magnitude >= rough)
    return [number * step for number in range(math.ceil(largest / step - 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.6g}" if value < 1_000 else f"{value:,.0f}"


def _text(
    x: float, y: float, text: str, kind: str = "", *, anchor: str = "start", colour: str = ""
) -> str:
    looks = f' class="{kind}"' if kind else ""
    looks += f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{looks}>{escape(text)}</text>'
