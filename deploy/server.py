"""The server process: listens, serves the edge, and ends without cutting a stream short."""

import gc
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from rich.console import Console

from deploy.embedded import platform
from deploy.settings import ServeSettings
from gateway.app import create_app
from gateway.connection import Connection
from gateway.ports import GatewayPorts
from gateway.settings import GatewaySettings
from services.common.account_messages import ApiKey
from services.common.errors import Conflict, Forbidden, InvalidRequest
from services.common.telemetry import configure_logging, configure_tracing

WEB_DIST = Path(__file__).parent.parent / "gateway" / "web" / "dist"


class _Server(uvicorn.Server):
    """SIGTERM and Ctrl-C: unready at once, then uvicorn lets every stream finish; a second one ends them."""

    def __init__(self, config: uvicorn.Config, ports: GatewayPorts, key: ApiKey):
        super().__init__(config)
        self._ports = ports
        self._key = key

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = (sockets or self.servers[0].sockets)[0].getsockname()[1]
            announce(self.config.host, port, self._ports, self._key)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own raises the signal again at its end, which would kill us before the other parts have stopped."""
        former = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in former.items():
                signal.signal(sig, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._ports.health.draining = True
        super().handle_exit(sig, frame)


async def serve(settings: ServeSettings) -> None:
    """Until a signal comes. Errors: `AntiphonError` when a part cannot start."""
    if settings.no_auth and not _is_loopback(settings.host):
        raise Forbidden(f"--no-auth is only allowed on a loopback address, and {settings.host} is none.")
    configure_logging(settings.log_level)
    if settings.otlp_endpoint:
        try:
            configure_tracing(settings.otlp_endpoint, "antiphon")
        except ImportError:
            raise InvalidRequest("ANTIPHON_OTLP_ENDPOINT needs the `telemetry` extra.") from None
    console = Console(stderr=True)
    gateway = GatewaySettings()
    listener = _bound(settings.host, settings.port)
    async with platform(settings, console) as (ports, key):
        config = uvicorn.Config(
            create_app(ports, gateway, WEB_DIST), host=settings.host, port=settings.port, lifespan="off",
            http=partial(Connection, settings=gateway),  # type: ignore[arg-type]
            access_log=False, log_config=None, server_header=False, ws="none",
            timeout_graceful_shutdown=int(gateway.drain_timeout), backlog=4096,
            proxy_headers=bool(settings.trusted_proxies), forwarded_allow_ips=settings.trusted_proxies,
        )  # fmt: skip
        # What start-up made stays: the collector need not look at it again in the middle of a stream.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        server = _Server(config, ports, key)
        await server.serve([listener])
        console.print("Stopping …")
        await ports.runner.drain(0.0 if server.force_exit else gateway.drain_timeout)


def _bound(host: str, port: int) -> socket.socket:
    """Before anything is started: a port that is taken must cost no model's loading. Nobody can connect yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as e:
        listener.close()
        raise Conflict(f"Cannot listen on {host} port {port}: {e.strerror}. Choose others with HOST and PORT.") from e
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def announce(host: str, port: int, ports: GatewayPorts, key: ApiKey) -> None:
    """The last lines of the start-up: where, with what key, and how to try it."""
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 (read, not bound)
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    open_to_all = ports.auth.open_to_all
    # Double quotes: the shell must put the variable's value in.
    authorization = "" if open_to_all else f' -H "Authorization: Bearer {key.secret or "$ANTIPHON_API_KEY"}"'
    shown_key = key.secret or f"sk-…{key.hint}, shown when it was made; `antiphon keys create` makes another"
    body = (
        f'{{"model": "{ports.default_model}", "stream": true, "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    )
    signed_in = "" if open_to_all else f"  (signs this browser in: {base}/signin?token={ports.signin_token})"
    print(f"URL:     {base}/{signed_in}")
    print(f"API key: {'none needed (--no-auth)' if open_to_all else shown_key}")
    print(
        f"Try:     curl -N {base}/v1/chat/completions{authorization} -H 'Content-Type: application/json' -d '{body}'",
        flush=True,
    )
