"""Rows, history, keys and leases in SQLite or PostgreSQL, with the same meaning on both.

`open_store(url, clock)` opens one; `migrate(url)` brings a database to this release. Everything else is private to the
room: outside of it the store is the `Store` port.
"""

from moorage.store.migrating import migrate
from moorage.store.opening import open_store

__all__ = ["migrate", "open_store"]
