"""Reasons of clients' keys and of endpoints that people made: what was set, and by whom."""

from moorage.domain.catalogue.entry import by_person

KEYS = (
    by_person(
        "key.issued",
        "Issued[ for {endpoints}][, good until {until:time}][, limits {limits}]",
        optional=("endpoints", "until", "limits", "by"),
    ),
    by_person("key.limited", "Limits: {limits}", "limits", optional=("by",)),
    by_person(
        "key.set",
        "Changed[; opens {endpoints}][; limits {limits}][; {description}]",
        optional=("endpoints", "limits", "description", "by"),
    ),
    by_person("key.revoked", "Revoked[: {text}]", optional=("text", "by")),
    by_person("key.deleted", "Deleted", optional=("by",)),
)

ENDPOINTS = (
    by_person("endpoint.made", "Made: {routes}[, limits {limits}]", "routes", optional=("limits", "by")),
    by_person("endpoint.bound", "Bound to {routes}[, before: {before}]", "routes", optional=("before", "by")),
    by_person("endpoint.limited", "Limits of each key: {limits}", "limits", optional=("by",)),
    by_person("endpoint.changed", "Changed: {fields}", "fields", optional=("by",)),
    by_person("endpoint.deleted", "Deleted", optional=("by",)),
)
