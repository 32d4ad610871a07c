"""The order in which tenants get workers.

Max-min fairness over the workers' slots: the tenant with the fewest running tasks is next, and among equals
the one that was served least recently. A tenant with no running task never waits behind another's backlog.
The queue and the simulation in ``benchmarks.fairness`` use this function.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bessemer.contract.access import Tenant


class Standing(NamedTuple):
    """A tenant that waits for a worker. Standings compare in the order of turns.

    Attributes:
        running: how many of its tasks are in flight.
        served: the number of its last turn; 0 if it had none.
        tenant: its name, which decides between tenants that had no turn.
        most: how many of its tasks may be in flight; None means unlimited.
    """

    running: int
    served: int
    tenant: Tenant
    most: int | None = None

    @property
    def may_run(self) -> bool:
        """Whether the tenant is below its limit."""
        return self.most is None or self.running < self.most


@dataclass(frozen=True)
class Turns:
    """The turns in one queue.

    Attributes:
        running: how many tasks of each tenant are in flight.
        served: the number of each tenant's last turn.
    """

    running: Mapping[Tenant, int] = field(default_factory=dict)
    served: Mapping[Tenant, int] = field(default_factory=dict)

    def standing(self, tenant: Tenant, most: int | None = None) -> Standing:
        """How a tenant stands that may have at most ``most`` tasks in flight."""
        return Standing(self.running.get(tenant, 0), self.served.get(tenant, 0), tenant, most)


def next_tenant(waiting: Iterable[Standing]) -> Tenant | None:
    """The tenant whose turn it is; None if each is at its limit."""
    first = min((each for each in waiting if each.may_run), default=None)
    return None if first is None else first.tenant
