"""What a broker says about itself, as JSON that fits into one message."""

import json
from collections.abc import Mapping
from typing import Any, Final

_LISTS: Final = ("held", "neighbours", "neighbourhood", "brokers", "seats", "hosts", "skipped")
"""What a report names one by one, and counts besides; the most important of each comes first."""


def report_within(bytes_max: int, status: Mapping[str, Any]) -> bytes:
    """Encode a report; if it is too long, its longest list is cut by half until it is not."""
    report = dict(status)
    while len(encoded := _encode(report)) > bytes_max:
        longest = max(_LISTS, key=lambda name: len(_encode(report.get(name, ()))))
        assert report[longest], "nothing else grows"
        report[longest] = report[longest][: len(report[longest]) // 2]
    return encoded


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
