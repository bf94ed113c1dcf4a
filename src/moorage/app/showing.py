"""What `moor config show` tells: every setting, and for address and token what the commands of this machine really use.

Nothing is decided here: where the control plane is and what proves who asks is found by the client's own rule. Called
by `app.commands`.
"""

from collections.abc import Mapping
from typing import Any

from moorage.app.settings import Settings, variable
from moorage.client.address import find_address

_RECORDED = ("client.json", "url")
"""Where the client finds an address that no variable names, under the home, in its order."""


def effective(settings: Settings, env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows {name, value, source}; secrets are masked.

    Args:
        settings: as read.
        env: the environment, which the commands look at too.

    Raises:
        InvalidSpec: `client.json` cannot be read.
    """
    found = find_address(None, None, None, env)
    recorded = next((path for name in _RECORDED if (path := settings.home / name).exists()), None)
    kept = str(recorded) if recorded else "default"
    token_file = recorded if recorded is None or recorded.name == "client.json" else settings.home / "token"
    used = {
        "url": (found.url, variable("url") if env.get("MOORAGE_URL") else kept),
        "token": (
            "(set, not shown)" if found.token else "",
            variable("token") if env.get("MOORAGE_TOKEN") else str(token_file) if found.token else "default",
        ),
    }
    return [_row(row, settings, used) for row in settings.to_wire()]


def _row(row: dict[str, Any], settings: Settings, used: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    key = next((key for key in used if variable(key) == row["name"]), None)
    if key is None:
        return row
    value, source = used[key]
    if settings.sources[key] == str(settings.home / "config.toml"):
        source += " (that of config.toml is for `moor agent` and `moor gateway`)"
    return {"name": row["name"], "value": value, "source": source}
