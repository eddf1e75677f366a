"""Write the rules of each role into docs/how-to/acl.md, from the scripts and commands of the package.

Usage: python -m tools.acl_page
"""

from __future__ import annotations

import re
from pathlib import Path

from rsmq_django.core.acl import ROLES, rules

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "acl.md"
WIDTH = 118
_SECTION = re.compile(r"(?<=<!-- roles -->\n).*(?=<!-- end of roles -->)", re.DOTALL)


def section() -> str:
    """Return the part of the page about the roles."""
    lines = []
    for role, about in ROLES.items():
        lines += ["", f"### {role}", "", f"For {about.purpose}.", "", "```text", *command(role), "```"]
    return "\n".join([*lines, "", ""])


def command(role: str) -> list[str]:
    """Return the command of a role for the default namespace in lines; those after the first have the commands."""
    start, keys, channels, commands = rules(role)
    lines = [f"ACL SETUSER rsmq-{role} {' '.join((*start, *keys, *channels))}"]
    line = " "
    for word in commands:
        if len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = " "
        line += f" {word}"
    return [*lines, line]


def page() -> str:
    """Return the page with the section as it has to be."""
    return _SECTION.sub(lambda _: section(), PAGE.read_text("utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
