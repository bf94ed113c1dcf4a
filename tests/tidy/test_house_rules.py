"""Every house rule holds of the whole tree, refuses its planted sample, and lets a sound one pass."""

import pytest
from house_rules import FILE_LINES_MAX, PYTHON_RULES, TEXT_RULES, Rule, Source
from tree import python_sources, sources

LONG_FUNCTION = '"""M."""\n\n\ndef f():\n' + "    x = 1\n" * 61
SLEEP = "import time\n\n\ndef {name}():\n    time.sleep(0.5)\n"

# rule -> (path, text) that it must refuse
PLANTED: dict[str, list[tuple[str, str]]] = {
    "pure_rooms_only_compute": [
        ("src/moorage/domain/x.py", "async def f():\n    pass\n"),
        ("src/moorage/decide/x.py", "async def f(c):\n    await c\n"),
        ("src/moorage/decide/x.py", "import time\nnow = time.time()\n"),
        ("src/moorage/domain/x.py", "import datetime\nnow = datetime.datetime.now()\n"),
        ("src/moorage/domain/x.py", "from datetime import datetime\nnow = datetime.now()\n"),
        ("src/moorage/decide/x.py", "import random\ndraw = random.random()\n"),
        ("src/moorage/decide/x.py", "import uuid\nname = uuid.uuid4()\n"),
        ("src/moorage/decide/x.py", "import logging\nlogging.info('placed')\n"),
        ("src/moorage/domain/x.py", "print('placed')\n"),
    ],
    "no_swallowed_errors": [
        ("src/moorage/agent/x.py", "try:\n    f()\nexcept:\n    g()\n"),
        ("src/moorage/agent/x.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
        ("tests/unit/x.py", "try:\n    f()\nexcept (ValueError, BaseException):\n    ...\n"),
        ("src/moorage/agent/x.py", "import contextlib\nwith contextlib.suppress(Exception):\n    f()\n"),
    ],
    "tests_wait_for_conditions": [
        ("tests/unit/test_x.py", SLEEP.format(name="test_it_comes_back")),
        ("tests/unit/test_x.py", "import asyncio\n\n\nasync def test_x():\n    await asyncio.sleep(1)\n"),
        ("tests/unit/test_x.py", "import time\n\n\ndef until():\n    def g():\n        time.sleep(1)\n"),
    ],
    "files_and_functions_stay_small": [
        ("src/moorage/agent/x.py", '"""M."""\n' + "x = 1\n" * FILE_LINES_MAX),
        ("src/moorage/agent/x.py", LONG_FUNCTION),
    ],
    "modules_say_what_lives_in_them": [("src/moorage/agent/x.py", "x = 1\n"), ("tools/x.py", "# a comment\n")],
    "rooms_have_names": [
        ("src/moorage/agent/utils.py", ""),
        ("src/moorage/common/x.py", ""),
        ("tests/helpers.py", ""),
        ("tests/unit/test_helpers.py", ""),
    ],
    "only_settings_read_the_environment": [
        ("src/moorage/agent/x.py", "import os\nhome = os.environ['HOME']\n"),
        ("src/moorage/agent/x.py", "import os\nhome = os.getenv('HOME')\n"),
        ("src/moorage/agent/x.py", "from os import environ\n"),
    ],
    "suppressions_give_their_reason": [
        ("src/moorage/agent/x.py", "x = 1  # noqa\n"),
        ("src/moorage/agent/x.py", "x = 1  # noqa: E501\n"),
        ("src/moorage/agent/x.py", "x = f()  # type: ignore\n"),
        ("src/moorage/agent/x.py", "x = f()  # type: ignore[arg-type]\n"),
        ("tests/unit/test_x.py", "x = f()  # type: ignore\n"),
    ],
    "the_project_speaks_of_itself_only": [
        ("docs/x.md", "This page was AI-" + "generated.\n"),
        ("README.md", "See /work/" + "shared/DESIGN.md\n"),
        ("CONTRIBUTING.md", "run bare-" + "debian.sh\n"),
        ("CHANGELOG.md", "Co-Authored-" + "By: somebody\n"),
    ],
}

# rule -> (path, text) that it must let pass
SOUND: dict[str, list[tuple[str, str]]] = {
    "pure_rooms_only_compute": [
        ("src/moorage/decide/x.py", "def f(now, timeout_s):\n    return now + timeout_s\n"),
        ("src/moorage/control/x.py", "import time\nnow = time.time()\n"),
    ],
    "no_swallowed_errors": [
        ("src/moorage/agent/x.py", "try:\n    f()\nexcept FileNotFoundError:\n    pass\n"),
        ("src/moorage/agent/x.py", "try:\n    f()\nexcept Exception as problem:\n    report(problem)\n"),
    ],
    "tests_wait_for_conditions": [
        ("tests/unit/test_x.py", SLEEP.format(name="wait_until_gone")),
        ("tests/unit/test_x.py", "import asyncio\n\n\nasync def test_x():\n    await asyncio.sleep(0)\n"),
        ("src/moorage/agent/x.py", SLEEP.format(name="f")),
    ],
    "files_and_functions_stay_small": [("src/moorage/agent/x.py", '"""M."""\n' + "x = 1\n" * (FILE_LINES_MAX - 1))],
    "modules_say_what_lives_in_them": [("src/moorage/agent/x.py", '"""Counts."""\n')],
    "rooms_have_names": [("src/moorage/agent/ledger.py", ""), ("src/moorage/decide/sharing.py", "")],
    "only_settings_read_the_environment": [
        ("src/moorage/agent/x.py", "def f(env):\n    return env['HOME']\n"),
        ("src/moorage/app/settings.py", "import os\nhome = os.environ['HOME']\n"),
    ],
    "suppressions_give_their_reason": [
        ("src/moorage/agent/x.py", "x = 1  # noqa: E501 - the address must stay whole\n"),
        ("src/moorage/agent/x.py", "x = f()  # type: ignore[arg-type]  # the stub is older than the library\n"),
        ("src/moorage/agent/x.py", '"""Write `# noqa: E501` with a reason."""\n'),
    ],
    "the_project_speaks_of_itself_only": [("docs/x.md", "The role `assistant` of the chat API; /workers/{id}\n")],
}

RULES = (*PYTHON_RULES, *TEXT_RULES)


def _by_name(rule: Rule) -> str:
    return rule.__name__


@pytest.mark.parametrize("rule", RULES, ids=_by_name)
def test_the_tree_keeps_the_rule(rule: Rule) -> None:
    files = sources() if rule in TEXT_RULES else python_sources()
    faults = [f"{file.path}:{found.line}: {found.message}" for file in files for found in rule(file)]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("rule", RULES, ids=_by_name)
def test_the_rule_refuses_what_was_planted(rule: Rule) -> None:
    missed = [(path, text) for path, text in PLANTED[rule.__name__] if not list(rule(Source(path, text)))]
    assert not missed


@pytest.mark.parametrize("rule", RULES, ids=_by_name)
def test_the_rule_lets_sound_code_pass(rule: Rule) -> None:
    refused = [(path, list(rule(Source(path, text)))) for path, text in SOUND[rule.__name__]]
    assert all(not found for _, found in refused), refused


def test_the_tree_that_is_searched_is_the_whole_one() -> None:
    paths = {source.path for source in python_sources()}
    assert {"src/moorage/domain/transitions.py", "tools/bootstrap.py", "tests/tidy/test_house_rules.py"} <= paths
    assert len(paths) > 50
