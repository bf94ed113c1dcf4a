"""Where an engine's socket is: given, or in the usual places."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from moorage.domain.errors import RunnerError
from moorage.runners.containers.api import EngineApi, EngineName

DISCOVER = "auto"


def usual_sockets(engine: EngineName, runtime_dir: str | None) -> tuple[Path, ...]:
    """Places in the order in which they are tried.

    Args:
        engine: which one.
        runtime_dir: `XDG_RUNTIME_DIR` of this user, or None.
    """
    own = Path(runtime_dir) if runtime_dir else None
    if engine == "podman":
        places = [Path("/run/podman/podman.sock")]
        return (*places, own / "podman" / "podman.sock") if own else tuple(places)
    places = [Path("/var/run/docker.sock")]
    return (*places, own / "docker.sock") if own else tuple(places)


async def find_engine(engine: EngineName, sockets: Iterable[Path]) -> EngineApi | None:
    """The first socket on which the engine answers; None where none does. The caller closes it."""
    for socket in sockets:
        if not socket.is_socket():
            continue
        api = EngineApi(engine, socket)
        try:
            await api.ping()
        except RunnerError:
            await api.aclose()
            continue
        return api
    return None


def sockets_for(engine: EngineName, given: Mapping[str, str], runtime_dir: str | None) -> tuple[Path, ...]:
    """Sockets to try: the given one alone, none when it is given as empty, else the usual ones."""
    chosen = given.get(engine, DISCOVER)
    if chosen == DISCOVER:
        return usual_sockets(engine, runtime_dir)
    return (Path(chosen),) if chosen else ()
