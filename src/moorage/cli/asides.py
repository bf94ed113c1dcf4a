"""Replicas that are ready and that gateways put aside for what they met there, in words.

Called by `why`, which tells each gateway's, and by the tables of `status`, which have a column and a line for all.
"""

from collections.abc import Iterable, Mapping
from typing import Any

_WHY = {
    "unreachable": "it cannot be reached",
    "bad_answers": "it answers badly",
    "another_model": "another model answers at its address",
}
_ANSWERED = {"reset": "no answer", "timeout": "no answer in time", "cut": "an answer that broke off"}
"""and statuses as they are"""


def lines(replicas: Iterable[Mapping[str, Any]]) -> list[str]:
    """One for each replica and gateway, of those that are kept in use though they answer badly too."""
    return [_line(each) for each in replicas]


def routed(replica: Mapping[str, Any]) -> str:
    """Whether requests reach it: `yes`, `no`, `aside` where no gateway sends it any, `partly` where some do not."""
    aside = replica.get("put_aside")
    if not replica.get("routed") or not aside:
        return "yes" if replica.get("routed") else "no"
    return "aside" if len(aside["by"]) == aside["gateways"] else "partly"


def briefly(replica: Mapping[str, Any]) -> str:
    """Why gateways send nothing to one that is routed; empty where all do."""
    aside = replica.get("put_aside")
    if not replica.get("routed") or not aside:
        return ""
    by, gateways = aside["by"], aside["gateways"]
    who = (
        "the gateway"
        if gateways == 1
        else "every gateway"
        if len(by) == gateways
        else f"{len(by)} of {gateways} gateways"
    )
    return f"put aside by {who}: {_why(by[0])}"


def _line(each: Mapping[str, Any]) -> str:
    if each["why"] == "kept_bad":
        kept = "it is the only one" if each.get("of") == 1 else "half of the replicas must stay"
        return f"replica {each['replica']} {_bad(each)} (gateway {each['gateway']}); kept in use because {kept}"
    tried_in_s = each["tried_in_s"]
    again = (
        "until the next routing table names it"
        if tried_in_s is None
        else f"tried again in {tried_in_s:.1f} s"
        if tried_in_s
        else "tried again by the next request"
    )
    return f"replica {each['replica']} is put aside by gateway {each['gateway']}: {_why(each)}; {again}"


def _why(each: Mapping[str, Any]) -> str:
    if each["why"] == "bad_answers" and each.get("bad"):
        return f"it {_bad(each)}"
    return str(_WHY.get(each["why"], each["why"]))


def _bad(each: Mapping[str, Any]) -> str:
    """How often it answered badly, and how the last time."""
    count, answered = each.get("bad") or 0, each.get("answered")
    times = f"{count} time{'' if count == 1 else 's'} in a row" if count else "in a row"
    return f"answered badly {times}{f', last with {_ANSWERED.get(answered, answered)}' if answered else ''}"
