"""What the documents show is there: commands with their options, specs, make targets, links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from house_rules import Source
from tree import ROOT, sources

from moorage.cli.root import moor
from moorage.wire.spec import parse_documents

PAGES = [source for source in sources() if source.path.endswith(".md")]
README = next(page for page in PAGES if page.path == "README.md")


def blocks(page: Source, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.text, re.DOTALL | re.MULTILINE)


def command_lines(page: Source) -> Iterator[list[str]]:
    """Every `moor …` line of a page's shell blocks, as arguments after `moor`."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "moor":
                yield words[1:]


SHOWN = [(page.path, words) for page in PAGES for words in command_lines(page)]


def test_the_readme_shows_the_commands_of_a_first_hour() -> None:
    shown = {words[0] for path, words in SHOWN if path == "README.md"}
    assert {"up", "serve", "apply", "status", "ls", "history", "logs", "why", "wait", "stop", "delete", "down"} <= shown


@pytest.mark.parametrize(("path", "words"), SHOWN, ids=[" ".join(words[:3]) for _, words in SHOWN])
def test_a_shown_command_exists_and_takes_these_arguments(
    path: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gemma.yaml").write_text(blocks(README, "yaml")[0])
    monkeypatch.chdir(tmp_path)
    with click.Context(moor, info_name="moor") as context:
        command = moor.get_command(context, words[0])
        assert command is not None, f"{path} shows `moor {words[0]}`, which does not exist"
        command.make_context(words[0], words[1:], parent=context)


@pytest.mark.parametrize("text", blocks(README, "yaml"))
def test_a_shown_spec_is_valid(text: str) -> None:
    assert parse_documents(text, source="README.md")


LATER: set[str] = set()
"""Commands of the contract that a later issue brings. The catalogue of reasons is complete from the first day and its
advice names them; nothing else may."""

_NAMED = re.compile(r"`moor ([a-z][a-z-]*)\b")


def test_every_command_that_a_message_or_page_names_exists() -> None:
    known = set(moor.list_commands(click.Context(moor)))
    assert not LATER & known, "it is here now: take it out of LATER"
    faults = [
        f"{source.path}:{number}: `moor {name}` does not exist"
        for source in sources()
        if source.under("src", "docs", "changelog.d") or source.path in {"README.md", "CONTRIBUTING.md"}
        for number, line in enumerate(source.lines, 1)
        for name in _NAMED.findall(line)
        if name not in (known | LATER if source.under("src/moorage/domain/catalogue", "docs/reference") else known)
    ]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_links_lead_somewhere(page: Source) -> None:
    here = (ROOT / page.path).parent
    targets = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.text)
    assert not [target for target in targets if not (here / target).exists()]


def test_named_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z][a-z-]*[a-z])`", page.text)}
    assert named
    assert named <= targets
