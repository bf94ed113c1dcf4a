"""`moor agent join`: this machine becomes a member of a control plane elsewhere.

What was joined is kept in the home, so that a later `moor agent` goes on without being told again. Address and token
are tried before anything is written: an agent that was started with a wrong one would only wait and try again.
Called by `app.commands`.
"""

import json
import socket
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from moorage.app import readiness
from moorage.app.home import Home, machine_name, write_private
from moorage.domain.errors import InvalidSpec, Unauthorized, Unavailable

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
REACH_S = 5.0
"""How long the control plane may take to be reached."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Where this home's agent belongs.

    Args:
        url: of the control plane.
        name: of this machine there.
        host: address under which the others reach what runs here.
    """

    url: str
    name: str
    host: str

    def on(self, config: dict[str, Any]) -> dict[str, Any]:
        """The agent's configuration, as a member there."""
        return config | {"server_url": self.url, "name": self.name, "host": self.host}


def remembered(home: Home) -> Membership | None:
    """What was joined from this home, if anything was."""
    try:
        kept = json.loads(_kept(home).read_text())
        return Membership(str(kept["url"]), str(kept["name"]), str(kept["host"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def remember(home: Home, membership: Membership) -> None:
    """Keep it for the next start."""
    write_private(_kept(home), json.dumps(asdict(membership)) + "\n")


def look(url: str, token: str, *, name: str | None, host: str | None) -> Membership:
    """Ask the control plane whether it is one and takes this token; joins nothing yet.

    Args:
        url: as `moor machines join-token` printed it.
        token: likewise.
        name: of this machine; its host's name unless given.
        host: address under which the others reach this machine; the one that leads to the control plane unless given.

    Raises:
        InvalidSpec: the URL is none.
        Unavailable: nothing, or something else, answers there.
        Unauthorized: the token is not known there, or its time is over.
    """
    url = url.rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
        raise InvalidSpec(f"{url!r} is no address of a control plane", remedy="write http://HOST:PORT")
    own = _own_address(url, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
    # an empty message is refused for what it lacks only once its token was accepted
    status, answer = readiness.ask("POST", url, "/api/v1/agent/join", token, body="{}")
    if status in (401, 403):
        raise Unauthorized(
            f"{url} does not take this join token: {answer.get('message') or 'not known'}",
            remedy="make a new one there: moor machines join-token",
        )
    if status != 422:
        what = f"answered {status}" if status else "did not answer"
        raise Unavailable(
            f"{url} {what}, which is not what a control plane does",
            remedy="give the address that `moor machines join-token` printed; the gateway has another port",
        )
    return Membership(url, name or machine_name(), host or own)


def reached_from(url: str, own: str) -> str:
    """How who is at one URL reaches what listens here.

    Args:
        url: of the control plane, which may be away now.
        own: URL that this machine would use; one of this machine alone is answered by the address that leads there.
    """
    there, here = urlsplit(url), urlsplit(own)
    if there.hostname in _LOOPBACK or here.hostname not in _LOOPBACK:
        return own
    try:
        family, kind, _, _, address = socket.getaddrinfo(there.hostname, there.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as asked:
            asked.connect(address)  # sends nothing
            found = str(asked.getsockname()[0])
    except OSError:
        return own
    return f"{here.scheme}://{f'[{found}]' if ':' in found else found}:{here.port}"


def _own_address(url: str, host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), timeout=REACH_S) as there:
            return str(there.getsockname()[0])
    except OSError as cause:
        raise Unavailable(
            f"{url} cannot be reached from here: {cause.strerror or cause}",
            remedy="is it up, and does it listen for other machines (MOORAGE_API=0.0.0.0:7420 moor up)?",
        ) from cause


def _kept(home: Home) -> Any:
    return home.root / "joined.json"
