"""What only the machine can give: certificates, Debian packages, programs to run. And the one error of these steps."""

import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


class Problem(Exception):
    """Something a person must do; the message is the one line that they read."""


def certificates() -> str | None:
    """The bundle named by the environment, as the usual clients name it; None: the system's own place."""
    for name in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if os.environ.get(name) and Path(os.environ[name]).is_file():
            return os.environ[name]
    return None


def is_certificate(error: OSError) -> bool:
    """Whether a connection failed because the peer's certificate could not be verified."""
    return isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)


def installed_certificates() -> bool:
    """Put the system's certificates there when they are missing and we may; whether a retry makes sense."""
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        return False
    return _apt("ca-certificates")


def explain(host: str, problem: OSError | None) -> str:
    """One line that says what to do about a host that was not reached."""
    if problem is not None and is_certificate(problem):
        return (
            f"the certificate of {host} cannot be verified: install the package ca-certificates "
            "(apt-get install ca-certificates), or name your bundle: SSL_CERT_FILE=/path/to/bundle.pem"
        )
    return f"cannot reach {host} ({problem}): check the network, or name a mirror: PIP_INDEX_URL=https://…/simple"


def need_ensurepip() -> None:
    """Make sure that this Python can make a virtual environment with pip in it.

    Raises:
        Problem: it cannot, and we may not install what it lacks.
    """
    probe = subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True, check=False)
    if probe.returncode and not _apt("python3-venv"):
        raise Problem("this python3 has no venv: install it (Debian: apt-get install python3-venv) and run again")


def _apt(package: str) -> bool:
    """Install one Debian package when we are root and this is Debian; whether it is there now."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    say(f"installing {package} with apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", package]):
        if subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, check=False).returncode:
            return False
    return True


def run(command: list[str], env: dict[str, str]) -> None:
    """Run one program and show what it says, but for its list of every package."""
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr or ():
            if not line.startswith((" + ", " - ", " ~ ")):
                print("  " + line.rstrip(), file=sys.stderr, flush=True)
    if process.returncode:
        shown = " ".join(Path(part).name for part in command[:3])
        raise Problem(f"`{shown} …` ended with exit code {process.returncode} (see above)")


def say(line: str) -> None:
    """One line of progress, beside the output that a person asked for."""
    print(f"moorage: {line}", file=sys.stderr, flush=True)
