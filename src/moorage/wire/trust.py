"""Whose certificates are believed where a control plane is reached by https.

Here: the one answer for clients, agents and gateways. Not here: the gateway's own certificate (`gateway.tls`).
"""

import ssl
from pathlib import Path

import certifi

from moorage.domain.errors import InvalidSpec


def trusted(ca: str | Path | None = None) -> ssl.SSLContext:
    """A context that believes these certificates.

    Args:
        ca: PEM file, and nothing but it; None: those of the system, or where SSL_CERT_FILE and SSL_CERT_DIR say that
            they are, and those that come with `certifi`, since not every system has any.

    Raises:
        InvalidSpec: the file cannot be read, or holds none.
    """
    if ca is not None:
        try:
            return ssl.create_default_context(cafile=str(ca))
        except (OSError, ssl.SSLError) as error:
            raise InvalidSpec(
                f"cannot take certificates from {ca}: {error.strerror or error}",
                remedy="give a PEM file with the certificate of the authority, or of the server itself",
            ) from error
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=certifi.where())
    return context
