"""Which settings a home's parts were last started with otherwise than a command would start them now.

Here: comparing what they were given (`run/*.json`) with the settings of this shell, and both as people write them. Not
here: what is done about it (`up`, `commands`). Addresses are left out: for those `up` has rules of its own.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from moorage.app.gateway_settings import OWN, PREFIX
from moorage.app.home import Home, part_configs
from moorage.app.settings import Settings, variable
from moorage.domain.silence import HANG_AFTER_S

_AGENT = (
    "ports",
    "gpus",
    "labels",
    "accepts",
    "reserve",
    "engines",
    "env_pass",
    "logs_bytes",
    "logs_age_s",
    "models_bytes",
)
_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "server": {key: key for key in ("database_url", "machine_ttl_s", "log")} | {"heartbeat_s": "machine_heartbeat_s"},
    "agent": {"home": "agent_data"} | {key: f"agent_{key}" for key in _AGENT},
    "gateway": {
        key: PREFIX + key
        for key in ("processes", "allowed_origins", "allowed_hosts", "access_log", "tls_certificate", "tls_key")
    }
    | {key.removeprefix(PREFIX): key for key in OWN if key != "gateway_advertise"}
    | {"hang_after_s": "hang_after_s"},
    "supervisor": {"hang_after_s": "hang_after_s"},
}
"""Of each part: the settings by the names that they have in its configuration."""
TAKE_UP: Mapping[str, str] = {
    "gateway": "`moor gateway --reload`",
    "server": "`moor down --keep` and `moor up`",
    "agent": "`moor down --keep` and `moor up`",
    "supervisor": "`moor down --keep` and `moor up`",
}
"""What has a part take up the settings of now, with nothing that runs being cut."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting.

    Args:
        name: its variable.
        part: whose.
        runs: the value that the part was given.
        now: the value that it would be given.
        source: where that one comes from.
    """

    name: str
    part: str
    runs: str
    now: str
    source: str

    def to_wire(self) -> dict[str, str]:
        """For programs."""
        return asdict(self)


def differing(home: Home, settings: Settings) -> tuple[Difference, ...]:
    """The settings that differ; none where no part was ever started."""
    found: list[Difference] = []
    if not home.config("gateway").exists():
        return ()
    fresh = json.loads(json.dumps(part_configs(home, settings, settings.api.url)))
    for part, names in _SETTINGS.items():
        given = _given(home, part)
        for field, key in names.items() if given else ():
            if given.get(field) != fresh[part].get(field):
                runs, now = _text(key, given.get(field)), _text(key, fresh[part].get(field))
                found.append(Difference(variable(key), part, runs, now, settings.sources[key]))
    return tuple(found)


def _given(home: Home, part: str) -> dict[str, Any]:
    try:
        given = json.loads(home.config(part).read_text())
    except (OSError, ValueError):
        return {}
    return given if isinstance(given, dict) else {}


def _text(key: str, value: Any) -> str:
    own = OWN.get(key)
    if own is not None:
        return own.default if value is None else own.show(value)
    if isinstance(value, Mapping):
        return ",".join(f"{k}={v}" for k, v in value.items()) or "none"
    if isinstance(value, list):
        return ("-" if key == "agent_ports" else ",").join(map(str, value)) or "none"
    if key == "hang_after_s":
        return "off" if value == 0 else f"{HANG_AFTER_S if value is None else value:g}"
    return "none" if value in (None, "") else f"{value:g}" if isinstance(value, float) else str(value)
