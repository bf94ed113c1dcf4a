"""TLS towards clients: the context of a gateway that ends it.

Here: which versions and protocols, and what is wrong with files that cannot be used. Not here: connections. Called by
`worker` at its start, so that a certificate that was renewed is in use after a reload.
"""

import ssl
from pathlib import Path

from moorage.domain.errors import InvalidSpec


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A context of TLS 1.2 and 1.3 and of HTTP/1.1.

    Args:
        certificate: PEM file of the certificate and of those that lead to its root.
        key: PEM file of its private key, without a passphrase.

    Raises:
        InvalidSpec: one of them cannot be read or used, or they do not belong together.
    """
    for path, what in ((certificate, "tls_certificate"), (key, "tls_key")):
        try:
            path.read_bytes()
        except OSError as error:
            raise _unusable(what, path, error.strerror or str(error)) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except _Passphrase as error:
        raise _unusable("tls_key", key, "it asks for a passphrase, which nobody can type") from error
    except (ssl.SSLError, ValueError) as error:
        raise _not_accepted(certificate, key, error) from error
    return context


class _Passphrase(Exception):
    """The key is encrypted."""


def _no_passphrase() -> str:
    raise _Passphrase


def _not_accepted(certificate: Path, key: Path, error: Exception) -> InvalidSpec:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return InvalidSpec(
            f"gateway: the key in {key} does not belong to the certificate in {certificate}",
            remedy="give the key that the certificate was made with; the server's own certificate comes first",
        )
    if b"PRIVATE KEY-----" not in key.read_bytes():
        return _unusable("tls_key", key, "it holds no private key in PEM")
    if b"BEGIN CERTIFICATE-----" not in certificate.read_bytes():
        return _unusable("tls_certificate", certificate, "it holds no certificate in PEM")
    return _unusable("tls_certificate", certificate, f"OpenSSL does not take it and {key}: {error}")


def _unusable(setting: str, path: Path, why: str) -> InvalidSpec:
    return InvalidSpec(
        f"gateway: {setting} {path} cannot be used: {why}", remedy="give a PEM file that this user may read"
    )
