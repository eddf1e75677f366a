"""Atomic and durable writes of files and directories.

Archived entries are deleted from Redis, so they must be on disk by then: the content of each file, and its name in each
directory above it. On file systems without fsync (some mounts of object stores), durability is up to the file system.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from pathlib import Path

#: Errors of file systems that do not support fsync.
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS})


def sync(path: Path) -> None:
    """Sync the content of a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Sync the whole content of a directory to disk. Concurrently removed files are skipped."""
    for path in [directory, *directory.rglob("*")]:
        try:
            sync(path)
        except FileNotFoundError:
            continue  # Spark removes old files of its checkpoint


def sync_names(directory: Path, *, top: Path) -> None:
    """Sync the names in a directory, and in the directories above it up to `top`, to disk."""
    while directory.is_relative_to(top):
        sync(directory)
        directory = directory.parent


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    fresh.write_bytes(content)
    sync(fresh)
    os.replace(fresh, path)
    sync(path.parent)


def replace_directory(fresh: Path, target: Path) -> None:
    """Replace a directory with another. After a crash between the two steps it is missing until the step runs again."""
    sync_tree(fresh)
    old = target.with_name(f".old-{target.name}-{uuid.uuid4().hex}")
    if target.exists():
        os.replace(target, old)
    os.replace(fresh, target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Remove a directory atomically for readers."""
    hidden = path.with_name(f".old-{path.name}-{uuid.uuid4().hex}")
    os.replace(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)
