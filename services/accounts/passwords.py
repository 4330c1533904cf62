"""Passwords: which are taken, and how they are kept (argon2id)."""

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from services.common.errors import InvalidRequest, Overloaded

R = TypeVar("R")
SHORTEST, LONGEST = 8, 1024
AT_ONCE = 2
MOST_WAITING = 200
COMMON = frozenset(
    """
    00000000 11111111 11223344 12341234 12344321 12345678 123123123 123456789 1234567890 12345678910 147258369 87654321
    88888888 987654321 1q2w3e4r 1q2w3e4r5t 1qaz2wsx a1b2c3d4 aa123456 aaaaaaaa abc12345 abcd1234 abcdefgh access14
    adminadmin admin123 administrator antiphon asdfasdf asdfghjk asdfghjkl baseball basketball bigdaddy charlie1
    changeme changeme123 chocolate computer corvette dragon123 facebook football football1 iloveyou iloveyou1 internet
    jennifer jordan23 letmein1 liverpool manchester master123 maverick michelle midnight mercedes monkey123 passw0rd
    password password! password1 password12 password123 password1234 p@ssw0rd p@ssword princess princess1 qazwsxedc
    qwer1234 qwerty12 qwerty123 qwerty1234 qwertyui qwertyuiop samantha starwars sunshine sunshine1 superman superman1
    test1234 testtest trustno1 welcome1 welcome123 whatever zaq12wsx zxcvbnm1 zxcvbnm123
    """.split()
)


def accepted(password: str, email: str, param: str = "password") -> str:
    """In the form that is hashed. Errors: `InvalidRequest` naming `param` for a password that nobody should have."""
    normal = _normal(password)
    if normal is None or not SHORTEST <= len(normal) <= LONGEST:
        raise InvalidRequest(f"A password has {SHORTEST} to {LONGEST} characters.", param=param)
    if normal.casefold() in COMMON:
        raise InvalidRequest("This password is among those that are guessed first. Choose another.", param=param)
    if normal.casefold() == email.casefold():
        raise InvalidRequest("The password must not be the e-mail address.", param=param)
    return normal


def _normal(password: str) -> str | None:
    """NFKC, so that every keyboard writes the same password; None for what cannot be one."""
    if len(password) > LONGEST:
        return None
    normal = unicodedata.normalize("NFKC", password)
    return normal if normal.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in normal) else None


class Passwords:
    """argon2id with the parameters that OWASP names (19 MiB, 2 passes, 1 lane), on AT_ONCE threads of its own, so that
    a flood of guesses takes neither the memory nor the event loop.

    Errors of all methods: `Overloaded` while MOST_WAITING wait for a thread.
    """

    def __init__(self, hasher: PasswordHasher | None = None):
        self._hasher = hasher or PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
        self._threads = ThreadPoolExecutor(AT_ONCE, "passwords")
        self._waiting = 0
        self._nobodys = self._hasher.hash(secrets.token_urlsafe())

    async def hashed(self, password: str) -> str:
        """Of one that was accepted."""
        return await self._in_thread(self._hasher.hash, password)

    async def matches(self, stored: str | None, password: str) -> bool:
        """stored None: there is nobody, or no password; that takes as long, and is False."""
        normal = _normal(password)
        right = await self._in_thread(partial(self._verified, stored or self._nobodys), normal or "")
        return right and stored is not None and normal is not None

    async def rehashed(self, stored: str, password: str) -> str | None:
        """With the parameters of today, for one that matches; None if they are the same."""
        if not self._hasher.check_needs_rehash(stored):
            return None
        return await self.hashed(_normal(password) or "")

    def _verified(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _in_thread(self, work: Callable[[str], R], password: str) -> R:
        if self._waiting >= MOST_WAITING:
            raise Overloaded("Too many people are signing in at once.", retry_after=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, password)
        finally:
            self._waiting -= 1
