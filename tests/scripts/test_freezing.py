"""`Freeze` of clients, on processes: what is stopped for so long misses nothing."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from plait.faulttol.history import read_run
from plait.scripts.main import cli

pytestmark = pytest.mark.processes

CONFIGURATION = """\
RoutingPolicy filter
Site root Parent none
Site left Parent root
Process b0 Is broker On root
Process b1 Is broker On left
Process nyse Is publisher On root
Process lse Is publisher On left
Process alice Is subscriber On left
Process bob Is subscriber On left
"""

# A broker finds a client silent after 3 s; for both freezes that is in the middle.
SCRIPT = """\
Subscriber alice Subscribe /a
Subscriber bob Subscribe /a
Publisher nyse Publish 350 Ontopic /a Interval 20
Publisher lse Publish 350 Ontopic /a Interval 20
Wait 300
Freeze alice
Wait 1500
Freeze bob
Freeze lse
Wait 4500
Unfreeze alice
Unfreeze bob
Unfreeze lse
"""


def test_clients_that_are_frozen_for_4_5_and_6_seconds_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text(CONFIGURATION)
    (tmp_path / "x.script").write_text(SCRIPT)
    out = tmp_path / "out"
    result = CliRunner().invoke(
        cli, ["run", f"{tmp_path}/x.conf", f"{tmp_path}/x.script", "--out", str(out), "--json"]
    )
    report = json.loads(result.stdout)
    records = read_run(out).records
    kinds = [(record["kind"], record.get("about")) for record in records]
    delivered = Counter(
        (record["subscriber"], record["publisher"])
        for record in records
        if record["kind"] == "delivered"
    )

    assert report["violations"] == []
    assert delivered == dict.fromkeys(
        [(s, p) for s in ("alice", "bob") for p in ("nyse", "lse")], 350
    )
    for client in ("alice", "bob", "lse"):
        assert kinds.count(("frozen", client)) == kinds.count(("unfrozen", client)) == 1
    assert not any(kind == "skipped" for kind, _ in kinds)
