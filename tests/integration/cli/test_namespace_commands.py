"""Commands about namespaces and quotas against an API of canned answers: what is sent, what is shown."""

from collections.abc import Iterator
from typing import Any

import pytest
from stub_api import OBJECT, StubApi

from moorage.cli.main import main


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


def quota(name: str, limits: dict[str, Any], **used: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("gpus", "cpu", "memory", "runs", "deployments", "replicas"), 0)
    return {"kind": "Quota", "id": f"ns-{name}", **OBJECT, "name": name, "limits": limits, "used": {**nothing, **used}}


def test_a_namespace_is_set_with_its_pool(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    made = {
        "kind": "Namespace",
        "name": "r",
        "machines": {"pool": "r"},
        "description": "d",
        "keys": "optional",
        **OBJECT,
    }
    api.answers["PUT /namespaces/r"] = (200, made)
    assert main(["namespaces", "set", "r", "--machines", "pool=r", "--description", "d"], api.env) == 0
    assert api.sent("PUT")[-1]["body"] == {"machines": {"pool": "r"}, "description": "d"}
    assert "may use pool=r machines" in capsys.readouterr().out
    api.answers["GET /namespaces"] = (200, {"items": [made], "next": None})
    assert main(["namespaces", "ls"], api.env) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["r", "pool=r", "optional", "d"]
    assert main(["namespaces", "set", "r", "--keys", "required"], api.env) == 0
    assert api.sent("PUT")[-1]["body"] == {"machines": {}, "description": "", "keys": "required"}
    assert main(["namespaces", "set", "r", "--machines", "pool"], api.env) == 2
    assert "KEY=VALUE" in capsys.readouterr().err


def test_setting_one_limit_leaves_the_others_as_they_are(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    before = {"gpus": 4, "gpu_models": {"H100": 2, "A100": 1}, "memory": 1 << 30}
    api.answers["GET /quotas/r"] = (200, quota("r", before, gpus=3, gpu_models={"H100": 2}))
    api.answers["PUT /quotas/r"] = (200, quota("r", {**before, "gpus": 8}, gpus=3))
    command = ["quota", "set", "r", "--gpus", "8", "--gpu-model", "H100=6", "--cpu", "500m", "--unlimited", "memory"]
    assert main([*command, "--unlimited", "gpu_models.A100"], api.env) == 0
    assert api.sent("PUT")[-1]["body"] == {"limits": {"gpus": 8, "cpu": "500m", "gpu_models": {"H100": 6}}}
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gpus", "3", "8"] in shown
    assert ["memory", "0", "1.0", "GiB"] in shown
    assert ["runs", "0", "unlimited"] in shown
    assert main(["quota", "set", "r", "--unlimited", "runs"], api.env) == 2
    assert "runs has no limit" in capsys.readouterr().err


def test_quotas_show_use_beside_limits(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    items = [quota("default", {}), quota("r", {"gpus": 8, "gpu_models": {"H100": 4}}, gpus=2, gpu_models={"A100": 2})]
    api.answers["GET /quotas"] = (200, {"items": items, "next": None})
    assert main(["quota", "ls"], api.env) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines[0] == ["default", "0", "0", "0", "0", "0", "0", "-"]
    assert lines[1] == ["r", "2/8", "0", "0", "0", "0", "0", "A100", "2,", "H100", "0/4"]
    assert main(["quota", "rm", "r"], api.env) != 0, "the API knows no quota of that name"


def test_limits_of_requests_and_tokens_are_listed_once_somebody_has_one(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [quota("default", {}), quota("r", {"requests_per_minute": 600})]
    api.answers["GET /quotas"] = (200, {"items": items, "next": None})
    assert main(["quota", "ls"], api.env) == 0
    head, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert "TOKENS/MIN" not in head
    column = head.index("REQUESTS/MIN")
    assert [line[column] for line in lines] == ["-", "600"]
    api.answers["GET /quotas/r"] = (200, items[1])
    assert main(["quota", "get", "r"], api.env) == 0
    assert ["requests_per_minute", "-", "600"] in [line.split() for line in capsys.readouterr().out.splitlines()]
