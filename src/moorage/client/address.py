"""Where the control plane is and what proves who asks: from arguments, an environment given as a mapping, and the file
that `moor up` writes (`client.json` under the home). A token is never sent to another address than the one it is for.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.domain.errors import InvalidSpec

DEFAULT_URL = "http://127.0.0.1:7420"


@dataclass(frozen=True, slots=True)
class Address:
    """Base address (without `/api/v1`), token, and the gateway's address where known.

    `home`: the installation of this machine that this is the address of; None where it is not known to be of one.
    """

    url: str
    token: str | None
    gateway_url: str | None
    home: Path | None = None


def find_address(
    url: str | None, token: str | None, home: str | Path | None, env: Mapping[str, str] | None = None
) -> Address:
    """The address to use.

    Args:
        url, token: as given; they win.
        home: directory with `client.json`; None: MOORAGE_HOME of `env`, else `.moorage` in its HOME.
        env: an environment; None reads none.

    Raises:
        InvalidSpec: `client.json` cannot be read, or the address is none.
    """
    env = env or {}
    place = _home(home, env)
    recorded = _recorded(place)
    wanted = url or env.get("MOORAGE_URL") or recorded.get("url") or DEFAULT_URL
    _check_url(wanted)
    own = _same(wanted, recorded.get("url"))
    return Address(
        url=wanted.rstrip("/"),
        token=token or env.get("MOORAGE_TOKEN") or (recorded.get("token") if own else None),
        gateway_url=recorded.get("gateway_url") if own else None,
        home=place if own else None,
    )


def unread(cause: OSError | ValueError) -> str:
    """Why a file could not be read, without its name, which the message has already."""
    if isinstance(cause, OSError):
        return (cause.strerror or str(cause)).lower()
    return "it is not UTF-8 text" if isinstance(cause, UnicodeDecodeError) else str(cause)


def _home(home: str | Path | None, env: Mapping[str, str]) -> Path | None:
    if home is not None:
        return Path(home).expanduser()
    if "MOORAGE_HOME" in env:
        return Path(env["MOORAGE_HOME"])
    return Path(env["HOME"]) / ".moorage" if "HOME" in env else None


def _recorded(home: Path | None) -> dict[str, Any]:
    if home is None:
        return {}
    path = home / "client.json"
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {name: _line(home / name) for name in ("url", "token")}
    except (OSError, ValueError) as error:
        raise InvalidSpec(f"cannot read {path}: {unread(error)}", remedy="`moor up` writes it anew") from error
    return found if isinstance(found, dict) else {}


def _line(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise InvalidSpec(
            f"{url!r} is not the address of a control plane",
            remedy="write it as http://HOST:PORT, for example http://127.0.0.1:7420",
        )


def _same(url: str, recorded: str | None) -> bool:
    return recorded is not None and url.rstrip("/") == recorded.rstrip("/")
