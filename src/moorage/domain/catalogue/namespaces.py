"""Reasons of a namespace: what people set about it."""

from moorage.domain.catalogue.entry import by_person

ENTRIES = (
    by_person(
        "namespace.set",
        "Set: machines {machines}[, keys {keys}][, {description}]",
        "machines",
        optional=("description", "keys", "by"),
    ),
    by_person("namespace.removed", "Removed; it may use every machine", optional=("by",)),
    by_person("quota.set", "Quota: {limits}", "limits", optional=("by",)),
    by_person("quota.removed", "Its quota was removed", optional=("by",)),
)
