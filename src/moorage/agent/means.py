"""What the workers of one machine share. Made by `agent`, used by held workers, the roster and the session."""

from dataclasses import dataclass

import httpx
import structlog

from moorage.agent.abilities import Abilities
from moorage.agent.config import AgentConfig
from moorage.agent.contact import Contact
from moorage.agent.desk import Desk
from moorage.agent.drives import Fillings
from moorage.agent.engines import Engines
from moorage.agent.inventory import Inventory
from moorage.agent.ledger import Ledger
from moorage.agent.models.cache import ModelCache
from moorage.agent.outbox import Outbox
from moorage.agent.relays import Relays
from moorage.ports import Clock
from moorage.runners.ports import PortPool


@dataclass(frozen=True, slots=True)
class Means:
    """What every worker of this machine shares."""

    config: AgentConfig
    clock: Clock
    engines: Engines
    ports: PortPool
    ledger: Ledger
    outbox: Outbox
    contact: Contact
    probes: httpx.AsyncClient
    desk: Desk
    relays: Relays
    abilities: Abilities
    filling: Fillings
    inventory: Inventory
    models: ModelCache
    log: structlog.stdlib.BoundLogger
