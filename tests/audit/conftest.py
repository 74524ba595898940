"""One Spark for all tests: to start it takes longer than to use it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from plait.faulttol.audit.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session
