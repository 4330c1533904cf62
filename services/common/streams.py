"""Several streams as one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """(number of the stream, item), as items come. The first failure ends all; closing closes all."""
    queue: asyncio.Queue[tuple[int, T] | BaseException | None] = asyncio.Queue(maxsize=64)

    async def pump(number: int, stream: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(stream):
                async for item in stream:
                    await queue.put((number, item))
            await queue.put(None)
        except Exception as e:
            await queue.put(e)

    tasks = [asyncio.create_task(pump(number, stream)) for number, stream in enumerate(streams)]
    left = len(tasks)
    try:
        while left:
            got = await queue.get()
            if got is None:
                left -= 1
            elif isinstance(got, BaseException):
                raise got
            else:
                yield got
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
