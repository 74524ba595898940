"""The history format (`faulttol.history`), as Spark reads it."""

import functools
import operator
from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from faulttol.history import HEADER, KINDS, Field

_CORRUPT: Final = "_corrupt"

_END_WITHIN: Final = r"\}(?!\s*(,\s*\"|\}?\s*$))"
"""A brace after which neither another field follows nor the end."""

_TYPES: Final[dict[tuple[type, ...], DataType]] = {
    (str,): StringType(),
    (str, type(None)): StringType(),
    (int,): LongType(),
    (int, float): DoubleType(),
    (bool,): BooleanType(),
    (list,): ArrayType(StringType()),
    (dict,): StringType(),  # as its JSON text
}

_FIELDS: Final[dict[str, Field]] = {
    field.name: field for fields in (HEADER, *KINDS.values()) for field in fields
}

RECORD: Final = StructType(
    [StructField(field.name, _TYPES[field.types]) for field in _FIELDS.values()]
    + [StructField(_CORRUPT, StringType())]
)
"""A record with the fields of all kinds; those of other kinds than its own are null."""

KEPT: Final = (
    *("run", "node", "incarnation", "n", "at", "kind", "about", "client", "subscription"),
    *("filter", "ordered", "publisher", "seq", "content", "crc", "subscriber", "position"),
)
"""The fields that verdicts depend on, beside `subscriptions`."""


def record_of(line: Column) -> Column:
    """Parse a line as strictly as Spark can; see `is_doubtful` for the rest."""
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    return F.from_json(line, RECORD, options)


def is_doubtful(line: Column, record: Column) -> Column:
    """Tell whether `faulttol.history` may find fault with a line, which it then has to say itself.

    Spark takes numbers for text where text is expected, and so does the audit.
    """
    text = F.decode(line.cast("binary"), "UTF-8")
    doubts = [
        # What follows the first object of a line, Spark does not look at. Most records hold no
        # other object, so that their first brace is their last character.
        ~(line.startswith("{") & line.endswith("}")),
        (F.instr(line, "}") < F.length(line)) & line.rlike(_END_WITHIN),
        # What decoding puts in place of bytes that are not UTF-8.
        text.contains("\N{REPLACEMENT CHARACTER}"),
        record.isNull(),
        record[_CORRUPT].isNotNull(),
        _lacks_any(record, HEADER),
        _lacks_any_of_its_kind(record),
        *(
            F.coalesce(F.exists(record[field.name], lambda one: one.isNull()), F.lit(False))
            for field in _FIELDS.values()
            if list in field.types
        ),
    ]
    return functools.reduce(operator.or_, doubts)


def _lacks_any(record: Column, fields: Iterable[Field]) -> Column:
    missing = [record[field.name].isNull() for field in fields if not field.is_optional]
    return functools.reduce(operator.or_, missing)


def _lacks_any_of_its_kind(record: Column) -> Column:
    # The first case that applies ends the search, and nearly all records are of this kind.
    kinds = sorted(KINDS, key=lambda kind: kind != "delivered")
    first, *others = ((record["kind"] == kind, _lacks_any(record, KINDS[kind])) for kind in kinds)
    return functools.reduce(
        lambda cases, case: cases.when(*case), others, F.when(*first)
    ).otherwise(False)
