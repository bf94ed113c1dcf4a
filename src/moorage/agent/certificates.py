"""A worker's certificate as files in its own folder: written at once or not at all, and renewed before it ends.

`MOORAGE_IDENTITY_DIR` has `cert.pem`, `key.pem` and `ca.pem`; a program that wants to live longer than one certificate
reads them again when they change. Called by `providing` before the start and by `held` while the worker runs.
"""

from datetime import UTC, datetime
from pathlib import Path

from moorage.agent.account import Account
from moorage.agent.desk import Desk
from moorage.ports import Clock
from moorage.wire.giving import IdentityAnswer

FOLDER = "certificates"
RENEWED_AFTER = 2.0 / 3.0
"""Of its time: a third is left to find a control plane that is away."""
RETRY_S = 60.0


def write(folder: Path, answer: IdentityAnswer, *, contained: bool) -> None:
    """Put the three files there, each whole.

    Args:
        folder: the worker's identity directory.
        answer: the PEM texts.
        contained: in a container, whose image may run as anybody; the folder above keeps others on here out.

    Raises:
        OSError: they cannot be written.
    """
    folder.mkdir(mode=0o755 if contained else 0o700, parents=True, exist_ok=True)
    mode = 0o644 if contained else 0o600
    for name, text in (("ca.pem", answer.authority), ("key.pem", answer.key), ("cert.pem", answer.certificate)):
        new = folder / f".{name}"
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        new.write_text(text)
        new.chmod(mode)
        new.replace(folder / name)


async def keep_fresh(account: Account, folder: Path, desk: Desk, clock: Clock) -> None:
    """Renew the certificate in `folder` for as long as this is not cancelled."""
    contained = account.launch.runner != "process"
    while True:
        renew_at = _renew_at(folder / "cert.pem")
        left_s = 0.0 if renew_at is None else renew_at - clock.now()
        if left_s > 0:
            await clock.sleep(left_s)
        answer = await desk.identity(account.attempt.worker, account.attempt.epoch)
        if answer.why is None:
            try:
                write(folder, answer, contained=contained)
                continue
            except OSError as cause:
                account.log.warning("the renewed certificate cannot be written", why=str(cause))
        else:
            account.log.warning("the certificate cannot be renewed yet", why=answer.why)
        await clock.sleep(RETRY_S)


def _renew_at(certificate: Path) -> float | None:
    """When to ask for the next one, seconds since the epoch; None: at once, there is none that can be read."""
    from cryptography import x509  # loaded only where somebody has an identity

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError):
        return None
    begins, ends = _seconds(found.not_valid_before_utc), _seconds(found.not_valid_after_utc)
    return begins + (ends - begins) * RENEWED_AFTER


def _seconds(moment: datetime) -> float:
    return moment.astimezone(UTC).timestamp()
