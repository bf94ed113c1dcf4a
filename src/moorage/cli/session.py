"""What every command gets: the environment, how to print, the namespace, and a client made at first use.

`command` is the decorator that adds `--output` and `--namespace` and hands a `Session` over. Called by `commands/`.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from moorage.cli.failures import say
from moorage.cli.output import Table, legible, print_table, print_value
from moorage.cli.progress import Progress
from moorage.domain.errors import NotFound

if TYPE_CHECKING:
    from moorage.client import Client

F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """One invocation.

    Args:
        env: the environment.
        form: `table`, `json` or `yaml`.
        namespace: of the objects that are meant.
    """

    def __init__(self, env: Mapping[str, str], form: str, namespace: str) -> None:
        self.env = env
        self.form = form
        self.namespace = namespace
        self.patient = True
        """Whether the client bears a restart of this machine's control plane; set before its first use."""
        self.on_seen: Callable[[bool], None] | None = None
        """Told whether somebody may have seen a request that is not answered yet, while a command listens."""

    @cached_property
    def client(self) -> "Client":
        """The SDK's client, loaded now and not before."""
        with _httpx_without_its_command():
            from moorage.client import Client
            from moorage.client.patience import Patience

        patience = Patience(told=say, seen=self._seen) if self.patient else None
        return Client.from_environment(self.env, namespace=self.namespace, patience=patience)

    def _seen(self, maybe: bool) -> None:
        if self.on_seen is not None:
            self.on_seen(maybe)

    @property
    def human(self) -> bool:
        """Whether people read it."""
        return self.form == "table"

    def progress(self) -> Progress:
        """A waiting line on stderr, unless the output is for programs and stderr is not a terminal."""
        progress = Progress()
        progress.quiet = not self.human and not progress.live
        return progress

    def first_found(self, *reads: Callable[[], Any]) -> Any:
        """The first read that finds something: a NAME may mean a deployment, a run or a worker.

        Raises:
            NotFound: none did; it names every kind that was looked for.
        """
        missing: list[NotFound] = []
        for read in reads:
            try:
                return read()
            except NotFound as error:
                missing.append(error)
        raise _none_of(missing)

    def now(self) -> float:
        """For ages."""
        return time.time()

    def show(self, value: Any, table: Callable[[], Table]) -> None:
        """Print the value as it is for programs, or the table for people."""
        if self.human:
            print_table(table())
        else:
            print_value(value, self.form)

    def show_text(self, value: Any, text: Callable[[], str]) -> None:
        """As `show`, where people get sentences and not a table."""
        if self.human:
            click.echo(legible(text()))
        else:
            print_value(value, self.form)


@contextlib.contextmanager
def _httpx_without_its_command() -> Iterator[None]:
    """Tell httpx that its own command line is absent while it is loaded.

    Where Click, Rich and Pygments are installed, `import httpx` loads them all for a command that nobody calls here:
    a third of the time that `moor ls` takes. It is made to go without them.
    """
    name, modules = "httpx._main", cast(dict[str, Any], sys.modules)
    if name in modules:
        yield
        return
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--output` and `--namespace`, and pass a `Session` first."""

    def run(*, output: str, namespace: str, **given: Any) -> Any:
        return function(Session(click.get_current_context().obj, output, namespace), **given)

    run.__doc__ = function.__doc__
    run.__name__ = function.__name__
    # click's own decorators keep the options of what they wrap here until `click.command` collects them
    run.__dict__["__click_params__"] = getattr(function, "__click_params__", [])
    with_output = click.option(
        "--output",
        "-o",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        help="How to print; json and yaml are the API's objects exactly.",
    )
    with_namespace = click.option("--namespace", "-n", default="default", show_default=True, help="Which namespace.")
    return with_output(with_namespace(run))


def examples(*lines: str) -> str:
    """The epilog of a command."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\b\n" + "\n".join([title, *(f"  {line}" for line in lines)])


def finite(_ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Callback of options that are a number: no `nan`, which no range refuses, and nothing infinite, as `1e400` is."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} was given; it must be a finite number", param=param)
    return value


def duration(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of options such as `--timeout 15m`: seconds as a float."""
    if value is None:
        return None
    from moorage.domain.errors import InvalidSpec
    from moorage.domain.units import parse_duration

    try:
        return parse_duration(value)
    except InvalidSpec as wrong:
        raise click.BadParameter(f"{wrong.message}. {wrong.remedy or ''}", param=param) from wrong


def timeout_option(default: str | None) -> Callable[[F], F]:
    """`--timeout`, as a duration."""
    return click.option(
        "--timeout",
        "timeout_s",
        metavar="DURATION",
        default=default,
        show_default=default is not None,
        callback=duration,
        help="How long to wait, such as 90, 30s or 15m.",
    )


def _none_of(missing: list[NotFound]) -> NotFound:
    """One error for reads of several kinds that all found nothing of a name."""
    first = missing[0]
    kinds = [error.target.partition(" ")[0].lower() for error in missing if error.target]
    if len(set(kinds)) < 2:
        return first
    name = (first.target or "").partition(" ")[2]
    told = " or ".join(dict.fromkeys(kinds))
    return NotFound(f"there is no {told} {name}", remedy=first.remedy, target=first.target, code=first.code)
