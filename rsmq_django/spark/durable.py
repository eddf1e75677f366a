"""Bringing files and the names in directories to the disk.

Archived entries are deleted from Redis, so they must be on disk by then. On file systems without fsync (some mounts of
object stores), durability is up to the file system.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
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


def sync_names(directory: Path) -> None:
    """Sync the names in a directory, and in those above it that may be read, to disk."""
    for above in (directory, *directory.parents):
        with suppress(PermissionError):
            sync(above)


def sync_content(directory: Path, *, after: str = "") -> None:
    """Sync a directory's names, and its files with a greater name than this, to disk."""
    for path in directory.iterdir():
        with suppress(FileNotFoundError):  # removed meanwhile
            if path.name > after and path.is_file():
                sync(path)
    sync(directory)
