from xml.etree import ElementTree

from plait.topologies.builders import line
from plait.topologies.drawing import draw_svg, draw_text
from plait.topologies.overlay import Overlay, Site

OVERLAY = Overlay(
    (
        Site("here", None, ("b1", "b1-2"), publishers=("nyse",), subscribers=("alice", "bob")),
        Site("b2", "here", ("b2",)),
        Site("b3", "b2", ("b3",)),
        Site("b4", "here", ("b4",), subscribers=("Zoë",)),
    )
)
SVG = "{http://www.w3.org/2000/svg}"


def test_an_overlay_is_a_tree_of_text() -> None:
    assert draw_text(OVERLAY) == (
        "b1  (site here; standby b1-2; publishes nyse; subscribes alice, bob)\n"
        "├── b2\n"
        "│   └── b3\n"
        "└── b4  (subscribes Zoë)\n"
    )


def test_an_overlay_is_a_picture_with_a_box_for_each_broker() -> None:
    picture = ElementTree.fromstring(draw_svg(OVERLAY))
    words = [text.text for text in picture.iter(f"{SVG}text")]

    assert len(list(picture.iter(f"{SVG}rect"))) == 4
    assert len(list(picture.iter(f"{SVG}line"))) == 3
    assert sorted(word or "" for word in words) == sorted(OVERLAY.processes)


def test_boxes_do_not_overlap_and_lie_within_the_picture() -> None:
    picture = ElementTree.fromstring(draw_svg(OVERLAY))
    boxes = [
        tuple(float(box.attrib[side]) for side in ("x", "y", "width", "height"))
        for box in picture.iter(f"{SVG}rect")
    ]

    for x, y, width, height in boxes:
        assert x >= 0
        assert y >= 0
        assert x + width <= float(picture.attrib["width"])
        assert y + height <= float(picture.attrib["height"])
    for one in boxes:
        for other in boxes:
            apart = one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
            assert one is other or apart or one[1] != other[1]


def test_a_chain_may_be_longer_than_the_stack() -> None:
    assert len(draw_text(line(2000)).splitlines()) == 2000
    assert draw_svg(line(2000)).count("<rect") == 2000
