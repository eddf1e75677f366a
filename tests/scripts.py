"""The Lua files of the package, by the names under which they are called or included."""

from pathlib import Path

import rsmq_django.core

CORE = Path(rsmq_django.core.__file__).parent


def script_name(path: Path) -> str:
    """Return the name of a file: "queue/send" for queue/lua/send.lua, "parts/clock" for lua/parts/clock.lua."""
    folders = list(path.relative_to(CORE).with_suffix("").parts)
    folders.remove("lua")
    return "/".join(folders)


#: Every Lua file by its name.
FILES = {script_name(path): path for path in sorted(CORE.rglob("*.lua"))}
