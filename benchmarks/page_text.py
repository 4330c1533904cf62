"""What the scripted models say: an answer of 1,000 tokens with everything that is dear to draw."""

CODE = '''```python
import hashlib
import os


class Table:
    """Open addressing with linear probing."""

    def __init__(self, size: int = 8):
        self._slots: list[tuple[str, int] | None] = [None] * size
        self._used = 0

    def put(self, key: str, value: int) -> None:
        if self._used * 3 >= len(self._slots) * 2:
            self._grow()
        at = self._place(key)
        self._used += self._slots[at] is None
        self._slots[at] = (key, value)

    def _place(self, key: str) -> int:
        at = int.from_bytes(hashlib.blake2b(key.encode()).digest()[:8], "big") % len(self._slots)
        while (slot := self._slots[at]) is not None and slot[0] != key:
            at = (at + 1) % len(self._slots)
        return at
```
'''

SECTION = """## {number}. How the table keeps its promise

A hash table answers in **constant time on average**, and the *average* is over the hash function and not over the data.
Each key goes to `hash(key) % size`; see [the long story](https://example.com/tables) for what happens when two meet.

1. The **hash** spreads the keys, so that neighbours in the data are strangers in the table.
2. The **load factor** $\\alpha = n / m$ stays below two thirds, which costs about $5 of memory in every $15.
3. A full table **grows**:
   - its size doubles,
   - every key finds a new place,
   - and the cost, spread over all the calls before, stays constant.

{code}
| load factor | probes, hit | probes, miss | memory |
| --- | ---: | ---: | ---: |
| 0.25 | 1.17 | 1.39 | 4.00 |
| 0.50 | 1.50 | 2.50 | 2.00 |
| 0.67 | 2.02 | 5.09 | 1.50 |
| 0.90 | 5.50 | 50.50 | 1.11 |

The number of probes for a key that is absent follows from the load alone:

$$
E[\\text{{probes}}] = \\frac{{1}}{{2}} \\left( 1 + \\frac{{1}}{{(1 - \\alpha)^2}} \\right)
$$

> A table that is nearly full is a list with extra steps.

"""
PARAGRAPH = (
    "So much for the theory. In practice the first thing to look at is the memory: a probe that misses the cache costs "
    "as much as twenty that hit it, and so a table that keeps its entries side by side wins against one with better "
    "bounds on paper.\n\n"
)


def answer(tokens: int) -> str:
    """About so many tokens of four letters: sections of prose, list, code, table and maths, then prose to the end."""
    length = tokens * 4
    text = ""
    number = 1
    while len(text + (section := SECTION.format(number=number, code=CODE))) <= length:
        text += section
        number += 1
    return (text + PARAGRAPH * (1 + (length - len(text)) // len(PARAGRAPH)))[:length]


def short(number: int) -> str:
    """One of the answers of a long conversation."""
    kinds = (PARAGRAPH * 3, SECTION.format(number=number, code=CODE), f"{PARAGRAPH}\n{CODE}")
    return kinds[number % len(kinds)]
