"""The worker processes of one gateway, as one of them asks the others: counts for `/metrics`, the record of a request.

Here: a Unix socket for each worker in a folder that only the gateway's user may enter, short questions with a time
limit, and the counts of workers that ended. Not here: what the answers mean (`own`, `exposition`). A worker that does
not answer in time is left out, and that is told.
"""

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from moorage.gateway import exposition

ASK_LIMIT_S: Final = 1.0
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_QUESTION_BYTES_MAX: Final = 8192

METRICS: Final = "metrics"
REQUEST: Final = "request "
"""and the request's id, quoted as in a URL"""


class Siblings:
    """The other worker processes of this gateway.

    Args:
        folder: where the sockets lie.
        master: pid of the master, with which the names of this gateway's sockets begin.
        answer: answers a question; nothing where it has no answer.
    """

    def __init__(self, folder: Path, master: int, answer: Callable[[str], bytes]) -> None:
        self._folder = folder
        self._prefix = f"{master}-"
        self._own = f"{master}-{os.getpid()}.sock"
        self._answer = answer
        self._place = -1
        self._server: asyncio.AbstractServer

    async def start(self) -> None:
        """Answer the others from now on.

        Raises:
            OSError: there can be no socket here.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._place = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(FileNotFoundError):
            (self._folder / self._own).unlink()  # of a former process of this pid
        self._server = await asyncio.start_unix_server(self._answered, self._path(self._own))

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.close()
        with contextlib.suppress(FileNotFoundError):
            (self._folder / self._own).unlink()
        os.close(self._place)

    async def ask(self, question: str) -> tuple[list[bytes], int]:
        """What the others answer, and how many of them did not."""
        names = [path.name for path in self._folder.iterdir() if self._is_other(path.name)]
        found = await asyncio.gather(*(self._ask(name, question) for name in names))
        answers = [answer for answer in found if answer is not None]
        return answers, len(found) - len(answers)

    # --- counts of those that ended ------------------------------------------------------------------------------

    def leave(self, text: str) -> None:
        """Leave this process's counts to the others, since sums that fall would look like new counts.

        Blocks for as long as the disk does.
        """
        path = self._folder / f"{self._prefix}ended"
        with path.with_name(f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = exposition.merged([exposition.counts(text), exposition.kept(self.left(), [text])])
            part = path.with_name(f"{path.name}.{os.getpid()}")
            part.write_text(kept)
            part.replace(path)

    def left(self) -> str:
        """The counts of all that ended."""
        try:
            return (self._folder / f"{self._prefix}ended").read_text()
        except OSError:
            return ""

    # --- inside --------------------------------------------------------------------------------------------------

    def _is_other(self, name: str) -> bool:
        return name.startswith(self._prefix) and name.endswith(".sock") and name != self._own

    def _path(self, name: str) -> str:
        """A socket's path may have about a hundred bytes, and a folder's more: so it is named by its descriptor."""
        return f"/proc/self/fd/{self._place}/{name}" if sys.platform == "linux" else str(self._folder / name)

    async def _ask(self, name: str, question: str) -> bytes | None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(ASK_LIMIT_S):
                reader, writer = await asyncio.open_unix_connection(self._path(name))
                writer.write(question.encode() + b"\n")
                size = int(await reader.readline())
                if size > _ANSWER_BYTES_MAX:
                    return None
                return await reader.readexactly(size)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            return None
        finally:
            if writer is not None:
                writer.close()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(ASK_LIMIT_S):
                question = (await reader.readline()).decode().rstrip("\n")
                if len(question) <= _QUESTION_BYTES_MAX:
                    answer = self._answer(question)
                    writer.write(b"%d\n" % len(answer) + answer)
                    await writer.drain()
        writer.close()
