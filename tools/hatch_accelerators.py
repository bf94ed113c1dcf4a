"""The build of a wheel: takes compiled forms of the gateway's hot path along, where that is asked for.

    MOORAGE_BUILD_ACCELERATORS=1 uv build --wheel     compiles them; a wheel for this Python and this kind of machine
    uv build --wheel                                  a wheel for all, with nothing compiled in it

Not here: the compiling (`tools/build_accelerators.py`). Called by hatchling (`[tool.hatch.build.hooks.custom]`). An
editable installation is left as it is: there `make accelerators` builds into the sources.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "MOORAGE_BUILD_ACCELERATORS"
NEEDED = ("mypy>=2.4,<3", "setuptools>=75")


class AcceleratorsHook(BuildHookInterface):
    """Adds the folder of compiled forms to a wheel."""

    PLUGIN_NAME = "custom"
    _folder: Path | None = None

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling: mypyc, and what the sources import, for their types."""
        return [*NEEDED, *self.metadata.core.dependencies] if _asked() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files of a wheel are collected.

        Raises:
            NotBuilt: it was asked for and cannot be built here.
        """
        if version == "editable" or not _asked():
            return
        sys.path.insert(0, str(Path(self.root) / "tools"))
        import build_accelerators

        folder = self._folder = Path(tempfile.mkdtemp(prefix="moorage-wheel-"))
        build_accelerators.build(folder)
        build_data["force_include"][str(folder)] = "moorage/accelerated"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After the wheel was written."""
        if self._folder is not None:
            shutil.rmtree(self._folder)


def _asked() -> bool:
    return os.environ.get(VARIABLE, "") not in ("", "0")
