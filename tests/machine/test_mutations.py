"""Each rule that a rebuild relies on is taken out, and missed: by a random run, or a small system.

All of it: `python -m tests.machine.mutations`.
"""

import pytest

from tests.machine.mutations import (
    KINDS,
    MUTATIONS,
    Kind,
    Mutation,
    goes_wrong,
    is_missed,
)
from tests.sweeps import Seeds

FOUND = [
    # A whole small system takes half a minute.
    pytest.param(mutation, id=mutation.name, marks=[pytest.mark.slow] if mutation.system else [])
    for mutation in MUTATIONS
    if mutation.is_found
]


@pytest.mark.parametrize("mutation", FOUND)
def test_a_rule_that_is_taken_out_is_missed(mutation: Mutation) -> None:
    assert is_missed(mutation)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_missed_if_all_rules_are_there(kind: Kind, seeds: Seeds) -> None:
    for seed in seeds(5, 300):
        assert not goes_wrong(seed, kind), seed
