"""What a broker keeps on disk: which incarnation it was, and where the others are.

One small JSON file, written anew beside itself and then put in its place, so that whoever reads it
after a `kill -9` finds what was there before or what is there now, never half of it.
"""

import json
from pathlib import Path
from typing import Final

import attrs

from broker.errors import StateError
from faulttol.neighbourhood import TopologyLink

FORMAT: Final = 1


@attrs.frozen
class Memory:
    """What an earlier incarnation left behind."""

    incarnation: int = 0
    links: tuple[TopologyLink, ...] = ()

    def write(self, path: Path) -> None:
        """Keep this, in place of what was kept."""
        path.parent.mkdir(parents=True, exist_ok=True)
        links = [attrs.asdict(link) for link in self.links]
        text = json.dumps({"format": FORMAT, "incarnation": self.incarnation, "links": links})
        draft = path.with_name(f"{path.name}.draft")
        draft.write_text(f"{text}\n", encoding="utf-8")
        draft.replace(path)


def recall(path: Path | None) -> Memory:
    """What was kept; nothing, for a broker that begins."""
    if path is None or not path.exists():
        return Memory()
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["format"] != FORMAT:
            raise StateError(f"{path}: format {kept['format']}, {FORMAT} expected")
        return Memory(
            int(kept["incarnation"]), tuple(TopologyLink(**link) for link in kept["links"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path}: not what a broker keeps: {error}") from None
