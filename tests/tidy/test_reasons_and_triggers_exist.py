"""Reasons and triggers that the code writes literally are those of the catalogue and the tables.

`reason("code", ...)` and `step(row, State.X, "trigger", ...)` fail only when they are reached; this reads every such
call in the source, so that none waits for its first bad day.
"""

import ast
from collections.abc import Iterator

from tree import python_sources

from moorage.domain.catalogue import CATALOGUE
from moorage.domain.lifecycles import TABLES

BY_ENUM = {table.states.__name__: table for table in TABLES.values()}


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Each call of the source: where it is, the call, and the last part of the name that is called."""
    for source in python_sources():
        for node in source.nodes if source.under("src/moorage") else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                yield f"{source.path}:{node.lineno}", node, name


def text_of(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def problem_of_reason(call: ast.Call) -> str | None:
    code = text_of(call.args[0]) if call.args else None
    if code is None:
        return None
    if code not in CATALOGUE:
        return f"no code {code}"
    entry, given = CATALOGUE[code], {k.arg for k in call.keywords if k.arg}
    unknown = given - set(entry.params) - set(entry.optional)
    missing = set() if any(k.arg is None for k in call.keywords) else set(entry.params) - given
    return f"{code}: missing {sorted(missing)}, unknown {sorted(unknown)}" if missing or unknown else None


def problem_of_step(call: ast.Call) -> str | None:
    for target, word in zip(call.args, call.args[1:], strict=False):
        trigger = text_of(word)
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and trigger):
            continue
        table = BY_ENUM.get(target.value.id)
        if table is None:
            continue
        state = str(table.states[target.attr])
        if not any(str(r.target) == state and r.trigger == trigger for r in table.rows):
            return f"{table.noun} never becomes {state} on {trigger}"
    return None


def test_every_reason_written_in_the_code_is_in_the_catalogue_with_these_params() -> None:
    found = [(where, problem_of_reason(call)) for where, call, name in calls() if name == "reason"]
    assert found
    assert [f"{where}: {problem}" for where, problem in found if problem] == []


def test_every_trigger_written_in_the_code_is_in_the_table_of_its_noun() -> None:
    found = [(where, problem_of_step(call)) for where, call, name in calls() if name.lower() == "step"]
    assert found
    assert [f"{where}: {problem}" for where, problem in found if problem] == []


def test_a_wrong_reason_or_trigger_would_be_found() -> None:
    def call(text: str) -> ast.Call:
        node = ast.parse(text, mode="eval").body
        assert isinstance(node, ast.Call)
        return node

    assert problem_of_reason(call('reason("exit", code=1)'))
    assert problem_of_reason(call('reason("exited")'))
    assert problem_of_reason(call('reason("exited", code=1, why=2)'))
    assert problem_of_reason(call('reason("exited", **params)')) is None
    assert problem_of_step(call('draft.step(row, WorkerState.DOWN, "exited_zero", why)'))
    assert problem_of_step(call('draft.step(row, WorkerState.DOWN, "machine_lost", why)')) is None
