"""What the `moor` command starts for everything that needs settings or processes, one module call a command.

    python -m moorage.app.commands NAME OPTIONS_AS_JSON

NAME is up, down, config, status, server, agent, gateway or join. The environment is read here, once, and handed on as a
mapping. Called by `moorage.cli.commands.parts`.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moorage.app import disk, joining
from moorage.app.accelerated import used_by
from moorage.app.differing import TAKE_UP, Difference
from moorage.app.home import Home, part_configs, write_client, write_private
from moorage.app.processes import PRIVATE_UMASK
from moorage.app.settings import Settings, load, mistyped
from moorage.cli.failures import guarded
from moorage.cli.output import print_value
from moorage.cli.progress import Progress
from moorage.domain.errors import Conflict, InvalidSpec
from moorage.gateway import holding

Options = Mapping[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Entry of the process."""
    name, options = (argv or sys.argv[1:])[0], json.loads((argv or sys.argv[1:])[1])
    return guarded(lambda: _COMMANDS[name](options, dict(os.environ)))


def _settings(options: Options, env: Mapping[str, str]) -> Settings:
    flags: dict[str, Any] = {}
    plain = load(env)
    if options.get("port"):
        flags["api"] = f"{plain.api.host}:{options['port']}"
    if options.get("gateway_port"):
        flags["gateway"] = f"{plain.gateway.host}:{options['gateway_port']}"
    settings = load(env, flags)
    if settings.machine_heartbeat_s >= settings.machine_ttl_s:
        raise InvalidSpec(
            f"MOORAGE_MACHINE_HEARTBEAT_S ({settings.machine_heartbeat_s:g}) is not less than "
            f"MOORAGE_MACHINE_TTL_S ({settings.machine_ttl_s:g}): every machine's lease would run out",
            remedy="a heartbeat of a third of the TTL is usual",
        )
    return settings


def _warn(env: Mapping[str, str]) -> None:
    """Tell what in the environment looks like a setting and is none."""
    for line in mistyped(env):
        print(f"warning: {line}", file=sys.stderr, flush=True)


def _up(options: Options, env: Mapping[str, str]) -> int:
    from moorage.app.up import up

    _warn(env)
    settings, as_json = _settings(options, env), options.get("output") == "json"
    home = Home(settings.home)
    home.require_folder_of(settings.gateway_access_log)
    done = up(home, settings, Progress(quiet=as_json), timeout_s=options["timeout_s"])
    if as_json:
        print(
            json.dumps(
                {
                    "already": done.already,
                    "url": done.url,
                    "gateway_url": done.gateway_url,
                    "home": str(home.root),
                    "remembered_addresses": settings.remembered,
                    "differing_settings": [each.to_wire() for each in done.differs],
                    "taken_up": done.taken_up,
                }
            )
        )
    else:
        print("already up" if done.already else "up")
        print(f"  control API  {done.url}")
        print(f"  gateway      {done.gateway_url}/v1")
        print(f"  state        {home.root}")
        if settings.remembered:
            print("addresses are those of the last time; --port and --gateway-port name others")
        _tell_differing(done.differs, taken_up=done.taken_up)
        if (used := used_by(home)).unused:
            print(used.line())
        print("try:  moor serve --help   or   moor demo")
    if options.get("foreground"):
        return _stay(home)
    return 0


def _tell_differing(differs: Sequence[Difference], *, taken_up: bool) -> None:
    """What of the settings is not as it was the last time, and what to do about it."""
    if not differs:
        return
    if taken_up:
        print("started with other settings than the last time, those of this shell and of config.toml:")
    else:
        print("what runs goes on with its own settings, which differ from those of this shell and of config.toml:")
    for each in differs:
        was, now = ("it had", "has") if taken_up else ("runs with", "now")
        print(f"  {each.name}  {was} {each.runs}, {now} {each.now}")
    if not taken_up:
        for how in dict.fromkeys(TAKE_UP[each.part] for each in differs):
            parts = " and ".join(dict.fromkeys(each.part for each in differs if TAKE_UP[each.part] == how))
            print(f"to have the {parts} take up those of now: {how}")


def _stay(home: Home) -> int:
    """Remain until Ctrl-C or a stop signal, then take everything down."""
    import signal

    from moorage.app import processes
    from moorage.app.up import down, running_supervisor

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
    print("Ctrl-C stops it", flush=True)
    try:
        running = running_supervisor(home)
        while running is not None and not processes.wait_gone(running, 3600.0):
            continue
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave it half stopped
        down(home, Progress(), keep=False)
        print("down")
    return 0


def _down(options: Options, env: Mapping[str, str]) -> int:
    from moorage.app.up import down

    settings, as_json = load(env), options.get("output") == "json"
    did = down(Home(settings.home), Progress(quiet=as_json), keep=options["keep"])
    if as_json:
        print(json.dumps({"already": not did, "kept": bool(options["keep"] and did)}))
    else:
        words = "down; model servers live on, `moor up` adopts them" if options["keep"] else "down"
        print(words if did else "already down")
    return 0


def _config(options: Options, env: Mapping[str, str]) -> int:
    from moorage.app.differing import differing
    from moorage.app.showing import effective

    _warn(env)
    settings = load(env)
    runs = {each.name: each.runs for each in differing(Home(settings.home), settings)}
    rows = effective(settings, env)
    print(json.dumps([row | ({"runs": runs[row["name"]]} if row["name"] in runs else {}) for row in rows]))
    return 0


def _status(options: Options, env: Mapping[str, str]) -> int:
    """How the parts of this machine stand; asks none of them."""
    from moorage.app.standing import standing, words

    told, form = standing(Home(load(env).home)), options.get("output")
    if form == "table":
        print(words(told, time.time()))
    else:
        print_value(told, str(form))
    return 0


def _part(name: str, options: Options, env: Mapping[str, str]) -> int:
    """Become one part, in the foreground, with the settings of this home.

    Agent and gateway belong to the control plane of MOORAGE_URL, under MOORAGE_TOKEN where it is set.
    """
    settings = _settings(options, env)
    home = Home(settings.home)
    home.make()
    if name == "gateway":
        home.require_folder_of(settings.gateway_access_log)
        holding.require_free(home.gateway_state)  # before the settings of the one that runs are overwritten
    config = part_configs(home, settings, settings.url)[name]
    if name == "gateway" and not settings.gateway_own["gateway_advertise"]:
        config["advertise"] = joining.reached_from(settings.url, settings.gateway_url)
    if name != "server" and settings.token:
        config["token"] = settings.token
    joined = joining.remembered(home) if name == "agent" and settings.sources["url"] == "default" else None
    if joined is not None:
        config = joined.on(config)
    return _become(home, settings, name, config)


def _gateway(options: Options, env: Mapping[str, str]) -> int:
    """Be the gateway, or have the running one reload, or print how systemd runs it."""
    _warn(env)
    if options.get("service"):
        from moorage.app.service import gateway_unit

        settings = _settings(options, env)
        print(gateway_unit(env, settings), end="")
        return 0
    if not options.get("reload"):
        return _part("gateway", options, env)
    from moorage.app.reloading import reload

    settings, as_json = _settings(options, env), options.get("output") == "json"
    home, progress = Home(settings.home), Progress(quiet=as_json)
    home.require_folder_of(settings.gateway_access_log)
    try:
        done = reload(home, settings, progress)
    finally:
        progress.clear()
    if as_json:
        told = {"url": done.url, "processes": done.processes}
        used = done.accelerated
        print(json.dumps(told | {"accelerators": used.parts, "accelerators_unused": used.unused}))
        return 0
    print(f"reloaded: {done.processes} new process{'es' if done.processes != 1 else ''} at {done.url}")
    print(done.accelerated.line())
    return 0


def _join(options: Options, env: Mapping[str, str]) -> int:
    """Join another control plane from this home, and become its agent, in the foreground."""
    from moorage.app.up import running_supervisor

    settings = _settings(options, env)
    home = Home(settings.home)
    token = options.get("token") or settings.token
    if not token:
        raise InvalidSpec("joining needs a token", remedy="make one there: moor machines join-token")
    if home.root.exists() and running_supervisor(home) is not None:
        raise Conflict(
            f"`moor up` runs from {home.root}: its machine belongs to its own control plane",
            remedy="run `moor down` first, or set MOORAGE_HOME to another folder (and MOORAGE_AGENT_PORTS to others)",
        )
    joined = joining.look(options["url"], token, name=options.get("name"), host=options.get("host"))
    home.make()
    with disk.told_when_full(home.root):
        joining.remember(home, joined)
    config = joined.on(part_configs(home, settings, joined.url)["agent"]) | {"token": token}
    print(f"joining {joined.url} as {joined.name} (reached at {joined.host}); state in {home.root}", file=sys.stderr)
    print("Ctrl-C stops it and what it runs; `moor agent` starts it again", file=sys.stderr, flush=True)
    return _become(home, settings, "agent", config)


def _become(home: Home, settings: Settings, name: str, config: Mapping[str, Any]) -> int:
    """Write a part's configuration and be it."""
    with disk.told_when_full(home.root):
        write_private(home.config(name), json.dumps(config, indent=1) + "\n")
        if name == "server":
            write_client(home, settings)
    command = home.command(name)
    if name != "agent":  # whose umask its model servers inherit
        os.umask(PRIVATE_UMASK)
    os.execv(command[0], command)


_COMMANDS: Mapping[str, Callable[[Options, Mapping[str, str]], int]] = {
    "up": _up,
    "down": _down,
    "config": _config,
    "status": _status,
    "server": lambda options, env: _part("server", options, env),
    "agent": lambda options, env: _part("agent", options, env),
    "gateway": _gateway,
    "join": _join,
}

if __name__ == "__main__":
    sys.exit(main())
