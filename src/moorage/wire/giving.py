"""What an agent asks for on behalf of a worker that it sets up: secret values, a certificate, a copy of a drive.

Part of the agent protocol (`agent.py`), under `/api/v1/agent/{secrets,identity,drives}`.
"""

from pydantic import Field

from moorage.wire.message import Message


class DriveRequest(Message):
    """Another machine needs a copy of a drive that is here; sent with `POST /agent/drives/{id}` as a tar stream."""

    id: str
    namespace: str
    name: str


class SecretsRequest(Message):
    """The values that one worker's spec names, for the machine it is placed on."""

    machine: str
    incarnation: str
    worker: str
    epoch: int


class SecretsAnswer(Message):
    """Values by variable; `registry` is {username, password, server?}; `missing`: (secret, key) that is not there."""

    values: dict[str, str] = Field(default_factory=dict, repr=False)
    registry: dict[str, str] | None = Field(default=None, repr=False)
    missing: tuple[tuple[str, str], ...] = ()


class IdentityAnswer(Message):
    """A certificate for one worker (asked for as `SecretsRequest`); PEM texts. `why` says why there is none yet."""

    certificate: str = ""
    key: str = Field(default="", repr=False)
    authority: str = ""
    why: str | None = None
