"""The command line `dprelease`."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer

from dpcore.errors import PrivacyError
from flows.cli import (
    approvals,
    audits,
    budgets,
    histories,
    keys,
    landing,
    lineage,
    operations,
    plans,
    releases,
    serving,
    workspaces,
)
from flows.cli.output import REFUSED, leave, print_json
from flows.cli.site import site

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""The base of what a wrong command line raises; Typer does not export it by name."""

app = typer.Typer(
    name="dprelease",
    help="Differentially private releases of sensitive tables: planned, ledgered, audited.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("init")(workspaces.init)
app.add_typer(workspaces.spec_app, name="spec")
app.command("plan")(plans.plan)
app.command("run")(releases.run)
app.command("land")(landing.land)
app.add_typer(budgets.budget_app, name="budget")
app.command("history")(histories.history)
app.command("show")(histories.show)
app.command("check")(releases.check)
app.command("lineage")(lineage.lineage)
app.command("approve")(approvals.approve)
app.command("retract")(approvals.retract)
app.command("serve")(serving.serve)
app.command("worker")(serving.worker)
app.command("audit")(audits.audit)
app.command("site")(site)
app.add_typer(operations.ledger_app, name="ledger")
app.add_typer(keys.keys_app, name="keys")
app.command("backup")(operations.backup)
app.command("restore")(operations.restore)
app.command("mechanisms")(audits.mechanisms)


def _print_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        sys.stdout.write(f"dprelease {importlib.metadata.version('dprelease')}\n")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Differentially private releases of sensitive tables: planned, ledgered, audited."""


def _forget_cycles() -> None:
    """What is left goes with the process: looking for cycles in it takes a second or two.

    DuckDB would call what was not looked for a leak.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def _keep_others_from_writing() -> None:
    """Make no file or folder that another account can write to, in no process of ours, whatever the umask was.

    Whoever can write the specification names the cluster that raw rows are sent to.
    """
    os.umask(os.umask(0) | 0o022)


@functools.cache  # Typer would read the signatures of all commands anew for each command of a process
def _command() -> Callable[..., Any]:
    return typer.main.get_command(app)


def main() -> None:
    """Run a command; every error on purpose becomes an exit code and a sentence."""
    atexit.register(_forget_cycles)
    _keep_others_from_writing()
    as_json = "--json" in sys.argv[1:]
    try:
        _command()(standalone_mode=False)
        with suppress(BrokenPipeError):  # whoever read the output has seen enough
            sys.stdout.flush()
    except PrivacyError as error:
        leave(error, as_json=as_json)
    except UsageError as error:
        _explain_usage(error, as_json)
        raise SystemExit(REFUSED) from None
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except Exception as error:  # noqa: BLE001  the last boundary: a foreign error's text may hold data
        from tasks.workspace.redaction import own_error

        leave(own_error(error, "command"), as_json=as_json)


def _explain_usage(error: Any, as_json: bool) -> None:
    if as_json:
        hint = "see --help"
        print_json({"error": error.format_message(), "rule": "usage", "where": "command line", "hint": hint})
    else:
        error.show()
