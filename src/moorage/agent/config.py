"""The agent's configuration: one frozen value, read once from a JSON file that whoever starts the agent writes.

The environment is not looked at here: what workers inherit is an argument.
"""

import difflib
import json
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from moorage.domain.errors import InvalidSpec
from moorage.domain.units import parse_size
from moorage.wire.gpus import Gpu

INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"),
    *("LD_LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "NCCL_*", "ROCM_*", "ROCR_*", "HIP_*", "HSA_*"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
"""What a process worker gets of the agent's own environment: what describes the machine, its drivers and its way out.
All else is the shell's in which the agent happened to be started: tokens, and settings of other programs."""

_DECLARED = re.compile(r"(\d+)x([^:]+):(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Everything the agent is told.

    Args:
        server_url: the control API, such as `http://127.0.0.1:7420`.
        name: the machine's name.
        home: the agent's own directory: its ledger, and a directory for each worker.
        token: join token; needed until the first join gave a credential, which is kept in `home`.
        host: address under which this machine's servers are reached; also what `{host}` becomes.
        ports: first and last port of the pool.
        gpus: declared GPUs; the driver is not asked then. Empty: those that a driver shows.
        labels, accepts, reserve: as the machine reports them.
        stop_workers_on_exit: SIGTERM stops the workers too (else they are left to be adopted).
        exit_wait_s: how long such a stop waits for workers and for the server to take the reports.
        worker_env: environment that process workers inherit: of the agent's own, what describes the machine
            (`INHERITED`) and what `env_pass` names, and never anything of ours.
        env_pass: further names of the agent's environment that workers inherit; `*` in one stands for anything.
        engines: container engine → its socket; `auto` (and one that is not named): the usual places; empty: not used.
        runtime_dir: where a user's own engine has its socket (`XDG_RUNTIME_DIR`).
        python: interpreter for the shims.
        logs_bytes: room for the directories of ended attempts (`HOME/workers/WORKER/EPOCH-…`), kept for their logs;
            None: 10 GiB, or 5 % of the disk where that is less. See `keeping`. What a worker wrote under
            `HOME/output/RUN/RANK` is kept for ever; an empty directory there goes with its worker.
        logs_age_s: so long after its end an attempt's directory is kept at most.
        data: where drives, copies of them and models from hubs are kept; None: in `home`.
        models_bytes: room for the models that were fetched from hubs, all together; None: what the disk has, less a
            small reserve. See `models`.
        log: level of the agent's own log.
    """

    server_url: str
    name: str
    home: Path
    token: str | None = None
    host: str = "127.0.0.1"
    ports: tuple[int, int] = (18000, 18031)
    gpus: tuple[Gpu, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    accepts: tuple[str, ...] = ()
    reserve: Mapping[str, int] = field(default_factory=dict)
    stop_workers_on_exit: bool = False
    exit_wait_s: float = 60.0
    worker_env: Mapping[str, str] = field(default_factory=dict)
    env_pass: tuple[str, ...] = ()
    engines: Mapping[str, str] = field(default_factory=dict)
    runtime_dir: str | None = None
    python: str = sys.executable
    logs_bytes: int | None = None
    logs_age_s: float = 7 * 86400.0
    data: Path | None = None
    models_bytes: int | None = None
    log: str = "info"

    @property
    def data_location(self) -> Path:
        """Where drives, copies of them and models are kept."""
        return self.data or self.home


def parse_gpus(declared: str) -> tuple[Gpu, ...]:
    """`8xH100:80GiB` (several groups with commas) → one `Gpu` each, indexed in order.

    Raises:
        InvalidSpec: the text is not of that form.
    """
    out: list[Gpu] = []
    for part in filter(None, (p.strip() for p in declared.split(","))):
        match = _DECLARED.fullmatch(part)
        if match is None or int(match[1]) == 0:
            raise InvalidSpec(f"cannot read the GPUs {part!r}", remedy="write COUNTxMODEL:MEMORY, as in 8xH100:80GiB")
        memory = parse_size(match[3])
        first = len(out)
        out.extend(Gpu(index=first + i, model=match[2], memory_bytes=memory) for i in range(int(match[1])))
    return tuple(out)


def load_config(path: Path, environ: Mapping[str, str]) -> AgentConfig:
    """The configuration in a JSON file; keys are the fields of `AgentConfig`, `gpus` a text such as `8xH100:80GiB`.

    Args:
        path: the file.
        environ: the agent's own environment; see `worker_env`, which the file may give itself.

    Raises:
        InvalidSpec: the file cannot be read, has an unknown key, or lacks one.
    """
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as cause:
        raise InvalidSpec(f"cannot read the agent's configuration {path}: {cause}") from cause
    if not isinstance(raw, dict):
        raise InvalidSpec(f"the agent's configuration {path} is not a JSON object")
    return from_mapping(raw, environ)


def from_mapping(raw: Mapping[str, Any], environ: Mapping[str, str]) -> AgentConfig:
    """As `load_config`, from a mapping."""
    known = {f.name for f in fields(AgentConfig)}
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(known))}"
            raise InvalidSpec(f"the agent's configuration has no {key!r}", remedy=hint)
    missing = [key for key in ("server_url", "name", "home") if not raw.get(key)]
    if missing:
        raise InvalidSpec(f"the agent's configuration lacks {', '.join(missing)}", remedy="add what is missing")
    given = dict(raw)
    given["home"] = Path(given["home"]).expanduser().absolute()
    given["server_url"] = str(given["server_url"]).rstrip("/")
    if isinstance(given.get("gpus"), str):
        given["gpus"] = parse_gpus(given["gpus"])
    elif "gpus" in given:
        given["gpus"] = tuple(Gpu.model_validate(g) for g in given["gpus"])
    if given.get("data"):
        given["data"] = Path(given["data"]).expanduser().absolute()
    if "ports" in given:
        low, high = given["ports"]
        given["ports"] = (int(low), int(high))
    for key in ("accepts", "env_pass"):
        given[key] = tuple(given.get(key) or ())
    unknown = set(given.get("engines") or ()) - {"podman", "docker"}
    if unknown:
        raise InvalidSpec(f"there is no container engine {sorted(unknown)[0]!r}", remedy="podman and docker are known")
    given.setdefault("runtime_dir", environ.get("XDG_RUNTIME_DIR"))
    given.setdefault("worker_env", inherited(environ, given["env_pass"]))
    return AgentConfig(**given)


def inherited(environ: Mapping[str, str], passed: Collection[str]) -> dict[str, str]:
    """What workers get of the agent's environment: what describes the machine, and names that were let through."""
    patterns = (*INHERITED, *passed)
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("MOORAGE_") and any(fnmatchcase(name, pattern) for pattern in patterns)
    }
