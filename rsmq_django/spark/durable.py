"""Files and directories that are there whole or not at all, and stay there when the power fails.

Redis lets go of what was archived, so that must be on the disk by then: the content of each file, and its name in each
directory above it. Where a file system knows no fsync (some mounts of object stores), this is what it promises itself.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from pathlib import Path

#: What file systems say that have nothing to bring to a disk.
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS})


def sync(path: Path) -> None:
    """Bring to the disk the content of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Bring to the disk all that is in a directory. What others remove meanwhile is passed over."""
    for path in [directory, *directory.rglob("*")]:
        try:
            sync(path)
        except FileNotFoundError:
            continue  # Spark removes old notes of its checkpoint


def sync_names(directory: Path, *, top: Path) -> None:
    """Bring to the disk the names in a directory, and those of the directories above it up to `top`."""
    while directory.is_relative_to(top):
        sync(directory)
        directory = directory.parent


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, whatever dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    fresh.write_bytes(content)
    sync(fresh)
    os.replace(fresh, path)
    sync(path.parent)


def replace_directory(fresh: Path, target: Path) -> None:
    """Put a directory in the place of another. A crash between the two steps leaves none: the step is run again."""
    sync_tree(fresh)
    old = target.with_name(f".old-{target.name}-{uuid.uuid4().hex}")
    if target.exists():
        os.replace(target, old)
    os.replace(fresh, target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Remove a directory; readers see it whole or not at all."""
    hidden = path.with_name(f".old-{path.name}-{uuid.uuid4().hex}")
    os.replace(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)
