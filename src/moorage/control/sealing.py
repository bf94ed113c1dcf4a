"""Encryption at rest: one key of the installation, in a file of its own, that seals what the store keeps.

The database alone never tells what was sealed, and the key file alone tells nothing. The key is made at its first use;
several control planes on one database need the same file, and one that has another is told so. Called by `vault` and
`authority`; nothing else in the project decrypts.
"""

import base64
import hashlib
import json
import os
import secrets
from pathlib import Path

from moorage.domain.errors import Unavailable

KEY_BYTES = 32
NONCE_BYTES = 12
"""AES-256-GCM's own sizes. A nonce is drawn for each sealing: at 96 random bits one key serves 2^32 of them."""


class Sealer:
    """Seals and opens texts with the installation's key.

    Args:
        path: the key file; made, for its owner only, when it is first needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: bytes | None = None

    def seal(self, text: str, context: str) -> str:
        """`text` encrypted, to be opened under the same context only.

        Args:
            context: what it belongs to; a sealed text that was moved to another place does not open there.

        Raises:
            Unavailable: the key cannot be read or made.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 50 ms that a start without secrets saves

        key, nonce = self._loaded(), os.urandom(NONCE_BYTES)
        sealed = AESGCM(key).encrypt(nonce, text.encode(), context.encode())
        return json.dumps({"key": _fingerprint(key), "sealed": base64.b64encode(nonce + sealed).decode()})

    def open(self, sealed: str, context: str) -> str:
        """The reverse.

        Raises:
            Unavailable: it was sealed with another key, or is not what was sealed here.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key, record = self._loaded(), json.loads(sealed)
        if record["key"] != _fingerprint(key):
            raise Unavailable(
                f"{context} was encrypted with another key than the one in {self._path}",
                code="another_key",
                retryable=False,
                remedy="give every control plane of this database the key file of the first one",
            )
        raw = base64.b64decode(record["sealed"])
        try:
            return AESGCM(key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], context.encode()).decode()
        except InvalidTag:
            raise Unavailable(
                f"what the database has for {context} is not what was stored there",
                code="sealed_text_damaged",
                retryable=False,
                remedy="set it anew",
            ) from None

    def _loaded(self) -> bytes:
        if self._key is None:
            try:
                self._key = _read_or_make(self._path)
            except (OSError, ValueError) as cause:
                raise Unavailable(
                    f"the key file {self._path} cannot be used: {cause}", remedy="mend the file or its rights"
                ) from cause
        return self._key


def _read_or_make(path: Path) -> bytes:
    try:
        return _read(path)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(base64.b64encode(os.urandom(KEY_BYTES)).decode() + "\n")
        file.flush()
        os.fsync(fd)
    try:
        os.link(new, path)  # whole or not at all, and never over a key that another process made meanwhile
    except FileExistsError:
        pass
    finally:
        new.unlink()
    _sync_folder(path.parent)  # a key that is lost with the power takes every secret with it
    return _read(path)


def _read(path: Path) -> bytes:
    key = base64.b64decode(path.read_text().strip(), validate=True)
    if len(key) != KEY_BYTES:
        raise ValueError(f"it holds {len(key)} bytes and not {KEY_BYTES}")
    return key


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"moorage key " + key).hexdigest()[:16]
