"""The text of a systemd unit for a gateway that runs alone. Called by `commands`."""

import math
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from moorage.app.settings import Settings, variable

_ENDS_S = 15
"""How much longer than `drain_s` the ends of processes may take."""
_CARRIED = ("MOORAGE_HOME", "MOORAGE_URL", "MOORAGE_GATEWAY")
"""How variables begin that go into the unit; a token is a secret, which anybody may read there."""

_PATHS = ("gateway_access_log", "gateway_tls_certificate", "gateway_tls_key")


def gateway_unit(env: Mapping[str, str], settings: Settings) -> str:
    """A unit that runs `moor gateway` with the settings of this environment."""
    moor = Path(sys.executable).with_name("moor")
    command = shlex.quote(str(moor)) if moor.exists() else f"{shlex.quote(sys.executable)} -P -m moorage.cli.main"
    variables = {k: v for k, v in sorted(env.items()) if k.startswith(_CARRIED) and v}
    variables["MOORAGE_HOME"] = str(settings.home)
    # systemd starts it in another folder than this one
    variables |= {variable(key): settings.show(key) for key in _PATHS if variable(key) in variables}
    lines = "\n".join(f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(variables.items()))
    return f"""\
[Unit]
Description=Moorage gateway
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
{lines}
# A token of the control plane goes into a file that only root reads: MOORAGE_TOKEN=...
EnvironmentFile=-/etc/moorage/gateway.env
ExecStart={command} gateway
# New processes take over and no connection is dropped: after a new release, certificate or setting.
ExecReload={command} gateway --reload
# The master alone is told to end: it ends its processes once they have finished what runs. Should it be killed, they
# serve on until the next one has others.
KillMode=process
TimeoutStopSec={math.ceil(settings.gateway_own["gateway_drain_s"]) + _ENDS_S}
Restart=always
RestartSec=1
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
"""


def _quoted(text: str) -> str:
    """As systemd reads it: in quotes, with its own signs escaped."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'
