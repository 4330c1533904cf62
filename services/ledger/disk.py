"""Room on a disk, before it is needed."""

import os

_BLOCK = bytes(1 << 16)


def allocate(file: int, start: int, length: int) -> None:
    """Make sure of the room; bytes that are there stay. Errors: `OSError` where the disk is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, start, length)
        return
    start = max(start, os.fstat(file).st_size)  # only the end can be added without harm to what is there
    end = start + length
    while start < end:
        start += os.pwrite(file, _BLOCK[: end - start], start)
