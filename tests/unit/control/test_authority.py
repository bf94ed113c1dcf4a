"""Workers' certificates are verified against the installation's authority by ordinary TLS, and nobody else's are."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509

from moorage.clock import SystemClock
from moorage.control.authority import CERTIFICATE_TTL, Authority
from moorage.control.sealing import Sealer
from moorage.domain.errors import Unavailable
from moorage.store import open_store
from moorage.store.store import SqlStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store(f"sqlite:///{tmp_path}/m.db", SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
def authority(store: SqlStore, tmp_path: Path) -> Authority:
    return Authority(store, SystemClock(), Sealer(tmp_path / "secrets.key"))


async def files(authority: Authority, folder: Path, worker: str, host: str = "127.0.0.1") -> Path:
    """The three files as a worker finds them."""
    folder.mkdir()
    certificate, key = await authority.issue("default", "train", worker, host)
    (folder / "cert.pem").write_text(certificate)
    (folder / "key.pem").write_text(key)
    (folder / "ca.pem").write_text(await authority.certificate())
    return folder


def context(side: ssl.Purpose, own: Path, trusts: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(side, cafile=trusts / "ca.pem")
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(own / "cert.pem", own / "key.pem")
    return made


async def hello(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str, ...]:
    """A connection with certificates on both sides; the names in the one that the server saw."""
    seen: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peercert")
        seen.set_result(tuple(value for _, value in peer["subjectAltName"]))
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server)
    async with listening:
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname(), ssl=client)
        await reader.read()
        writer.close()
        return await asyncio.wait_for(seen, 60)


async def test_two_workers_know_each_other_by_their_certificates(authority: Authority, tmp_path: Path) -> None:
    one = await files(authority, tmp_path / "one", "train-0")
    two = await files(authority, tmp_path / "two", "train-1")
    server, client = context(ssl.Purpose.CLIENT_AUTH, one, one), context(ssl.Purpose.SERVER_AUTH, two, two)
    assert await hello(server, client) == ("moorage://default/train/train-1", "127.0.0.1")


async def test_a_certificate_of_another_installation_is_refused(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    opened = await open_store(f"sqlite:///{tmp_path}/other/m.db", SystemClock())
    stranger = Authority(opened, SystemClock(), Sealer(tmp_path / "other" / "secrets.key"))
    one = await files(authority, tmp_path / "one", "train-0")
    two = await files(stranger, tmp_path / "two", "train-1")
    await opened.close()
    server, client = context(ssl.Purpose.CLIENT_AUTH, one, one), context(ssl.Purpose.SERVER_AUTH, two, two)
    with pytest.raises(ssl.SSLCertVerificationError):
        await hello(server, client)


async def test_every_control_plane_with_the_key_file_signs_with_the_same_authority(
    authority: Authority, store: SqlStore, tmp_path: Path
) -> None:
    second = Authority(store, SystemClock(), Sealer(tmp_path / "secrets.key"))
    first_words = await asyncio.gather(authority.certificate(), second.certificate())
    assert first_words[0] == first_words[1]
    one = await files(authority, tmp_path / "one", "a")
    two = await files(second, tmp_path / "two", "b")
    server, client = context(ssl.Purpose.CLIENT_AUTH, one, one), context(ssl.Purpose.SERVER_AUTH, two, two)
    assert (await hello(server, client))[0] == "moorage://default/train/b"


async def test_a_control_plane_with_another_key_file_says_so_and_makes_no_second_authority(
    authority: Authority, store: SqlStore, tmp_path: Path
) -> None:
    known = await authority.certificate()
    with pytest.raises(Unavailable, match="encrypted with another key"):
        await Authority(store, SystemClock(), Sealer(tmp_path / "another.key")).certificate()
    assert await Authority(store, SystemClock(), Sealer(tmp_path / "secrets.key")).certificate() == known


async def test_the_key_of_the_authority_is_not_readable_in_the_store(authority: Authority, store: SqlStore) -> None:
    await authority.certificate()
    kept = " ".join((await store.secrets("")).values())
    assert "PRIVATE KEY" not in kept
    assert base64.b64encode(b"PRIVATE").decode().rstrip("=") not in kept


async def test_a_certificate_is_short_lived_names_its_host_and_signs_no_others(authority: Authority) -> None:
    pem, _ = await authority.issue("team", "train", "train-0", "box.example")
    found = x509.load_pem_x509_certificate(pem.encode())
    assert found.not_valid_after_utc - found.not_valid_before_utc <= CERTIFICATE_TTL * 1.01
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["box.example"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["moorage://team/train/train-0"]
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
