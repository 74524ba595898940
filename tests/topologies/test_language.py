import pytest

from plait.topologies.errors import Position, ScriptError
from plait.topologies.language import Line, lines, one_of, quoted


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n", "\r"], ids=["LF", "CRLF", "CRCRLF", "CR"])
def test_lines_end_in_every_way_there_is(end: str) -> None:
    text = end.join(["Status", "", "Wait 5", "Status"])

    assert [(line.number, line.text) for line in lines(text, "x")] == [
        (1, "Status"),
        (3, "Wait 5"),
        (4, "Status"),
    ]


def test_only_what_editors_call_a_line_is_one() -> None:
    assert [line.number for line in lines("a\fb\x1cc\u2028d\ne", "x")] == [1, 2]


def test_a_byte_order_mark_is_no_text_even_where_two_files_were_joined() -> None:
    assert [line.text for line in lines("\ufeffWait 1\n\ufeffWait 2", "x")] == ["Wait 1", "Wait 2"]


def test_blank_lines_and_comments_say_nothing() -> None:
    assert list(lines(" \t\n// Status\n  // Status", "x")) == []


def test_a_comment_begins_where_a_word_could() -> None:
    line = Line("x", 1, "tcp://localhost //not/read")

    assert line.word("a word") == "tcp://localhost"
    assert line.is_at_end


def test_blanks_are_of_any_kind() -> None:
    line = Line("x", 1, "\t Wait \u00a0\t 5  ")

    assert line.start == Position("x", 1, 3)
    assert line.keyword("Wait") == "Wait"
    assert line.here == Position("x", 1, 11)
    assert line.whole_number("milliseconds") == 5
    assert line.is_at_end


def test_keywords_come_in_any_case_and_are_returned_in_one() -> None:
    assert Line("x", 1, "oNtOpIc").keyword("CONTENT", "Ontopic") == "Ontopic"


@pytest.mark.parametrize("name", ["broker0-0", "sub_1", "v1.2", "Zürich", "x" * 48])
def test_names_may_have(name: str) -> None:
    assert Line("x", 1, name).name("site") == name


@pytest.mark.parametrize("name", ["../b", "a/b", "-a", ".a", "a:b", "x" * 49, "a'b"])
def test_names_may_not_have(name: str) -> None:
    with pytest.raises(ScriptError, match="expected a site name: letters, digits"):
        Line("x", 1, name).name("site")


def test_the_rest_of_a_line_keeps_its_blanks_and_quotes_but_no_comment() -> None:
    line = Line("x", 1, "WHERE a = 'it''s  // \"' AND b > 1  // why not")
    line.keyword("WHERE")

    assert line.rest("a filter") == "a = 'it''s  // \"' AND b > 1"
    assert line.is_at_end


def test_a_quote_that_never_ends_is_only_a_character() -> None:
    assert Line("x", 1, "can't // stop").rest("a filter") == "can't"


def test_choices_are_listed_as_people_list_them() -> None:
    assert [one_of(("a",)), one_of(("a", "b")), one_of(("a", "b", "c"))] == [
        "a",
        "a or b",
        "a, b or c",
    ]


def test_what_was_found_is_shown_on_one_line_and_not_in_full() -> None:
    assert quoted("Grüße") == "'Grüße'"
    assert quoted("a\x07b") == "'a\\x07b'"
    assert quoted("x" * 1000) == f"'{'x' * 40}...'"
