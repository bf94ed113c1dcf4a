"""What a namespace may hold: resources by name, sums over what is held, and whether one more fits. Pure arithmetic.

Amounts and limits are plain maps from a resource to a number: `gpus`, `gpu_models.MODEL`, `cpu` (thousandths of a
core), `memory` (bytes), `runs`, `deployments`, `replicas` (the sum of their `max`), `requests_per_minute`,
`tokens_per_minute`. A resource without a limit is unlimited. The scheduler decides by these functions, and the store
checks by them again in the transaction that places; what passes in a minute is kept to by the gateways.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.domain.units import format_size

Amounts = Mapping[str, int]
"""Resource → how much of it."""

GPUS, CPU, MEMORY = "gpus", "cpu", "memory"
RUNS, DEPLOYMENTS, REPLICAS = "runs", "deployments", "replicas"

REQUESTS, TOKENS = "requests_per_minute", "tokens_per_minute"

COUNTED = (RUNS, DEPLOYMENTS, REPLICAS)
"""What is counted when it is asked for."""

RATES = (REQUESTS, TOKENS)
"""What gateways count as it passes: no work takes any of it. Everything else is summed over what is held."""

_MODEL = "gpu_models."


def of_model(model: str) -> str:
    """The resource that GPUs of one model are."""
    return f"{_MODEL}{model}"


def model_of(resource: str) -> str | None:
    """The reverse of `of_model`; None for any other resource."""
    return resource.removeprefix(_MODEL) if resource.startswith(_MODEL) else None


def held(gpus: int, models: Iterable[str | None], cpu_milli: int, memory_bytes: int) -> dict[str, int]:
    """The amounts of one place.

    Args:
        gpus: how many.
        models: of each of them, as far as it is known.
    """
    found = {GPUS: gpus, CPU: cpu_milli, MEMORY: memory_bytes}
    for model in models:
        if model:
            found[of_model(model)] = found.get(of_model(model), 0) + 1
    return found


def models_of(capacity: Mapping[str, Any], gpus: Iterable[int]) -> tuple[str, ...]:
    """The models of some GPUs of a machine, by their indexes; empty text where a machine does not say.

    Args:
        capacity: of the machine, as its row has it.
    """
    known = {int(gpu["index"]): str(gpu.get("model") or "") for gpu in capacity.get("gpus") or ()}
    return tuple(known.get(int(index), "") for index in gpus)


def add(sums: dict[str, int], amounts: Amounts, times: int = 1) -> None:
    """Add amounts to sums in place; `times=-1` takes them away."""
    for resource, amount in amounts.items():
        sums[resource] = sums.get(resource, 0) + times * amount


@dataclass(frozen=True, slots=True)
class Over:
    """A limit that would be exceeded: `used` + `asked` > `limit`."""

    resource: str
    used: int
    asked: int
    limit: int

    @property
    def ever(self) -> bool:
        """Whether it would fit once nothing else of the namespace is there."""
        return self.asked <= self.limit


def exceeded(limits: Amounts, used: Amounts, asked: Amounts) -> Iterator[Over]:
    """Every limit that one more would exceed. What asks for nothing of a resource exceeds no limit of it."""
    for resource, limit in limits.items():
        more = asked.get(resource, 0)
        if more and used.get(resource, 0) + more > limit:
            yield Over(resource, used.get(resource, 0), more, limit)


def shown(resource: str, amount: int) -> int | float | str:
    """An amount as specs write it: cores, sizes such as `64GiB`, plain numbers."""
    if resource == MEMORY:
        return format_size(amount)
    return amount / 1000 if resource == CPU and amount % 1000 else amount // 1000 if resource == CPU else amount
