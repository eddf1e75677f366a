"""`rsmqctl acl`: the rules of a server's user for one of the roles."""

from __future__ import annotations

import json

import click

from ..core.acl import ROLES, rules
from .options import RsmqctlCommand
from .session import Session

#: Releases of Redis that know different commands; the last one knows all.
RELEASES = ("6.2", "7.0", "7.2")


@click.command(cls=RsmqctlCommand)
@click.argument("role", type=click.Choice(sorted(ROLES)))
@click.option("--user", metavar="NAME", help="Name of the user (default: rsmq- and the role).")
@click.option(
    "-q", "--queue", "queues", metavar="QUEUE", multiple=True, help="Only messages of this queue; may be repeated."
)
@click.option("-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="Also this topic; may be repeated.")
@click.option(
    "--server-version",
    type=click.Choice(RELEASES),
    help="Leave out what this release of Redis does not know (default: nothing; for Redis 7.2 and newer, and Valkey).",
)
@click.pass_obj
def acl(
    session: Session,
    /,
    role: str,
    user: str | None,
    queues: tuple[str, ...],
    topics: tuple[str, ...],
    server_version: str | None,
) -> None:
    """Print the ACL SETUSER command of a role.

    It contains the keys of the namespace, the channels and the commands that the role needs. It connects to no
    server. An existing user keeps its passwords; a new one needs a password.
    """
    name = user or f"rsmq-{role}"
    major, minor = map(int, (server_version or RELEASES[-1]).split("."))
    groups = rules(
        role,
        namespace=session.client().namespace,
        queues=queues,
        topics=topics,
        server_version=(major, minor),
    )
    words = [word for group in groups for word in group]
    click.echo(json.dumps({"user": name, "rules": words}) if session.json else f"ACL SETUSER {name} {' '.join(words)}")
