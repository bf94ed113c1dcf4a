"""Writes `docs/reference/spec.schema.json`: the JSON Schema of spec files, for editors that complete YAML.

python tools/generate_schema.py            write it
python tools/generate_schema.py --check    fail when it is not as the code says
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
PAGE = ROOT / "docs" / "reference" / "spec.schema.json"


def schema() -> dict[str, Any]:
    """One schema for every kind; the kind says which fields there are."""
    from pydantic.json_schema import models_json_schema

    from moorage.wire.spec import KINDS

    models = [(model, "validation") for model in KINDS.values()]
    refs, whole = models_json_schema(models, ref_template="#/$defs/{model}")  # type: ignore[arg-type]  # a list of one kind of pairs is not one of any
    definitions = whole["$defs"]
    for kind in KINDS:
        definitions[kind]["required"] = sorted({"kind", *definitions[kind].get("required", [])})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Moorage spec document",
        "description": "One document of a spec file. Files may hold several, separated by ---.",
        "oneOf": [{"$ref": refs[(KINDS[kind], "validation")]["$ref"]} for kind in KINDS],
        "$defs": definitions,
    }


def main(args: list[str]) -> int:
    """Write, or check."""
    wanted = json.dumps(schema(), indent=2, sort_keys=True) + "\n"
    if "--check" in args:
        if PAGE.exists() and PAGE.read_text() == wanted:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is not as the code says; run tools/generate_schema.py", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
