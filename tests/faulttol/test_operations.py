"""Operations: to whom they were sent, and who has confirmed them."""

from plait.faulttol.operations import Operations
from plait.routing.ids import NodeId, OperationId

OPERATION = OperationId("alice#1.1")
A, B, SOURCE = NodeId("a"), NodeId("b"), NodeId("source")


def test_an_operation_with_nobody_to_ask_is_confirmed_already() -> None:
    operations: Operations[str] = Operations()

    assert operations.begin(OPERATION, SOURCE, [], now=0.0) is None
    assert OPERATION not in operations


def test_the_last_confirmation_ends_it() -> None:
    operations: Operations[str] = Operations()
    operations.begin(OPERATION, SOURCE, [(A, "to a"), (B, "to b")], now=0.0)

    assert operations.confirm(OPERATION, A) is None
    assert operations.confirm(OPERATION, A) is None
    assert operations.unconfirmed_by(B) == ["to b"]
    done = operations.confirm(OPERATION, B)
    assert done is not None
    assert done.source == SOURCE
    assert len(operations) == 0


def test_a_neighbour_that_is_gone_is_not_waited_for() -> None:
    operations: Operations[str] = Operations()
    operations.begin(OPERATION, SOURCE, [(A, "to a")], now=0.0)
    operations.begin(OperationId("other"), A, [(B, "to b")], now=0.0)

    done = operations.forget(A)

    assert [pending.operation for pending in done] == [OPERATION]
    finished = operations.confirm(OperationId("other"), B)
    assert finished is not None
    assert finished.source is None


def test_who_asks_the_same_has_not_got_to_confirm_it() -> None:
    operations: Operations[str] = Operations()
    operations.begin(OPERATION, SOURCE, [(A, "to a"), (B, "to b")], now=0.0)

    pending = operations.begin(OPERATION, A, [], now=0.0)
    assert pending is not None
    assert pending.source == A
    assert list(pending.missing) == [B]
    assert operations.begin(OPERATION, B, [], now=0.0) is None
    assert OPERATION not in operations


def test_a_confirmation_of_something_unknown_means_nothing() -> None:
    operations: Operations[str] = Operations()

    assert operations.confirm(OPERATION, A) is None


def test_who_asked_last_and_is_gone_is_confirmed_to_no_more() -> None:
    operations: Operations[str] = Operations()
    operations.begin(OPERATION, SOURCE, [(A, "to a")], now=0.0)
    operations.begin(OPERATION, B, [], now=1.0)
    operations.forget(B)

    done = operations.confirm(OPERATION, A)
    assert done is not None
    assert done.source is None
    assert operations.forget(SOURCE) == []


def test_what_is_called_off_is_over_for_everybody() -> None:
    operations: Operations[str] = Operations()
    operations.begin(OPERATION, SOURCE, [(A, "to a"), (B, "to b")], now=0.0)
    called_off = operations.call_off(OPERATION)

    assert called_off is not None
    assert called_off.source == SOURCE
    assert operations.call_off(OPERATION) is None
    assert operations.confirm(OPERATION, A) is None
    assert operations.forget(A) == operations.forget(SOURCE) == []
