"""Who may import whom, room by room, as an allow-list.

import-linter (contracts in pyproject.toml) forbids the known wrong ways, indirect ones too; this list refuses every
direct import that nobody thought of. Add to it only with the map in ARCHITECTURE.md.
"""

import ast

import pytest
from house_rules import Source
from tree import python_sources

ROOMS: dict[str, set[str]] = {
    "domain": set(),
    "decide": {"domain"},
    "wire": {"domain"},
    "ports": {"domain"},
    "clock": set(),
    "client": {"wire", "domain"},
    "store": {"ports", "domain", "clock"},
    "runners": {"ports", "wire", "domain", "clock"},
    "devices": {"ports", "domain"},
    "sources": {"domain"},
    "control": {"store", "ports", "wire", "decide", "domain", "clock"},
    "api": {"control", "ports", "wire", "decide", "domain", "clock"},
    "gateway": {"decide.serving.routing", "decide.serving.routes", "decide.serving.binding", "wire", "domain", "clock"},
    "agent": {"runners", "devices", "sources", "ports", "wire", "domain", "clock"},
    "demo": {"client", "wire", "domain"},
    "cli": {"demo", "client", "wire", "domain"},
    "console": {"client", "wire", "domain"},
    "sim": {"cli", "decide", "domain"},
}
"""What a room may import of Moorage beside itself and the version. `app` composes and may import everything."""

EVERYBODY = {"_version"}


def imported(source: Source) -> list[tuple[int, str]]:
    """Line and dotted name (without `moorage.`) of everything of Moorage that a file imports."""
    found: list[tuple[int, str]] = []
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found += [(node.lineno, name.name) for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found += [(node.lineno, f"{node.module}.{name.name}") for name in node.names]
    return [(line, name.removeprefix("moorage.")) for line, name in found if name.startswith("moorage.")]


def strangers(source: Source, room: str, allowed: set[str]) -> list[str]:
    """Imports of a file that its room may not make."""
    welcome = allowed | EVERYBODY | {room}
    offer = ", ".join(sorted(allowed)) or "nothing of ours"
    return [
        f"{source.path}:{line}: {room} may not import {name} (it may: {offer})"
        for line, name in imported(source)
        if not any(name == one or name.startswith(one + ".") for one in welcome)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_the_map_shows(room: str) -> None:
    homes = (f"src/moorage/{room}/", f"src/moorage/{room}.py")
    files = [source for source in python_sources() if source.path.startswith(homes)]
    faults = [fault for source in files for fault in strangers(source, room, ROOMS[room])]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("domain", "import moorage.clock"),
        ("decide", "from moorage.wire import agent"),
        ("gateway", "from moorage.decide.serving import replicas"),
        ("agent", "from moorage.store.store import SqlStore"),
        ("cli", "def f():\n    from moorage.app import settings"),
    ],
)
def test_a_planted_import_is_refused(room: str, line: str) -> None:
    assert strangers(Source(f"src/moorage/{room}/x.py", line), room, ROOMS[room])


def test_a_sound_import_passes() -> None:
    text = "from moorage.decide.serving.routing import pick\nfrom moorage.decide.serving import routing\n"
    assert not strangers(Source("src/moorage/gateway/x.py", text), "gateway", ROOMS["gateway"])
