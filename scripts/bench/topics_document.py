"""What the document reports, figure by figure, as data: nothing else of it is in this program.

"Dynamic Message Ordering for Topic-Based Publish/Subscribe Systems", Baldoni, Bonomi, Platania and
Querzoni, MIDLAB Technical Report 9/2011. Its figures are pictures; what is known of them is what
its text says.
"""

from typing import Final

import attrs

DOCUMENT: Final = (
    "R. Baldoni, S. Bonomi, M. Platania, L. Querzoni: Dynamic Message Ordering for Topic-Based "
    "Publish/Subscribe Systems, MIDLAB Technical Report 9/2011"
)


@attrs.frozen
class Reported:
    """One thing that the document says of a figure."""

    figure: int
    words: str
    value: float | None = None
    """The number in it, if there is one."""
    about: str = ""
    """What it is a number of, as `topics_figures.py` looks for it."""
    section: str = "6.2"


REPORTED: Final = (
    Reported(
        9,
        "worst case: latency “steeply grows with the ENS size”",
    ),
    Reported(
        9,
        "power law: “the latency increment remains reasonable despite the system growth”",
    ),
    Reported(
        10,
        "worst case: ordering “completely drives the overall latency”",
    ),
    Reported(
        11,
        "power law: ordering “is comparable to event diffusion latency”",
    ),
    Reported(
        12,
        "“an advantageous topic order helps in augmenting the fraction of events notified "
        "within a second”",
    ),
    Reported(
        13,
        "best order: the overhead “is quite low, and it is not affected by the number of "
        "subscription”",
    ),
    Reported(
        14,
        "best order: likewise for messages, as “the number of processed messages to construct"
        " it” decreases",
    ),
    Reported(
        15,
        "“just a small buffer can greatly improve this number without impacting too "
        "negatively the notification latency”",
    ),
    Reported(
        16,
        "15.1 swaps on average with α = 0.1",
        15.1,
        "α 0.1",
    ),
    Reported(
        16,
        "7.4 swaps on average with α = 0.5, and “no benefit from dynamic adaptation”",
        7.4,
        "α 0.5",
    ),
    Reported(
        17,
        "51.8 swaps on average with β = 0.1, and a “very low” latency overhead",
        51.8,
        "β 0.1",
    ),
    Reported(
        17,
        "7.8 swaps on average with β = 0.3, and “no benefit on the performance”",
        7.8,
        "β 0.3",
    ),
    Reported(
        18,
        "“the dynamic adaptation outperforms the best case static ordering”",
    ),
    Reported(
        19,
        "the overhead is “converging to a mean value about 100 bytes”",
        100.0,
        "bytes",
    ),
    Reported(
        20,
        "latency has “a steep increase”, and quickly converges “to the values shown in the "
        "previous tests”",
    ),
    Reported(
        21,
        "without ordering “only 35% of the patterns are detected by both subscribers”",
        35.0,
        "no order",
    ),
    Reported(
        21,
        "with an infinite buffer “all the patterns are consistently detected by both”",
        100.0,
        "infinite",
    ),
    Reported(
        22,
        "latency “quickly reaches a stable point, as its value is mainly driven by the "
        "timestamps length”",
    ),
    Reported(
        23,
        "with a favourable model “without affecting the number of notifications per second”",
    ),
    Reported(
        24,
        "“close to JGroups in terms of mean latency as long as a favorable topic ordering is "
        "chosen”",
    ),
    Reported(
        24,
        "“when the event rate grows our solution starts to outperform JGroups” (power law)",
    ),
)


def reported_of(figure: int) -> list[Reported]:
    """What the document says of a figure."""
    return [one for one in REPORTED if one.figure == figure]


def value_of(figure: int, about: str) -> float:
    """A number that the document gives."""
    (value,) = (one.value for one in REPORTED if (one.figure, one.about) == (figure, about))
    assert value is not None
    return value
