"""What a worker needs of its machine beside room is read from its spec, and what is lacking keeps it off."""

from collections.abc import Mapping
from typing import Any

import pytest

from moorage.decide.scheduling.means import NONE, Means, means_refusals, suits
from moorage.domain.nouns import Machine

MOUNT = {"source": "/a", "target": "/b"}
CONFIG = {"path": "/etc/a", "content": ""}


def machine(*capabilities: str) -> Machine:
    return Machine(uid="mch-1", name="box", capabilities=capabilities)


@pytest.mark.parametrize(
    ("spec", "group", "needs"),
    [
        ({}, {"runtime": {"command": ["x"]}}, NONE),
        ({}, {"runtime": {"mounts": [MOUNT]}}, Means(("mounts",))),
        ({}, {"runtime": {"configs": [CONFIG]}}, Means(("mounts",))),
        ({}, {"model": {"source": "hf://org/name@main"}}, Means(("models",))),
        ({}, {"model": {"source": "/models/m.gguf"}}, Means()),
        ({}, {"runtime": {"runner": "podman", "mounts": [MOUNT], "configs": [CONFIG]}}, NONE),
        ({}, {"runtime": {}, "expose": [{"port": 9}, {"port": 8, "external": True}]}, Means((), (8, 9))),
        ({"outbound": {"allow": []}}, {}, Means(("outbound",))),
        ({"sandbox": True, "tool_gateway": True}, {}, Means(("sandbox", "tool_gateway"))),
        ({"outbound": None, "sandbox": False}, {}, NONE),
    ],
)
def test_needs_follow_from_the_spec(spec: Mapping[str, Any], group: Mapping[str, Any], needs: Means) -> None:
    assert Means.of(spec, group) == needs


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("mounts", "node.no_mounts"),
        ("models", "node.no_models"),
        ("outbound", "node.no_outbound"),
        ("sandbox", "node.no_sandbox"),
        ("tool_gateway", "node.no_tool_gateway"),
    ],
)
def test_a_machine_without_the_capability_refuses_with_its_reason(word: str, code: str) -> None:
    assert [r.code for r in means_refusals(Means((word,)), machine("logs"))] == [code]
    assert not suits(machine("logs"), Means((word,)))
    assert list(means_refusals(Means((word,)), machine(word))) == []
    assert suits(machine(word), Means((word,)))


def test_two_workers_with_the_same_port_are_kept_apart() -> None:
    assert [r.params["port"] for r in means_refusals(Means(ports=(80, 81)), machine(), taken=(81, 90))] == [81]


# Drives

KNOWN = {"size": 100, "site": "oslo", "machine": "mch-1", "machine_name": "box", "unusable": None}


def in_site(site: str | None, uid: str = "mch-2", free: int | None = 1000) -> Machine:
    data = None if free is None else {"path": "/d", "total_bytes": 1000, "free_bytes": free}
    return Machine(uid=uid, name="other", labels={"moorage/site": site} if site else {}, data=data)


@pytest.mark.parametrize(
    ("use", "there", "codes"),
    [
        ({}, in_site("oslo"), ["node.drive_missing"]),
        ({"drive": KNOWN}, in_site(None, uid="mch-1", free=None), []),
        ({"drive": KNOWN}, in_site("oslo"), ["node.drive_unusable"]),
        ({"drive": KNOWN, "place": True}, in_site("oslo"), []),
        ({"drive": KNOWN, "place": True}, in_site("bergen"), ["node.drive_elsewhere"]),
        ({"drive": {**KNOWN, "site": None}, "place": True}, in_site("bergen"), []),
        ({"drive": KNOWN, "place": True}, in_site("oslo", free=99), ["node.drive_no_room"]),
        ({"drive": KNOWN, "place": True}, in_site("oslo", free=None), ["place.data_location"]),
        (
            {"drive": {**KNOWN, "unusable": "its machine was removed"}, "place": True},
            in_site("oslo"),
            ["node.drive_unusable"],
        ),
    ],
)
def test_a_drive_keeps_work_off_machines_that_cannot_have_it(
    use: Mapping[str, Any], there: Machine, codes: list[str]
) -> None:
    needs = Means.of({"drives": [{"name": "data", "target": "/data", **use}]}, {})
    assert [r.code for r in means_refusals(needs, there)] == codes
    assert suits(there, needs) is (not codes)
