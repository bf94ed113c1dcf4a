"""The model cache of an agent against a hub over real HTTP, with the real huggingface_hub in its child."""

import asyncio
import errno
import hashlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import structlog
from agent_plane import until_true

from moorage.agent.given import Refused
from moorage.agent.models.cache import ModelCache, Want
from moorage.agent.models.fetching import Progress
from moorage.agent.models.shelf import FILES, Shelf, key_of
from moorage.clock import SystemClock
from moorage.domain.sources import HubSource, hub_source
from moorage.sources.hub import Hub
from tests.hub_mirror import PIECE, HubMirror

REPO = "org/tiny"
WEIGHTS = bytes(range(256)) * 16384  # 4 MiB
CONFIG = b'{"layers": 2}'
FILES_OF_TINY = {"config.json": CONFIG, "model.gguf": WEIGHTS, "onnx/model.onnx": b"onnx"}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubMirror]:
    it = HubMirror()
    monkeypatch.setenv("HF_ENDPOINT", it.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield it
    it.close()


@pytest.fixture
async def cache_at(tmp_path: Path) -> AsyncIterator[Callable[..., ModelCache]]:
    made: list[ModelCache] = []

    def make(limit_bytes: int | None = None) -> ModelCache:
        shelf = Shelf(tmp_path / "models")
        made.append(ModelCache(shelf, Hub(), SystemClock(), structlog.get_logger(), limit_bytes=limit_bytes))
        return made[-1]

    yield make
    for cache in made:
        await cache.close()


def silent(source: HubSource, progress: Progress) -> None:
    """Nobody listens."""


def source_of(text: str) -> HubSource:
    found = hub_source(text)
    assert found is not None
    return found


async def have(cache: ModelCache, text: str, want: Want | None = None) -> Path:
    entry = await cache.obtain(source_of(text), want or Want(), silent)
    return entry.path


async def test_a_branch_is_looked_up_and_its_files_are_proven_whole(
    mirror: HubMirror, cache_at: Callable[..., ModelCache]
) -> None:
    commit = mirror.push(REPO, FILES_OF_TINY)
    cache = cache_at()
    folder = await have(cache, f"hf://{REPO}")
    (entry,) = cache.entries
    assert entry.source.revision == commit
    assert (folder / "onnx/model.onnx").read_bytes() == b"onnx"
    told = {f["path"]: (f["size"], f["sha256"], f["proven"]) for f in entry.files}
    assert told["model.gguf"] == (len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest(), "sha256")
    assert told["config.json"][2] == "git"
    one = await have(cache, f"hf://{REPO}@main/model.gguf")
    assert one.is_file()
    assert one.read_bytes() == WEIGHTS


async def test_a_commit_that_is_here_needs_no_hub_and_survives_a_new_agent(
    mirror: HubMirror, cache_at: Callable[..., ModelCache]
) -> None:
    commit = mirror.push(REPO, FILES_OF_TINY)
    first = await have(cache_at(), f"hf://{REPO}@{commit}")
    asked = len(mirror.asked)
    again = cache_at()
    await again.open()
    assert await have(again, f"hf://{REPO}@{commit}") == first
    assert len(mirror.asked) == asked


async def test_two_who_wait_are_one_fetch(mirror: HubMirror, cache_at: Callable[..., ModelCache]) -> None:
    commit = mirror.push(REPO, FILES_OF_TINY)
    cache = cache_at()
    mirror.hold_after = PIECE
    both = [asyncio.create_task(have(cache, f"hf://{REPO}@{commit}")) for _ in range(2)]
    await until_true(lambda: [f.waiting for f in cache.fetches.values()] == [2])
    await until_true(lambda: mirror.fetched("model.gguf"))
    mirror.go_on.set()
    one, other = await asyncio.gather(*both)
    assert one == other
    assert mirror.fetched("model.gguf") == [""]


async def test_a_fetch_that_was_left_goes_on_where_it_ended(
    mirror: HubMirror, cache_at: Callable[..., ModelCache], tmp_path: Path
) -> None:
    commit = mirror.push(REPO, {"model.gguf": WEIGHTS})
    source = source_of(f"hf://{REPO}@{commit}")
    part = tmp_path / "models" / "partial" / key_of(source) / FILES / "model.gguf.part"
    cache = cache_at()
    mirror.cut_after = 4 * PIECE
    mirror.hold_after = 3 * PIECE  # of the first answer; what came before is on disk
    left = asyncio.create_task(have(cache, str(source)))
    await until_true(lambda: mirror.fetched("model.gguf"))
    mirror.go_on.set()
    await until_true(lambda: part.exists() and part.stat().st_size >= PIECE)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    assert not cache.fetches
    mirror.cut_after = mirror.hold_after = None
    asked = len(mirror.asked)
    again = cache_at()
    await again.open()
    folder = await have(again, str(source))
    assert (folder / "model.gguf").read_bytes() == WEIGHTS
    ranges = [span for _, path, span in mirror.asked[asked:] if path.endswith("model.gguf")]
    assert ranges
    assert all(span.startswith("bytes=") for span in ranges)


async def test_a_connection_that_breaks_again_and_again_ends_in_a_whole_file(
    mirror: HubMirror, cache_at: Callable[..., ModelCache]
) -> None:
    commit = mirror.push(REPO, {"model.gguf": WEIGHTS})
    mirror.cut_after = len(WEIGHTS) // 2
    assert ((await have(cache_at(), f"hf://{REPO}@{commit}")) / "model.gguf").read_bytes() == WEIGHTS


async def test_a_hub_that_is_busy_is_asked_again(mirror: HubMirror, cache_at: Callable[..., ModelCache]) -> None:
    mirror.push(REPO, FILES_OF_TINY)
    mirror.fail = [503]
    assert (await have(cache_at(), f"hf://{REPO}@main/model.gguf")).read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("source", "says"),
    [
        pytest.param("hf://org/none@main", "none", marks=pytest.mark.slow),
        (f"hf://{REPO}@nobranch", "nobranch"),
        pytest.param(f"hf://{REPO}@main/absent.bin", "absent.bin", marks=pytest.mark.slow),
    ],
)
async def test_what_is_not_there_fails_for_good(
    mirror: HubMirror, cache_at: Callable[..., ModelCache], source: str, says: str
) -> None:
    mirror.push(REPO, FILES_OF_TINY)
    with pytest.raises(Refused) as refused:
        await have(cache_at(), source)
    assert refused.value.why.code == "model.fetch_failed"
    assert refused.value.why.params["permanent"] is True
    assert says in str(refused.value.why.params["source"])


async def test_a_gated_model_is_given_to_those_only_whose_token_opens_it(
    mirror: HubMirror, cache_at: Callable[..., ModelCache]
) -> None:
    commit = mirror.push(REPO, FILES_OF_TINY)
    mirror.repos[REPO].token = "hf_good"
    cache = cache_at()
    source = f"hf://{REPO}@{commit}/model.gguf"
    with pytest.raises(Refused) as refused:
        await have(cache, source, Want("a", "hf_bad"))
    assert refused.value.why.params["permanent"] is True
    assert (await have(cache, source, Want("a", "hf_good"))).read_bytes() == WEIGHTS
    assert cache.entries[0].restricted


async def test_bytes_that_are_not_those_that_the_hub_names_are_never_given_out(
    mirror: HubMirror, cache_at: Callable[..., ModelCache], tmp_path: Path
) -> None:
    commit = mirror.push(REPO, FILES_OF_TINY)
    mirror.lie = True
    with pytest.raises(Refused) as refused:
        await have(cache_at(), f"hf://{REPO}@{commit}/model.gguf")
    assert "sha256" in str(refused.value.why.params["error"])
    assert refused.value.why.params["permanent"] is True
    assert not list((tmp_path / "models" / "partial").iterdir())


@pytest.mark.slow
async def test_a_file_that_was_lost_is_fetched_again(mirror: HubMirror, cache_at: Callable[..., ModelCache]) -> None:
    commit = mirror.push(REPO, FILES_OF_TINY)
    cache = cache_at()
    folder = await have(cache, f"hf://{REPO}@{commit}")
    (folder / "config.json").unlink()
    asked = len(mirror.fetched("model.gguf"))
    folder = await have(cache, f"hf://{REPO}@{commit}")
    assert (folder / "config.json").read_bytes() == CONFIG
    assert len(mirror.fetched("model.gguf")) == asked  # what was whole is proven here


async def test_a_disk_that_fills_up_meanwhile_is_said_so_and_the_parts_go(
    mirror: HubMirror, cache_at: Callable[..., ModelCache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is given a `sitecustomize` whose disk takes a quarter of the file and no more."""
    commit = mirror.push(REPO, {"model.gguf": WEIGHTS})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "sitecustomize.py").write_text(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(WEIGHTS) // 4}, {len(WEIGHTS) // 4}))\n"
        "import errno\n"
        f"errno.EDQUOT = {errno.EFBIG}\n"  # what a file of its own limit answers, in place of a full disk
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "full"))
    with pytest.raises(Refused) as refused:
        await have(cache_at(), f"hf://{REPO}@{commit}")
    assert refused.value.why.code == "setup.failed"
    assert "no room is left" in refused.value.why.message
    assert not list((tmp_path / "models" / "partial").iterdir())


async def test_an_offline_machine_takes_what_its_own_hub_cache_has(
    mirror: HubMirror, cache_at: Callable[..., ModelCache], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commit = mirror.push(REPO, FILES_OF_TINY)
    program = f"from huggingface_hub import hf_hub_download as get\nfor f in {list(FILES_OF_TINY)}: get('{REPO}', f)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await child.wait() == 0
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    cache = cache_at()
    folder = await have(cache, f"hf://{REPO}@main")
    assert (folder / "model.gguf").read_bytes() == WEIGHTS
    (entry,) = cache.entries
    assert entry.source.revision == commit
    assert {f["proven"] for f in entry.files} == {"sha256", "git"}
    with pytest.raises(Refused) as refused:
        await have(cache, "hf://org/unknown@main")
    assert "HF_HUB_OFFLINE" in refused.value.why.message


async def test_without_huggingface_hub_it_says_what_to_install(
    mirror: HubMirror, cache_at: Callable[..., ModelCache], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bare" / "huggingface_hub").mkdir(parents=True)
    (tmp_path / "bare" / "huggingface_hub" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'huggingface_hub'\", name='huggingface_hub')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "bare"))
    with pytest.raises(Refused) as refused:
        await have(cache_at(), f"hf://{REPO}@main")
    assert refused.value.why.code == "setup.failed"
    assert "moorage[hf]" in refused.value.why.message
