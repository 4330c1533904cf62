"""Room on a disk, before it is needed."""

import os

_BLOCK = bytes(1 << 16)


def allocate(file: int, start: int, length: int) -> None:
    """Make sure of the room; bytes that are there stay. Errors: `OSError` where the disk is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, start, length)
        return
    end = start + length
    start = max(start, os.fstat(file).st_size)  # only behind what is there can be written without harm
    while start < end:
        start += os.pwrite(file, _BLOCK[: end - start], start)
