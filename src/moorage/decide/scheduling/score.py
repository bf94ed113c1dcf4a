"""Which of the machines that fit is taken: the one left with the least, so that whole machines stay free.

Best fit on the scarcest resource first (GPUs, then memory, then CPU); ties go to the name, so that a cycle replays.
"""

from moorage.decide.scheduling.snapshot import Request, Room


def best(request: Request, rooms: list[Room]) -> Room:
    """The chosen room of a non-empty list."""
    return min(rooms, key=lambda room: _left(request, room))


def _left(request: Request, room: Room) -> tuple[int, int, int, str]:
    gpus = len(room.machine.capacity.get("gpus", ())) - len(room.gpus) - request.gpus
    return (
        gpus,
        room.free_memory_bytes - request.memory_bytes,
        room.free_cpu_milli - request.cpu_milli,
        room.machine.name,
    )
