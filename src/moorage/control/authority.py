"""The certificate authority of an installation, and the short-lived certificates that it gives to workers.

Made at its first use; its key is kept sealed in the store, so that every control plane that has the installation's key
file signs with the same one. A worker's certificate names it (`moorage://NAMESPACE/RUN/WORKER`) and the address of its
machine. Called by `provisions` for machines, and by the API for whoever verifies.
"""

import ipaddress
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from moorage.control.sealing import Sealer
from moorage.ports import Clock, Store

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

PLACE = "identity/authority"
AUTHORITY_TTL = timedelta(days=3650)
CERTIFICATE_TTL = timedelta(hours=12)
"""Renewed after two thirds of it: a control plane may be away for four hours before anybody is without."""

BACKDATED = timedelta(minutes=5)
"""Clocks of machines differ a little, and a certificate is used the moment that it is made."""


class Authority:
    """Signs.

    Args:
        store: keeps the authority, sealed.
        clock: time of certificates.
        sealer: seals its key.
    """

    def __init__(self, store: Store, clock: Clock, sealer: Sealer) -> None:
        self._store = store
        self._clock = clock
        self._sealer = sealer
        self._loaded: _Loaded | None = None

    async def certificate(self) -> str:
        """The authority's own certificate (PEM): what a verifier trusts.

        Raises:
            Unavailable: its key cannot be opened here.
        """
        return (await self._load()).pem

    async def issue(self, namespace: str, run: str, worker: str, host: str) -> tuple[str, str]:
        """A certificate and its key (PEM) for one worker.

        Args:
            namespace, run, worker: names.
            host: address or name of the machine, under which others reach it.

        Raises:
            Unavailable: the authority's key cannot be opened here.
        """
        authority = await self._load()
        return authority.issue(f"moorage://{namespace}/{run}/{worker}", worker, host, self._clock.now())

    async def _load(self) -> "_Loaded":
        if self._loaded is None:
            kept = await self._store.secret(PLACE)
            if kept is None:
                made = _make(self._clock.now())
                await self._store.swap_secret(PLACE, None, self._sealer.seal(json.dumps(made), PLACE))
                kept = await self._store.secret(PLACE)  # another control plane may have been first
            assert kept is not None
            key, pem = json.loads(self._sealer.open(kept, PLACE))
            self._loaded = _Loaded(key, pem)
        return self._loaded


class _Loaded:
    """The authority, ready to sign."""

    def __init__(self, key: str, pem: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        loaded = serialization.load_pem_private_key(key.encode(), password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self.pem = pem
        self._key = loaded
        self._certificate = x509.load_pem_x509_certificate(pem.encode())

    def issue(self, uri: str, name: str, host: str, now: float) -> tuple[str, str]:
        """Certificate and key of one worker."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri), _host_name(host)])
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(name, self._certificate.subject, key, now, CERTIFICATE_TTL)
        builder = builder.add_extension(names, critical=False).add_extension(uses, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        return _signed(builder, self._key), _pem_of(key)


def _make(now: float) -> tuple[str, str]:
    """A new authority: its key and its certificate, PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = "Moorage certificate authority"
    builder = _builder(name, _subject(name), key, now, AUTHORITY_TTL)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    uses = {"digital_signature": False, "content_commitment": False, "key_encipherment": False}
    uses |= {"data_encipherment": False, "key_agreement": False, "encipher_only": False, "decipher_only": False}
    builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **uses), critical=True)
    return _pem_of(key), _signed(builder, key)


def _builder(
    name: str, issuer: "x509.Name", key: "EllipticCurvePrivateKey", now: float, ttl: timedelta
) -> "x509.CertificateBuilder":
    from cryptography import x509

    begins = datetime.fromtimestamp(now, UTC) - BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + BACKDATED + ttl)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # no longer one is allowed


def _host_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey") -> str:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _pem_of(key: "EllipticCurvePrivateKey") -> str:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
