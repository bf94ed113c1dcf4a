"""Asking machines about servers that somebody else started: what one is, and its end."""

from moorage.control.asking import Asking
from moorage.wire.claim import ClaimAnswer, ClaimRequest

ClaimAsking = Asking[ClaimRequest, ClaimAnswer]
"""The questions under way."""
