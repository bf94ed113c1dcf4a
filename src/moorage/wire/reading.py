"""Text of a spec file → plain values with the line of each place. YAML with several documents, or JSON.

YAML's surprises are taken out here: a key given twice is refused, `VERSION: 1.10` in an `env` stays `1.10`, and a file
that unfolds to an unreasonable size (nested aliases) is refused before it is unfolded. Called by `spec`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from moorage.wire.problems import Problem, invalid, path_text

MAX_VALUES = 100_000
"""Values in one file, aliases unfolded: far above any real spec, far below what hurts."""

MAX_DEPTH = 64
"""Levels of nesting: a spec has under ten; an alias that holds itself has no end."""

_AS_WRITTEN = frozenset({"env", "labels", "annotations", "command"})
"""Keys below which scalars are text as written, whatever YAML would make of them."""

_TEXT = "tag:yaml.org,2002:str"
_RETAGGED = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "timestamp"))


@dataclass(slots=True)
class Reading:
    """One document as read.

    Attributes:
        value: plain Python values.
        lines: place → line of the file, from 1; empty for JSON.
        problems: keys given twice.
    """

    value: Any
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read(text: str, source: str) -> list[Reading]:
    """Every document in `text`; empty ones are left out.

    Args:
        text: the file's content.
        source: what errors call it (a path, `standard input`).

    Raises:
        InvalidSpec: it is neither YAML nor JSON.
    """
    try:
        if text.lstrip().startswith(("{", "[")):
            found = _read_json(text)
            if found is not None:
                return found
        return list(_read_yaml(text, source))
    except RecursionError:
        raise invalid(source, [{"path": "", "message": "it is nested too deeply"}]) from None


def _read_json(text: str) -> list[Reading] | None:
    """None where it is no JSON: YAML's flow style begins with the same characters."""
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        twice.extend(sorted({key for key in keys if keys.count(key) > 1}))
        return dict(items)

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except ValueError:
        return None
    return [Reading(value, problems=[{"path": key, "message": "is given twice"} for key in twice])]


def _read_yaml(text: str, source: str) -> Iterator[Reading]:
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            reading = Reading(None)
            _note_places(node, reading, source)
            reading.value = loader.construct_document(node)
            if reading.value is not None:
                yield reading
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem: Problem = {"path": "", "message": f"not YAML: {error.problem or error.context}"}
        if mark is not None:
            problem["line"] = mark.line + 1
        raise invalid(source, [problem]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise invalid(source, [{"path": "", "message": f"not YAML: {str(error).splitlines()[0]}"}]) from None


def _note_places(root: yaml.Node, reading: Reading, source: str) -> None:
    """Fill `lines` and `problems`, and keep scalars under `_AS_WRITTEN` keys as text."""
    seen = 0
    waiting: list[tuple[yaml.Node, tuple[str | int, ...], bool]] = [(root, (), False)]
    while waiting:
        node, place, as_written = waiting.pop()
        seen += 1
        if seen > MAX_VALUES:
            raise invalid(source, [{"path": "", "message": f"it unfolds to more than {MAX_VALUES} values"}])
        if len(place) > MAX_DEPTH:
            raise invalid(source, [{"path": path_text(place[:3]), "message": "it is nested too deeply"}])
        reading.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode) and as_written and node.tag in _RETAGGED:
            node.tag = _TEXT
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend((item, (*place, index), as_written) for index, item in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            waiting.extend(_members(node, place, as_written, reading))


def _members(
    node: yaml.MappingNode, place: tuple[str | int, ...], as_written: bool, reading: Reading
) -> Iterator[tuple[yaml.Node, tuple[str | int, ...], bool]]:
    keys: set[str] = set()
    for key_node, value_node in node.value:
        key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
        inner = (*place, key)
        if key in keys and key != "<<":
            line = key_node.start_mark.line + 1
            reading.problems.append({"path": path_text(inner), "message": "is given twice", "line": line})
        keys.add(key)
        reading.lines[inner] = key_node.start_mark.line + 1
        yield value_node, inner, as_written or key in _AS_WRITTEN
        if as_written and isinstance(key_node, yaml.ScalarNode) and key_node.tag in _RETAGGED:
            key_node.tag = _TEXT
