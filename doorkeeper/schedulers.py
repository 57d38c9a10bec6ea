"""``doorkeeper schedulers``: the policies there are, and whether one keeps the laws."""

from __future__ import annotations

import sys

import click

from doorkeeper.shared import refusing


@click.group(invoke_without_command=True)
@click.pass_context
def schedulers(context: click.Context) -> None:
    """List the schedulers, one line each."""
    if context.invoked_subcommand is not None:
        return
    from doorkeeper.catalogue import scheduler_lines

    for line in scheduler_lines():
        click.echo(line)


@schedulers.command()
@click.argument("name")
def check(name: str) -> None:
    """Put a policy (a name, or module:factory) to the laws that all must keep."""
    from schedulers import UnknownScheduler, find
    from schedulers.contract.conformance import check as violations_of

    # A researcher's own module lies where they work, not among the installed ones.
    sys.path.insert(0, "")
    with refusing(UnknownScheduler):
        violations = violations_of(find(name))
    for violation in violations:
        click.echo(str(violation))
    if violations:
        raise SystemExit(1)
    click.echo(f"{name} keeps the laws")
