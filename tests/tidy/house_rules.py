"""The house rules as functions over one file: what a reviewer would say, said at once and with the replacement named.

A rule takes a `Source` and yields findings. `test_house_rules.py` runs every rule over the whole tree, and over a
planted sample that it must refuse and one that it must let pass. Import rules live in `test_rooms.py`.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

ENVIRONMENT_READERS = {
    "src/moorage/app/settings.py": "the one room that knows the variables",
    "src/moorage/app/commands.py": "entry point: hands the environment to settings as a mapping",
    "src/moorage/agent/main.py": "entry point: what workers inherit is handed on as a mapping",
    "src/moorage/cli/main.py": "entry point: hands the environment on as a mapping",
    "src/moorage/client/environment.py": "entry point: where a program's client is without arguments, as a mapping",
    "src/moorage/runners/library/environment.py": "entry point: what a library's servers inherit from its program",
}
"""Files of src that may look at the process's environment, and why."""

WAITERS = ("until", "wait_until", "wait_for", "eventually", "poll")
"""Names (or beginnings of names) of test functions that may sleep: each waits for a condition with a deadline."""


@dataclass(frozen=True)
class Source:
    """One file: its path from the project's root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed module (Python files only)."""
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree, for those who ask about each node by itself."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def lines(self) -> list[str]:
        """The text by lines."""
        return self.text.splitlines()

    def under(self, *folders: str) -> bool:
        """Whether the file lies in one of these folders."""
        return any(self.path.startswith(folder.rstrip("/") + "/") for folder in folders)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault, and what to do instead."""

    line: int
    message: str


Rule = Callable[[Source], Iterator[Finding]]


def pure_rooms_only_compute(source: Source) -> Iterator[Finding]:
    """`domain` and `decide` take values and return values."""
    if not source.under("src/moorage/domain", "src/moorage/decide"):
        return
    for node in source.nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield Finding(node.lineno, "no async here: return a decision and let control, agent or gateway act on it")
        elif isinstance(node, ast.Call) and (instead := _impure(_dotted(node.func))):
            yield Finding(node.lineno, f"`{_dotted(node.func)}` in a pure room: {instead}")


def _impure(name: str) -> str | None:
    """What to do instead of calling this from a pure room; None when the call is fine."""
    root, _, rest = name.partition(".")
    if root == "time" or (name.endswith((".now", ".utcnow", ".today")) and "date" in name):
        return "take `now` as an argument (seconds since the epoch)"
    if root in {"random", "secrets", "uuid"}:
        return "take the identity or the draw as an argument"
    if root == "os" or (root == "logging" and rest) or name in {"print", "open", "input"}:
        return "report it as a value; the shell reads, logs and prints"
    return None


def no_swallowed_errors(source: Source) -> Iterator[Finding]:
    """Every handler names what it expects and does something about it."""
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield Finding(node.lineno, "bare `except:`: name the errors that are expected here")
            elif _is_broad(node.type) and _does_nothing(node.body):
                yield Finding(node.lineno, "every error is swallowed: name the expected one, or report it and go on")
        elif isinstance(node, ast.Call) and _dotted(node.func).endswith("suppress") and any(map(_is_broad, node.args)):
            yield Finding(node.lineno, "every error is suppressed: name the expected one")


def _is_broad(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return any(_is_broad(one) for one in node.elts)
    return _dotted(node) in {"Exception", "BaseException"}


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass | ast.Continue)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def tests_wait_for_conditions(source: Source) -> Iterator[Finding]:
    """A sleep in a test is either too short or too long."""
    if not source.under("tests") or source.under("tests/servers", "tests/tidy"):
        return
    yield from _sleeps(source.tree, within_waiter=False)


def _sleeps(node: ast.AST, within_waiter: bool) -> Iterator[Finding]:
    for child in ast.iter_child_nodes(node):
        inside = within_waiter
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            # `sleep` itself: a clock that the test injects
            inside = child.name == "sleep" or child.name.lstrip("_").startswith(WAITERS)
        if isinstance(child, ast.Call) and not inside and _dotted(child.func) in _SLEEPS and not _only_yields(child):
            yield Finding(
                child.lineno,
                f"`{_dotted(child.func)}` in a test: wait for the condition with a bounded deadline, in a function "
                f"named {', '.join(WAITERS)} …; or inject the clock",
            )
        yield from _sleeps(child, inside)


_SLEEPS = {"time.sleep", "asyncio.sleep", "anyio.sleep", "sleep"}


def _only_yields(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def files_and_functions_stay_small(source: Source) -> Iterator[Finding]:
    """What does not fit on a few screens is two things."""
    if not source.under("src", "tools", "benchmarks"):
        return
    if len(source.lines) > FILE_LINES_MAX:
        yield Finding(FILE_LINES_MAX, f"{len(source.lines)} lines, at most {FILE_LINES_MAX}: split it by subject")
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield Finding(
                    node.lineno, f"`{node.name}` has {lines} lines, at most {FUNCTION_LINES_MAX}: name its steps"
                )


def modules_say_what_lives_in_them(source: Source) -> Iterator[Finding]:
    """A module opens with what lives here, what must not, and who calls it."""
    if source.under("src", "tools", "benchmarks") and not ast.get_docstring(source.tree):
        yield Finding(1, "no module docstring: say what lives here, what must not, and who calls it")


VAGUE = {"util", "utils", "helper", "helpers", "common", "misc", "shared", "stuff"}


def rooms_have_names(source: Source) -> Iterator[Finding]:
    """A newcomer finds things by name."""
    for part in PurePosixPath(source.path).with_suffix("").parts:
        if part.removeprefix("_") in VAGUE or part in {f"test_{word}" for word in VAGUE}:
            yield Finding(1, f"`{part}` names nothing: call it after what lives in it")


def only_settings_read_the_environment(source: Source) -> Iterator[Finding]:
    """Everybody else gets values."""
    if not source.under("src") or source.path in ENVIRONMENT_READERS:
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute | ast.Name) and _dotted(node) in {"os.environ", "os.getenv", "os.environb"}:
            yield Finding(node.lineno, f"`{_dotted(node)}`: add the setting to app/settings.py and take its value")
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            for name in node.names:
                if name.name in {"environ", "getenv", "environb"}:
                    yield Finding(node.lineno, f"`from os import {name.name}`: take the value from app/settings.py")


_NOQA = re.compile(r"#\s*noqa\b(?P<codes>:\s*[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)?(?P<why>.*)")
_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<codes>\[[a-z0-9, -]+\])?(?P<why>.*)")
_WORDS = re.compile(r"\w{2,}.*\w{2,}")


def suppressions_give_their_reason(source: Source) -> Iterator[Finding]:
    """A rule is set aside for one named code and for a reason that the next reader can weigh."""
    for number, line in enumerate(source.lines, 1):
        for form, pattern in (("noqa: CODE", _NOQA), ("type: ignore[code]", _IGNORE)):
            found = pattern.search(line)
            if found is None or _in_text(line, found.start()):
                continue
            if not found["codes"]:
                yield Finding(number, f"name what is set aside: `# {form}`")
            elif source.under("src", "tools") and not _WORDS.search(found["why"]):
                yield Finding(number, f"say why: `# {form}  # the reason`")


def _in_text(line: str, at: int) -> bool:
    """Whether the column lies within a string or a quoted example (an odd number of quotes before it)."""
    return any(line[:at].count(quote) % 2 for quote in "\"'`")


_TRACES = re.compile(
    r"\bAI[- ](?:generated|written|assisted)|(?:generated|written) by an? AI\b|\bas an AI\b"
    r"|co-authored-"
    r"by:|(?<![\w.~-])/wor"
    r"k/(?:main|shared)\b|\bshared/"
    r"tools\b|bare-"
    r"debian\.sh",
    re.IGNORECASE,
)


def the_project_speaks_of_itself_only(source: Source) -> Iterator[Finding]:
    """Nothing names the place or the manner in which it was written."""
    for number, line in enumerate(source.lines, 1):
        if found := _TRACES.search(line):
            yield Finding(number, f"`{found[0]}` means nothing to a reader of this project: leave it out")


def _dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or an attribute chain; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


PYTHON_RULES: tuple[Rule, ...] = (
    pure_rooms_only_compute,
    no_swallowed_errors,
    tests_wait_for_conditions,
    files_and_functions_stay_small,
    modules_say_what_lives_in_them,
    rooms_have_names,
    only_settings_read_the_environment,
    suppressions_give_their_reason,
)
TEXT_RULES: tuple[Rule, ...] = (the_project_speaks_of_itself_only,)
