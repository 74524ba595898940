"""PADRES predicates: what they mean in SQL, and what is wrong with the others."""

import pytest

from plait.routing.errors import FilterSyntaxError
from plait.routing.filter_text import parse_filter, parse_padres


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("[class,eq,'STOCK'],[price,>,100]", "class = 'STOCK' AND price > 100"),
        ("[class, eq, STOCK] [price, <=, 1.5]", "class = 'STOCK' AND price <= 1.5"),
        ("  [price,>,100],[price,<,120]", "price > 100 AND price < 120"),
        ("[price,between,100,120]", "price >= 100 AND price <= 120"),
        ("[n,=,-5]", "n = -5"),
        ("[n,<>,+5]", "n <> 5"),
        ("[n,>=,1e3]", "n >= 1000.0"),
        ("[city,neq,New York]", "city <> 'New York'"),
        ('[city,eq,"it\'s"]', "city = 'it''s'"),
        ("[city,eq,'it''s, [really]']", "city = 'it''s, [really]'"),
        ("[urgent,eq,true]", "urgent = TRUE"),
        ("[urgent,eq,'true']", "urgent = 'true'"),
        ("[price,isPresent]", "price IS NOT NULL"),
        ("[price,isPresent,0]", "price IS NOT NULL"),
        ("[price,ISPRESENT,'any']", "price IS NOT NULL"),
        ("[name,str-prefix,'ab']", "name LIKE 'ab%'"),
        ("[name,str-postfix,'ab']", "name LIKE '%ab'"),
        ("[name,str-contains,'a_b']", r"name LIKE '%a\_b%' ESCAPE '\'"),
        ("[name,str-contains,'']", "name LIKE '%'"),
        ("[name,str-prefix,007]", "name LIKE '007%'"),
        ("[name,str-lt,12]", "name < '12'"),
        ("[name,str-le,m]", "name <= 'm'"),
        ("[name,str-gt,m]", "name > 'm'"),
        ("[name,str-ge,'m']", "name >= 'm'"),
        ("[job-name,eq,x:y]", "\"job-name\" = 'x:y'"),
    ],
)
def test_reads(text: str, canonical: str) -> None:
    parsed = parse_filter(text)

    assert parsed.sql == canonical
    assert parse_filter(canonical) == parsed


@pytest.mark.parametrize(
    ("text", "position", "expected", "found"),
    [
        ("", 0, "a predicate in brackets", "the end"),
        ("price > 1", 0, "a predicate in brackets", "'price > 1'"),
        ("[", 1, "an attribute name", "the end"),
        ("['a',eq,1]", 1, "an attribute name", "'a'"),
        ("[a]", 2, "a comma and an operator", "']'"),
        ("[a,]", 3, "an operator", "']'"),
        ("[a,eq]", 3, "one value for this operator", "'eq'"),
        ("[a,eq,]", 6, "a value", "']'"),
        ("[a,eq,1", 7, "a comma or ]", "the end"),
        ("[a,eq,1,2]", 3, "one value for this operator", "'eq'"),
        ("[a,between,1]", 3, "two values for this operator", "'between'"),
        ("[a,isPresent,1,2]", 3, "no value or one for this operator", "'isPresent'"),
        ("[a,eq,1],", 9, "a predicate in brackets", "the end"),
        ("[a,eq,1];", 8, "a predicate in brackets", "';'"),
        ("[a,eq,'x]", 6, "a closing '", "none"),
        (
            "[a,>,99999999999999999999]",
            5,
            "a number that fits into 64 bits",
            "'99999999999999999999'",
        ),
    ],
)
def test_points_at_the_character_and_says_what_is_expected(
    text: str, position: int, expected: str, found: str
) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_padres(text)

    error = caught.value
    assert (error.position, error.expected, error.found) == (position, expected, found)


def test_an_unknown_operator_is_answered_with_those_there_are() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_padres("[a,like,'x']")

    assert caught.value.position == 3
    assert caught.value.expected == (
        "an operator (eq, =, neq, <>, <, <=, >, >=, str-lt, str-le, str-gt, str-ge, "
        "str-prefix, str-postfix, str-contains, isPresent, between)"
    )


def test_a_missing_attribute_satisfies_no_predicate() -> None:
    assert not parse_padres("[a,neq,1]").matches({})
