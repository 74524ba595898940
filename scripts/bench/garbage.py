"""Time that is measured in a process that plays many brokers."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Let no broker pay for a heap that is everybody's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
