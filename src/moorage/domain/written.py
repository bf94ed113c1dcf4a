"""Dataclasses that are written once, when they are made: rows, and what a decision asks the store to write.

A dataclass that is frozen at run time takes ten times as long to make as one that is not, and a control plane makes
rows all day: 50 fields each, at every read and with every step of a decision. So the type checker alone holds these to
be frozen. Used by `nouns`, `reason_types`, `changes`
and the scheduler's queue.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def written_once(cls: type[T]) -> type[T]:
    """A dataclass that the type checker holds to be frozen."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def row(cls: type[T]) -> type[T]:
    """The same, with fields that are given by name."""
    return dataclass(slots=True, unsafe_hash=True, kw_only=True)(cls)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def written_once_by_identity(cls: type[T]) -> type[T]:
    """The same, equal to itself only."""
    return dataclass(slots=True, eq=False)(cls)
