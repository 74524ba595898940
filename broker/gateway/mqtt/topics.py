"""Topic names and topic filters (MQTT 5.0, section 4.7)."""

from typing import Final

LEVEL: Final = "/"
ONE_LEVEL: Final = "+"
ALL_BELOW: Final = "#"


def is_topic_name(text: str) -> bool:
    """Whether something can be published there."""
    return bool(text) and ONE_LEVEL not in text and ALL_BELOW not in text


def is_topic_filter(text: str) -> bool:
    """Whether it can be subscribed to: wildcards stand alone on a level, `#` on the last one."""
    levels = text.split(LEVEL)
    return (
        bool(text)
        and all(
            level in (ONE_LEVEL, ALL_BELOW) or not {ONE_LEVEL, ALL_BELOW} & {*level}
            for level in levels
        )
        and ALL_BELOW not in levels[:-1]
    )
