"""`plait bench patterns` measures what it says."""

import json

from click.testing import CliRunner

from plait.scripts.bench.patterns import measure_speeds
from plait.scripts.main import cli


def test_a_detector_is_given_all_of_it() -> None:
    speeds = list(measure_speeds(3_000, seed=1))

    assert [speed.policy for speed in speeds] == ["contiguous", "next", "next", "any"]
    assert all(speed.matches and speed.deliveries_per_s for speed in speeds)


def test_two_detectors_agree_wherever_all_is_ordered() -> None:
    arguments = ["bench", "patterns", "--deliveries", "500", "--trees", "1", "--seconds", "5"]
    result = CliRunner().invoke(cli, [*arguments, "--json"])

    agreements = json.loads(result.stdout)["agreements"]
    assert len(agreements) == 8
    assert all(each["matches"] for each in agreements)
    # Under fifo, of so few matches, all may be alike by chance, but not under either policy.
    alike = {
        ordering: [
            each["alike"] == each["matches"] for each in agreements if each["ordering"] == ordering
        ]
        for ordering in ("fifo", "pairwise", "sequencer", "tno")
    }
    assert not all(alike.pop("fifo"))
    assert all(map(all, alike.values()))
