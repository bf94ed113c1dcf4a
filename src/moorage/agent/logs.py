"""Answers to requests for log lines. Runs in a thread: it reads files."""

from moorage.agent.roster import Roster
from moorage.runners import logfile
from moorage.wire.agent import LogLines, LogRequest

LINES_MAX = 5000


def answer(roster: Roster, request: LogRequest) -> LogLines:
    """The lines asked for; none, and `ended`, when this machine has no such log (any more)."""
    folder = roster.folder_of(request.worker, request.epoch, request.previous)
    if folder is None:
        return LogLines(ended=True)
    ended = roster.has_ended(request.worker, folder)
    found = logfile.read(folder, lines=min(request.lines, LINES_MAX), after=request.after, partial=ended)
    more = logfile.read(folder, lines=1, after=found.next_seq - 1, partial=ended).lines if ended else ()
    return LogLines(
        lines=found.lines,
        first_seq=found.first_seq,
        next_seq=found.next_seq,
        missed=found.missed,
        ended=ended and not more,
    )
