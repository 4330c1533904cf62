"""HTTP/1.1 connections: uvicorn's, with bounds on the head of a request, which it lacks, and with our shape of error."""

import asyncio
import secrets
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.settings import GatewaySettings
from services.common.errors import AntiphonError, InvalidRequest


class HeadTooLarge(InvalidRequest):
    status, code = 431, "head_too_large"


class Connection(HttpToolsProtocol):
    """A head is the request line and the header fields. One that is slow or endless ends its connection."""

    def __init__(self, *args: Any, settings: GatewaySettings, **options: Any):
        super().__init__(*args, **options)
        self._limit = settings.max_head_bytes
        self._patience = settings.body_timeout
        self._in_head = False
        self._fields = 0
        """Bytes of the fields that have come whole."""
        self._unfinished = 0
        """Bytes read since this head began, but for the first read, which may hold the end of a former body."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        if was_in_head:
            self._unfinished += len(data)
            if self._unfinished > self._limit:
                self.send_400_response("")
        if self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._fields = self._unfinished = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += len(name) + len(value)
        if self._fields + len(self.url) > self._limit:
            raise HeadTooLarge("")  # the parser hands it to data_received as an error of its own
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if max(self._unfinished, self._fields + len(self.url or b"")) > self._limit:
            self._refuse(HeadTooLarge(f"The request line and the headers are larger than {self._limit} bytes."))
        else:
            self._refuse(InvalidRequest("This is not valid HTTP."))

    def _refuse(self, error: AntiphonError) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else an answer is under way, and must not hold another
            body = msgspec.json.encode(error.body())
            self.transport.write(
                b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: req_%b\r\n"
                b"connection: close\r\n\r\n%b" % (error.status, len(body), secrets.token_hex(16).encode(), body)
            )
        self.transport.close()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._patience, self._out_of_time)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _out_of_time(self) -> None:
        self._timer = None
        if self._in_head:
            self._refuse(InvalidRequest("The headers did not arrive in time."))
        else:
            self.transport.close()  # it never asked for anything
