"""Files that are whole or absent: the few steps the workbook and set-up write with.

Nothing here replaces a file that somebody else may have written. A crash between two steps leaves
either the old file or the new one, never half of one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

TEMPORARY = ".course-new-"  # how the name of a half-written file starts


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of these bytes, as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def write_temporary(folder: Path, data: bytes) -> Path:
    """Write the bytes to a new hidden file in this folder, down to the disk, and return its path."""
    handle, name = tempfile.mkstemp(prefix=TEMPORARY, dir=folder)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(path, 0o644)  # mkstemp makes files that only their owner may read
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return path


def replace_file(path: Path, data: bytes) -> None:
    """Write a file of our own (a manifest, a stamp) in one step: readers see the old or the new one."""
    temporary = write_temporary(path.parent, data)
    try:
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def place(temporary: Path, path: Path) -> None:
    """Give a finished temporary file its name. Raises FileExistsError where the name is taken."""
    try:
        os.link(temporary, path)  # refuses to replace, which a rename would not
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links (FAT, some network folders), or a full folder
        move(temporary, path)
    else:
        temporary.unlink()


def move(source: Path, target: Path) -> None:
    """Rename a file, a link or a folder. Raises FileExistsError where the target's name is taken.

    A rename on Linux and macOS replaces silently, so the name is claimed first by an empty file
    (or folder), and the rename replaces that. On Windows a rename refuses by itself.
    """
    if os.name == "nt":
        os.rename(source, target)
        return
    is_folder = stat.S_ISDIR(os.lstat(source).st_mode)
    if is_folder:
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    try:
        os.rename(source, target)
    except BaseException:
        with contextlib.suppress(OSError):
            if is_folder:
                os.rmdir(target)
            elif os.stat(target).st_size == 0:
                os.unlink(target)
        raise


def move_to_free_name(source: Path, names: Iterator[Path]) -> Path:
    """Rename `source` to the first of these names that is free, and return it."""
    for name in names:
        with contextlib.suppress(FileExistsError):
            move(source, name)
            return name
    raise FileExistsError(errno.EEXIST, "no free name", str(source))


@contextlib.contextmanager
def one_at_a_time(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock file while the block runs; call `waiting` once if another process holds it.

    The system drops the lock when the process ends, however it ends.
    """
    with path.open("a+b") as file:
        if os.name == "nt":
            _lock_windows(file.fileno(), waiting)
        else:
            _lock_posix(file.fileno(), waiting)
        yield


def _lock_posix(handle: int, waiting: Callable[[], None]) -> None:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:  # a network folder without locks: two set-ups at once are unlikely there
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise


def _lock_windows(handle: int, waiting: Callable[[], None]) -> None:
    import msvcrt
    import time

    told = False
    while True:
        try:
            os.lseek(handle, 0, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            if not told:
                waiting()
                told = True
            time.sleep(0.5)


def reason(error: OSError) -> str:
    """Say in a few plain words why a file could not be read or written."""
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    if error.errno == getattr(errno, "EDQUOT", -1):
        return "your share of the disk is used up"
    if error.errno == errno.EROFS:
        return "the folder is read-only"
    if error.errno in (errno.EACCES, errno.EPERM):
        busy = ", or another program holds the file open" if sys.platform == "win32" else ""
        return f"this user has no permission to write there{busy}"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "a file stands where a folder is wanted"
    return error.strerror or type(error).__name__
