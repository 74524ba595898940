"""What a broker says that cannot be so, looked for in a whole batch before any of it is taken.

A step cannot be taken back, and what breaks off in the middle of a batch is lost for good. So
whatever of a batch contradicts what is known here is found before the step begins. Then nothing has
happened: the connection is closed, with the contradiction as its reason, and on the next one the
neighbour sends the batch again, as it has it. If that is as it should be, nothing is lost.

A publication comes from where its publisher is, which every broker knows by its advertisements. So
nobody speaks for a client that is elsewhere in the tree: of others' publications a broker that lies
can spoil those that pass through it, and no more.
"""

from collections.abc import Sequence

from plait.broker.machine.asking import AskingPublications
from plait.broker.machine.machine import Machine
from plait.broker.machine.neighbours import Above, Neighbour
from plait.broker.messages import (
    Advertise,
    Message,
    Publish,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from plait.routing.errors import FilterSyntaxError
from plait.routing.filter_text import parse_filter
from plait.routing.ids import NodeId


def contradiction_in(
    machine: Machine, source: Neighbour, messages: Sequence[Message]
) -> str | None:
    """Why a batch of a neighbouring broker cannot be as it says; None if it can."""
    there: set[NodeId] = set()
    """Who publishes from behind it, as far as that was looked at or has just been said."""
    for message in messages:
        if type(message) is Publish:  # most are, and most of few publishers
            publisher = message.publisher
            if publisher not in there:
                if not _is_there(machine, source, publisher):
                    return f"{source.node} publishes for {publisher}, which is not behind it"
                there.add(publisher)
            continue
        match message:
            case Settled(number):
                if not isinstance(source, Above) or number > source.sent.count:
                    return f"{source.node} has settled publication {number}, never sent up"
            case Advertise() | Subscribe() | Unadvertise() | Unsubscribe():
                objection = _objection_to(machine, source, message)
                if objection is not None:
                    return objection
                if isinstance(message, Advertise):
                    there.add(message.client)
    return None


def _is_there(machine: Machine, source: Neighbour, publisher: NodeId) -> bool:
    """Whether somebody who publishes may be behind a neighbour."""
    if machine.is_among_strangers:
        return True  # what lies beyond them is not known yet
    if isinstance(source, Above) and machine.publications.ordering.settles_at_root:
        return True  # the root sends it to all, those behind whom it was published included
    advertisements = machine.interests.advertisements
    if not advertisements.count_of_client(publisher):
        # He may have gone, and what he had published has waited for its stamp or turns.
        return isinstance(machine.publications, AskingPublications)
    return advertisements.is_from(publisher, source.hop)


def _objection_to(
    machine: Machine, source: Neighbour, request: Advertise | Subscribe | Unadvertise | Unsubscribe
) -> str | None:
    interests = machine.interests
    known = (
        interests.advertisements.get(request.advertisement)
        if isinstance(request, Advertise | Unadvertise)
        else interests.subscriptions.get(request.subscription)
    )
    if known is not None:
        if known.hop == source.hop:
            return None
        return f"{source.node} speaks of {known.id}, which is not behind it"
    if isinstance(request, Advertise | Subscribe):
        try:
            parse_filter(request.filter)
        except FilterSyntaxError as error:
            return f"{request.operation} of {source.node}: {error}"
    return None
