"""Brokers that are taken up empty: more than δ have failed, and what they had done nobody knows.

It shows by a step that is missing: something was taken that depends on it, and nobody alive knows
it (`TooManyFailedError`). Then nothing is guessed. The brokers of the region begin with nothing but
their neighbours; between them and the brokers around, new streams begin, in a later *era*, and
clients begin new sessions. Steps go on beyond all that anybody knows: so whoever took one of the
old steps, and is rebuilt later, does not find it among the new ones.
"""

from collections.abc import Iterable, Mapping

from plait.broker.limits import Limits
from plait.broker.machine.attachments import Attachment
from plait.broker.machine.machine import Machine
from plait.broker.messages import NodeKind, Settings
from plait.broker.outbox import Outbox
from plait.faulttol.steplog import BROKER, Standing, StepLog, longest
from plait.routing.ids import NodeId


def begin_empty(
    region: Mapping[NodeId, NodeId | None],
    attachments: Iterable[Attachment],
    *,
    settings: Settings,
    limits: Limits,
    outbox: Outbox,
) -> dict[NodeId, Machine]:
    """The brokers of a region, each given with its parent, before their first steps.

    Around them are the brokers among those that have attached.
    """
    attached = list(attachments)
    logs = {node: _log_of(node, attached) for node in region}
    around = {node: log.neighbours() for node, log in logs.items()}

    def standing(node: NodeId, neighbour: NodeId) -> Standing:
        return around[node].get(neighbour, Standing())

    machines = {}
    for node, parent in region.items():
        here = [each for each in attached if each.to == node]
        eras = {each.node: each.era for each in here if each.kind is NodeKind.BROKER}
        for other, above in region.items():
            if other == parent or above == node:
                eras[other] = max(standing(node, other).era, standing(other, node).era)
        seen = [standing(other, node).upto for other in region]
        last = max([1, logs[node].last, *(each.taken for each in here), *seen])
        machines[node] = _empty(
            Machine(node, parent, settings=settings, limits=limits, outbox=outbox),
            last,
            {other: era + 1 for other, era in eras.items()},
        )
    return machines


def _empty(machine: Machine, last: int, eras: Mapping[NodeId, int]) -> Machine:
    """Stand where a broker stood after this step, among neighbours that begin anew."""
    around = {other: Standing(kind=BROKER, has_joined=True, era=era) for other, era in eras.items()}
    machine.steps.log.begin(last, around)
    machine.steps.number = last
    machine.has_joined = True
    parent = machine.neighbours.parent
    for other, standing in around.items():
        if parent is not None and parent.node == other:
            parent.era = standing.era
        else:
            machine.add_below(other, standing)
    return machine


def _log_of(node: NodeId, attached: Iterable[Attachment]) -> StepLog:
    return longest([StepLog(), *(each.logs[node] for each in attached if node in each.logs)])
