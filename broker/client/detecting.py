"""The detectors of a client: when each begins, and what it finds in what the client is given.

A detector is a subscription to everything that its pattern speaks of. It begins when that is
confirmed: what it is not given, as it was under way then, comes to every other subscriber before
all that it is given. docs/patterns.md says why. Whoever has lost a session has missed something;
then it begins anew, once it has subscribed again.
"""

from plait.broker.client.interests import Interests
from plait.broker.client.journal import Journal
from plait.broker.effects import BeginDetection, Delivery, Level, Match, ReportMatch
from plait.broker.outbox import Outbox
from plait.routing.ids import OperationId, SubscriptionId
from plait.routing.patterns.detection import Detection
from plait.routing.patterns.detector import Detector


class Detecting:
    """All detectors of one client."""

    def __init__(self, interests: Interests, journal: Journal, outbox: Outbox) -> None:
        """Begin with none."""
        self._interests = interests
        self._journal = journal
        self._outbox = outbox
        self._detectors: dict[SubscriptionId, Detector[Delivery]] = {}
        self._begun: dict[SubscriptionId, int] = {}
        """Those that have begun, each with the session in which it has."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._detectors)

    def detect(self, detection: Detection) -> tuple[SubscriptionId, OperationId]:
        """Begin to look for a pattern when the operation is confirmed."""
        name, operation = self._interests.subscribe(detection.union, ordered=True)
        self._detectors[name] = Detector(detection)
        return name, operation

    def forget(self, name: SubscriptionId) -> None:
        """The subscription is withdrawn: nothing is to be found any more."""
        self._detectors.pop(name, None)
        self._begun.pop(name, None)

    def look(self) -> None:
        """Something has been confirmed, or refused: see who is to begin."""
        session = self._interests.sessions
        for name, detector in list(self._detectors.items()):
            subscription = self._interests.subscription(name)
            if subscription is None:
                self.forget(name)
            elif self._begun.get(name) != session and subscription.is_active:
                if name in self._begun:
                    detector.begin_anew()
                    self._outbox.log(Level.WARNING, "detector begins anew", detector=name)
                self._begun[name] = session
                fields = detector.detection.fields()
                self._journal.of_interest("detecting", detector=name, **fields)
                self._outbox.add(BeginDetection(name))

    def take(self, delivery: Delivery) -> None:
        """Let detectors take a delivery that has its place in the order of all."""
        for name in delivery.subscriptions:
            detector = self._detectors.get(name)
            if detector is not None:
                self._take(name, detector, delivery)

    def _take(self, name: SubscriptionId, detector: Detector[Delivery], delivery: Delivery) -> None:
        found = detector.take(delivery, delivery.content, in_order=delivery.in_order)
        if found:
            pattern = str(detector.detection.pattern)
            for match in found:
                reported = Match(match.events, match.certain, delivery.position, pattern)
                self._outbox.add(ReportMatch(name, reported))
