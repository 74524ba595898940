"""Sweeps over seeds: a few, enough to notice what is broken, and many with `--slow`."""

from collections.abc import Callable

Seeds = Callable[[int, int], range]
"""What the fixture `seeds` is: it is given how many are few, and how many are many."""
