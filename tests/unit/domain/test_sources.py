"""Model sources are read exactly, or refused with how to write them."""

import pytest

from moorage.domain.errors import InvalidSpec
from moorage.domain.sources import HubSource, hub_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("hf://org/name", HubSource("org/name")),
        ("hf://org/name@v1.0", HubSource("org/name", "v1.0")),
        (f"hf://org/name@{COMMIT}", HubSource("org/name", COMMIT)),
        ("hf://org/na.me-2@main/q4/m.gguf", HubSource("org/na.me-2", "main", "q4/m.gguf")),
        ("hf://org/name/m.gguf", HubSource("org/name", None, "m.gguf")),
        ("hf://org/name@refs/pr/7/m.gguf", HubSource("org/name", "refs/pr/7", "m.gguf")),
        ("hf://org/name@main/*.safetensors", HubSource("org/name", "main", "*.safetensors")),
    ],
)
def test_each_form_is_read_and_written_back(text: str, meant: HubSource) -> None:
    assert hub_source(text) == meant
    assert str(meant) == text


@pytest.mark.parametrize("path", ["./m.gguf", "/models/hf/m.gguf", "m@1.gguf"])
def test_a_path_is_no_source_of_a_hub(path: str) -> None:
    assert hub_source(path) is None


@pytest.mark.parametrize(
    "text",
    ["hf://", "hf://name", "hf://org/name@", "hf://org/name/../x", "hf://org/name//x", "s3://b/k", "hf://org/name@a@b"],
)
def test_anything_else_says_how_to_write_it(text: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        hub_source(text)
    assert text in raised.value.message
    assert raised.value.remedy


def test_only_a_commit_means_the_same_bytes_for_ever() -> None:
    assert HubSource("o/n", COMMIT).pinned
    assert not HubSource("o/n", COMMIT[:12]).pinned
    assert not HubSource("o/n", "main").pinned
    assert not HubSource("o/n").pinned
    assert HubSource("o/n", "main", "*.gguf").at(COMMIT) == HubSource("o/n", COMMIT, "*.gguf")


def test_a_pattern_is_not_one_file() -> None:
    assert HubSource("o/n", None, "a/b.gguf").one_file
    assert not HubSource("o/n", None, "a/*.gguf").one_file
    assert not HubSource("o/n").one_file
