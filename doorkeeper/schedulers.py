"""``doorkeeper schedulers``: list the policies, or check one against the laws."""

from __future__ import annotations

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
    from schedulers.contract.policy_guard import place_of

    with refusing(UnknownScheduler):
        policy = find(name)
    violations = violations_of(policy)
    for violation in violations:
        click.echo(str(violation))
    if violations:
        click.echo(f"{name} ({place_of(policy)}) breaks {len(violations)} laws")
        raise SystemExit(1)
    click.echo(f"{name} keeps the laws")
