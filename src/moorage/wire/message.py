"""What all messages between parts of an installation have in common."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Unknown fields are ignored, so that a newer peer can say more."""

    # How it is read is worked out at its first use: a process starts sooner, and uses few of them all.
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)
