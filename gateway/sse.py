"""SSE frames whose payload is ASCII JSON."""


def ascii_json(data: bytes) -> bytes:
    """JSON with every character beyond ASCII escaped: no U+2028 or U+0085 can split an event."""
    text = data.decode()
    if text.isascii():
        return data
    return "".join(c if c < "\x80" else _escape(c) for c in text).encode()


def _escape(c: str) -> str:
    units = c.encode("utf-16-be")
    return "".join(f"\\u{int.from_bytes(units[i : i + 2]):04x}" for i in range(0, len(units), 2))


def frame(data: bytes) -> bytes:
    return b"data: " + ascii_json(data) + b"\n\n"
