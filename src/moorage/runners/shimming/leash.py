"""The leash of a library's model server: what ends it when the program that embeds the runner ends, however that ends.

Two ends of it are watched by the shim, since each alone has a gap. A pipe of which only the owner has the other end:
it closes with the owner's death, and also when the owner executes another program (a pid that lives on and knows
nothing); but a child that the owner forked keeps it open. A pidfd of the owner: exact about the death of that one
process, whatever it forked. A process's death signal (PR_SET_PDEATHSIG) would fire when the thread ends that happened
to start the shim, so it is not used.
"""

import os


class Leash:
    """Both ends, from the numbers in `launch`: the owner's pid, the pipe, the signal and the grace in milliseconds."""

    def __init__(self, numbers: list[int]) -> None:
        self.fds: list[int] = []
        self.broken = False
        if not numbers:
            return
        owner, pipe, self.signal, self.grace_ms = numbers
        os.set_inheritable(pipe, False)
        self.fds.append(pipe)
        try:
            self.fds.append(os.pidfd_open(owner))
        except OSError:
            self.broken = True
        # Only now is it certain that the pidfd is of the owner and not of a later process with its pid.
        self.broken = self.broken or os.getppid() != owner

    @property
    def held(self) -> bool:
        """Whether this life has one: nothing of it is needed after the machine's next start, so nothing is synced."""
        return bool(self.fds)


def clear_away(folder: str) -> None:
    """Remove a life's directory, of which nobody is left to read, and those around it that are empty then.

    A model's directory holds one for each of its lives, and lies in one of the program's own.
    """
    model = os.path.dirname(folder)
    try:
        for life in os.listdir(model):
            ended = os.path.exists(f"{model}/{life}/gone")
            for name in os.listdir(f"{model}/{life}") if ended else ():
                os.unlink(f"{model}/{life}/{name}")
            if ended:
                os.rmdir(f"{model}/{life}")
        os.rmdir(model)
        os.rmdir(os.path.dirname(model))
    except OSError:
        return  # another one of the same owner is still there, or somebody put something else in
