"""What all messages between parts of an installation have in common."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Unknown fields are ignored, so that a newer peer can say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)
