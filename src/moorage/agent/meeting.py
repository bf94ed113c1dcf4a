"""Names under which the members of a group find each other: ours, and those that torch and programs like it know. Pure.

Each worker counts as a node of its own with one process, as its GPUs are numbered from 0 for it alone: its local rank
is 0 whoever else is on the same machine. A launcher that starts several processes in a worker (`torchrun
--nproc-per-node`) sets the names of those itself. Called by `launching`.
"""

from moorage.wire.agent import Assignment


def variables(assignment: Assignment, host: str) -> dict[str, str]:
    """Ours, which nothing overrides.

    Args:
        assignment: of the worker; in a gang as it is once the barrier is open.
        host: address of this machine.
    """
    launch = assignment.launch
    env = {"MOORAGE_GROUP": launch.group, "MOORAGE_RUN_NAME": launch.run_name or launch.name}
    if launch.array:
        env["MOORAGE_ARRAY_INDEX"] = str(launch.rank)
    if assignment.leader is not None:
        env["MOORAGE_LEADER_ADDR"] = _split(assignment.leader)[0]
    elif launch.world_size == 1:
        env["MOORAGE_LEADER_ADDR"] = host
    if assignment.hosts:
        env["MOORAGE_HOSTS"] = ",".join(assignment.hosts)
    return env


def conventional(assignment: Assignment) -> dict[str, str]:
    """Names of others, for the members of a gang only: a program alone would try to meet somebody. The spec's win."""
    if assignment.leader is None:
        return {}
    launch = assignment.launch
    host, port = _split(assignment.leader)
    rank, size = str(launch.rank), str(launch.world_size)
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": rank,
        "GROUP_WORLD_SIZE": size,
        "NODE_RANK": rank,
        "PET_NNODES": size,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": port,
    }


def _split(address: str) -> tuple[str, str]:
    """Host and port; an IPv6 address loses its brackets."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port
