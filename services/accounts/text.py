"""The texts that people give: what may be stored. Errors: `InvalidRequest` names the field."""

import re

from services.common.errors import InvalidRequest

MAX_NAME = 200
MAX_EMAIL = 254
_EMAIL = re.compile(r"[^@\s,;<>\"\\]+@[^@\s,;<>\"\\]+")
_REGION = re.compile("[A-Za-z0-9._-]{0,64}")
_TENANT = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def name(text: str, *, optional: bool = False) -> str:
    """Printable, hence storable."""
    text = text.strip()
    if len(text) > MAX_NAME or not text.isprintable() or not (text or optional):
        least = "at most" if optional else "1 to"
        raise InvalidRequest(f"A name has {least} {MAX_NAME} printable characters.", param="name")
    return text


def email(text: str) -> str:
    """As it is stored and compared: in lower case."""
    text = text.strip()
    # The Kelvin sign's lower case is our k: an address with it must not become somebody else's.
    imitated = any(letter.lower().isascii() and not letter.isascii() for letter in text)
    text = text.lower()
    if imitated or len(text) > MAX_EMAIL or not text.isprintable() or not _EMAIL.fullmatch(text):
        raise InvalidRequest("This is not an e-mail address.", param="email")
    return text


def region(text: str) -> str:
    if not _REGION.fullmatch(text):
        raise InvalidRequest("A region has at most 64 letters, digits, dots, dashes and underscores.", param="region")
    return text


def tenant(text: str) -> str:
    """Of a new organisation. No slash: what belongs to one of its members is kept under `tenant/…`."""
    if not _TENANT.fullmatch(text):
        raise InvalidRequest("An id has 1 to 100 letters, digits, dots, dashes and underscores.", param="id")
    return text
