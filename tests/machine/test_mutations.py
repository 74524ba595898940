"""Each rule that a rebuild relies on is taken out, and missed: by a random run, or a small system.

All of it: `python -m tests.machine.mutations`.
"""

import pytest

from tests.machine.mutations import MUTATIONS, Mutation, first_run, goes_wrong

FOUND_QUICKLY = [mutation for mutation in MUTATIONS if mutation.seed is not None]


@pytest.mark.parametrize("mutation", FOUND_QUICKLY, ids=lambda mutation: mutation.name)
def test_a_rule_that_is_taken_out_is_missed(mutation: Mutation) -> None:
    assert mutation.seed is not None
    # What a seed leads to changes with everything that a broker sends.
    seeds = [mutation.seed, *range(200)]

    assert first_run(mutation, seeds) is not None


def test_nothing_is_missed_if_all_rules_are_there() -> None:
    assert not any(goes_wrong(seed, deaths) for seed in range(10) for deaths in (0, 3))
