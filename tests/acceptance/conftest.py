"""One installation for the module's tests that leave it standing, and a fresh one for those that break it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.installation import Installation


def _installed(folder: Path) -> Iterator[Installation]:
    installation = Installation(folder / "home")
    installation.up()
    try:
        yield installation
    finally:
        installation.down()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation that the tests of one module share."""
    yield from _installed(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Installation]:
    """An installation of the test's own."""
    yield from _installed(tmp_path)
