"""Logs (structlog, JSON lines), metrics (prometheus-client) and traces (OpenTelemetry, off by default)."""

import json
import logging
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, BinaryIO

import msgspec
import structlog
from prometheus_client import Counter, Gauge, Histogram

log = structlog.get_logger()

REQUESTS = Counter("antiphon_requests", "Finished requests", ["route", "status"])
OPEN_STREAMS = Gauge("antiphon_open_streams", "Streams open now")
TTFT = Histogram(
    "antiphon_ttft_seconds", "Time to first token, as the gateway sees it", ["model"],
    buckets=(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30),
)  # fmt: skip
TOKENS = Counter("antiphon_tokens", "Tokens, by kind: prompt, cached, completion", ["model", "kind"])
LIMIT_DECISIONS = Counter("antiphon_limit_decisions", "Requests that the limits granted or refused", ["decision"])
LIMITS_LOCAL = Gauge("antiphon_limits_local", "1 while Redis is away and this process limits alone")
ENGINE_RUNNING = Gauge("antiphon_engine_running", "Generations in the engine, by its own count", ["worker"])
ENGINE_WAITING = Gauge("antiphon_engine_waiting", "Generations that wait for a place in the engine", ["worker"])
ENGINE_UP = Gauge("antiphon_engine_up", "1 if the engine answers", ["worker"])
ENGINE_RESTARTS = Counter("antiphon_engine_restarts", "Times the supervisor started an engine again", ["worker"])


def _line(logger: Any, method: str, event: MutableMapping[str, Any]) -> bytes:
    """One step, because each costs every request."""
    event["level"] = method
    event["timestamp"] = time.time()
    if event.get("exc_info"):
        event = structlog.processors.format_exc_info(logger, method, event)
    else:
        event.pop("exc_info", None)
    return _dumps(event)


def _dumps(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except UnicodeEncodeError:  # a lone surrogate: a log line must not fail for what it quotes
        return json.dumps(value, default=repr).encode()


def configure_logging(level: str = "info", stream: BinaryIO | None = None) -> None:
    """JSON lines on standard error, or on `stream`."""
    structlog.configure(
        processors=[_line],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.BytesLoggerFactory(stream or sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


_tracer: Any = None
_OFF: AbstractContextManager[None] = nullcontext()


def configure_tracing(endpoint: str, service: str) -> None:
    """Send spans to an OTLP/HTTP collector. Needs the `telemetry` extra."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)
    global _tracer
    _tracer = trace.get_tracer("antiphon")


def span(name: str, **attributes: Any) -> AbstractContextManager[Any]:
    """A span around a block; nothing at all while tracing is off."""
    if _tracer is None:
        return _OFF
    return _traced(name, attributes)


@contextmanager
def _traced(name: str, attributes: dict[str, Any]) -> Iterator[Any]:
    with _tracer.start_as_current_span(name, attributes=attributes) as active:
        yield active
