"""What people set about a namespace: which machines it may use, and its quota. Bodies of PUT, and of the SDK's calls.

How amounts are written is as in specs; `amounts` makes them the plain sums that are stored, `shown` the reverse.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from moorage.domain import quotas
from moorage.wire.fields import Count, Cpu, Part, Size, TextMap


class NamespaceBody(Part):
    """PUT `/namespaces/{ns}`: all of it; what is left out is unset, but for `keys`.

    Who changes a pool or a description does not mean to open the namespace's endpoints to everybody.
    """

    machines: TextMap = Field(default_factory=dict, description="labels that a machine must have for its work")
    description: str = Field(default="", max_length=1000)
    keys: Literal["optional", "required"] | None = Field(
        default=None, description="whether its endpoints ask every client for a key; left out: as it was"
    )


class Limits(Part):
    """What a namespace may hold at once, and let pass in a minute. What is left out is unlimited."""

    gpus: Count | None = None
    gpu_models: dict[Annotated[str, Field(min_length=1)], Count] = Field(
        default_factory=dict, description="model, as machines report it, and how many of them"
    )
    cpu: Cpu | None = None
    memory: Size | None = None
    runs: Count | None = Field(default=None, description="runs of their own that are not over")
    deployments: Count | None = None
    replicas: Count | None = Field(default=None, description="sum of `replicas.max` over its deployments")
    requests_per_minute: Count | None = Field(
        default=None, description="of its endpoints' clients together, in any 60 seconds, over all gateways"
    )
    tokens_per_minute: Count | None = Field(default=None, description="of prompts and answers, likewise")

    def amounts(self) -> dict[str, int]:
        """As they are stored: resource → amount."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        found = {name: int(value) for name, value in plain.items() if value is not None}
        if self.cpu is not None:
            found[quotas.CPU] = round(self.cpu * 1000)
        return found | {quotas.of_model(model): count for model, count in self.gpu_models.items()}


class QuotaBody(Part):
    """PUT `/quotas/{ns}`: all of its limits."""

    limits: Limits


_PLAIN = (quotas.GPUS, quotas.MEMORY, *quotas.COUNTED, *quotas.RATES)


def shown(amounts: quotas.Amounts) -> dict[str, Any]:
    """Stored amounts as people write them: cores, bytes, and models by name."""
    found: dict[str, Any] = {}
    for resource, amount in amounts.items():
        model = quotas.model_of(resource)
        if model is not None:
            found.setdefault("gpu_models", {})[model] = amount
        else:
            found[resource] = quotas.shown(resource, amount) if resource == quotas.CPU else amount
    return found
