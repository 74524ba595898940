"""`plait audit --html`: one file that shows what was found."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from plait.faulttol.audit.kernel import judge_in_full
from plait.scripts.audit_page import audit_page
from tests.audit.runs import write
from tests.faulttol.broken_histories import BROKEN, EXCUSED

pytestmark = pytest.mark.spark

VOID = {"meta", "line", "rect", "br"}


class Page(HTMLParser):
    """Checks that every element is closed, and collects what is there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def page_of(*runs: Path) -> Page:
    return Page(audit_page([judge_in_full(run) for run in runs], []))


def test_every_case_makes_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    for name, case in [*BROKEN, *EXCUSED]:
        write(tmp_path / f"{name}-{case.name}", case.history(True))

    page = page_of(*sorted(tmp_path.iterdir()))

    assert page.open == ["html"]
    assert not any({"src", "href"} & attributes.keys() for _, attributes in page.elements)
    assert "script" not in {tag for tag, _ in page.elements}
    for _, case in BROKEN:
        assert case.name in page.words


def lines_in(page: Page) -> list[tuple[float, float]]:
    """Return where the lines of pictures begin and end, from top to bottom."""
    return [
        (float(attributes["y1"] or 0), float(attributes["y2"] or 0))
        for tag, attributes in page.elements
        if tag == "line"
    ]


@pytest.mark.parametrize("name", ["swapped_across_publishers", "swapped_of_one_publisher"])
def test_two_deliveries_that_disagree_are_joined_by_lines_that_cross(
    tmp_path: Path, name: str
) -> None:
    [case] = [case for _, case in BROKEN if case.name == name]
    write(tmp_path / "run", case.history(True))

    (left, right), (other_left, other_right) = lines_in(page_of(tmp_path / "run"))

    assert (left < other_left) != (right < other_right)


def test_names_are_text_and_no_html(tmp_path: Path) -> None:
    [case] = [case for _, case in BROKEN if case.name == "dropped"]
    write(tmp_path / "<b>run", case.history(True))

    page = audit_page([judge_in_full(tmp_path / "<b>run")], ["<i>damage"])

    assert "<b>run" not in page
    assert "<i>" not in page
    assert "&lt;i&gt;damage" in page


def test_figures_of_a_run_are_there(tmp_path: Path) -> None:
    [case] = [case for _, case in EXCUSED if case.name == "a_slow_broker_has_not_failed"]
    write(tmp_path / "run", case.history(True))

    page = page_of(tmp_path / "run")

    assert "1 crashed, 1 frozen, 1 unfrozen" in page.words.replace("1 suspected, ", "")
    assert "every guarantee held" in page.words
    assert "too many failures" in page.words


def test_runs_are_named_within_the_folder_that_they_share(tmp_path: Path) -> None:
    for name, case in EXCUSED[:2]:
        (tmp_path / "deep" / name).mkdir(parents=True, exist_ok=True)
        write(tmp_path / "deep" / name / case.name, case.history(True))

    page = page_of(*sorted(tmp_path.glob("deep/*/*")))
    cells = [attributes for tag, attributes in page.elements if tag == "td"]

    assert page.words.count(f"{tmp_path}/") == 1
    assert {"class": "number"} in cells
