"""The audit log: a line for each decision, as Kafka's ``kafka.authorizer.logger``.

Denied operations are logged at INFO, allowed ones at DEBUG. Each kind has at most
`LINES_PER_S` lines; further decisions are counted, and the next line has the count.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import DEBUG, INFO, getLogger
from typing import Final, NamedTuple

from broker.authorization.acls import AclOperation, ResourceType, display_name
from broker.observation.logs import fields

logger = getLogger(__name__)

LINES_PER_S: Final = 100
_NS_PER_S: Final = 1_000_000_000
# The longest valid name of a topic; any peer can send a longer one.
_NAME_CHARS: Final = 249


class Decision(NamedTuple):
    """A decision about one operation; ``name`` None: on any resource of the type."""

    principal: str
    host: str
    request: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None


class _Budget:
    """Lines of one kind left in this second, and the count of suppressed ones."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._second = -1
        self._left = 0
        self.suppressed = 0

    def take(self) -> bool:
        """Return whether another line may be logged; use up one if so."""
        second = self._now_ns() // _NS_PER_S
        if second != self._second:
            self._second, self._left = second, LINES_PER_S
        if not self._left:
            self.suppressed += 1
            return False
        self._left -= 1
        return True


class AuditLog:
    """Lines about decisions; ``now_ns`` is the clock of their rate."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._denied = _Budget(now_ns)
        self._allowed = _Budget(now_ns)

    @property
    def has_allowed(self) -> bool:
        """Whether allowed operations are logged, too."""
        return logger.isEnabledFor(DEBUG)

    def denied(self, decision: Decision) -> None:
        """Log a denied operation."""
        self._log(INFO, "denied", decision, self._denied)

    def allowed(self, decision: Decision) -> None:
        """Log an allowed operation."""
        self._log(DEBUG, "allowed", decision, self._allowed)

    def _log(self, level: int, event: str, it: Decision, budget: _Budget) -> None:
        if not logger.isEnabledFor(level) or not budget.take():
            return
        resource = display_name(it.resource_type)
        if it.name is not None:
            resource += f":LITERAL:{it.name[:_NAME_CHARS]}"
        found = {
            "principal": it.principal,
            "operation": display_name(it.operation),
            "resource": resource,
            "host": it.host,
            "request": it.request,
        }
        if budget.suppressed:
            found["suppressed"] = str(budget.suppressed)
            budget.suppressed = 0
        logger.log(level, event, extra=fields(**found))
