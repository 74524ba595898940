"""Each rule that a rebuild relies on is taken out, and missed: by a random run, or a small system.

All of it: `python -m tests.machine.mutations`.
"""

import pytest

from tests.machine.mutations import (
    KINDS,
    MUTATIONS,
    Kind,
    Mutation,
    first_run,
    goes_wrong,
    misses,
    small_systems,
)
from tests.sweeps import Seeds


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_rule_that_is_taken_out_is_missed(mutation: Mutation) -> None:
    if mutation.system:
        assert misses(small_systems()[mutation.system], mutation)
        return
    assert mutation.seed is not None
    # What a seed leads to changes with everything that a broker sends.
    seeds = [mutation.seed, *range(300)]

    assert first_run(mutation, seeds, mutation.kind) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_missed_if_all_rules_are_there(kind: Kind, seeds: Seeds) -> None:
    for seed in seeds(5, 300):
        assert not goes_wrong(seed, kind), seed
