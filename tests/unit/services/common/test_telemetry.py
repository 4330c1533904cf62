"""Logs are JSON lines whatever they quote; a span costs nothing while nobody traces."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common import telemetry
from services.common.telemetry import configure_logging, span


@pytest.fixture
def lines() -> Iterator[io.BytesIO]:
    """What is logged. Loggers that other modules hold stay as they were."""
    before = structlog.get_config()
    stream = io.BytesIO()
    configure_logging("info", stream)
    yield stream
    structlog.configure(**before)


def written(stream: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_level_time_and_what_it_was_given(lines: io.BytesIO) -> None:
    structlog.get_logger().info("request", request_id="req_1", seconds=0.5, note={"a": [1]})
    (line,) = written(lines)
    assert line.pop("timestamp")
    assert line == {"event": "request", "level": "info", "request_id": "req_1", "seconds": 0.5, "note": {"a": [1]}}


def test_a_failure_is_logged_with_its_traceback_on_the_same_line(lines: io.BytesIO) -> None:
    try:
        raise KeyError("multi\nline")
    except KeyError as e:
        structlog.get_logger().error("request_failed", exc_info=e)
    (line,) = written(lines)
    assert "Traceback" in line["exception"]
    assert "test_telemetry.py" in line["exception"]


def test_what_is_below_the_level_is_left_out(lines: io.BytesIO) -> None:
    structlog.get_logger().debug("detail")
    assert written(lines) == []


@pytest.mark.parametrize(
    "value", ["\ud800", "x\udfff\n", {"\ud800": 1}, object(), b"\xff", float("nan"), {1, 2}, 2**70]
)
def test_no_value_makes_a_line_fail(lines: io.BytesIO, value: Any) -> None:
    structlog.get_logger().info("odd", value=value)
    assert written(lines)[0]["event"] == "odd"


@settings(deadline=None, max_examples=50)
@given(st.text())
def test_text_cannot_forge_a_line(text: str) -> None:
    before, stream = structlog.get_config(), io.BytesIO()
    configure_logging("info", stream)
    structlog.get_logger().info(text, value=text)
    structlog.configure(**before)
    data = stream.getvalue()
    assert data.count(b"\n") == 1
    assert json.loads(data)["value"] == text


def test_a_span_is_one_and_the_same_nothing_while_tracing_is_off() -> None:
    assert telemetry._tracer is None
    assert span("turn", model="m") is span("other")
    with span("turn") as active:
        assert active is None


def test_a_span_that_is_traced_carries_its_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tracer:
        spans: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012

        def start_as_current_span(self, name: str, attributes: dict[str, Any]) -> Any:
            self.spans.append((name, attributes))
            return telemetry._OFF

    tracer = Tracer()
    monkeypatch.setattr(telemetry, "_tracer", tracer)
    with span("turn", model="m"):
        pass
    assert tracer.spans == [("turn", {"model": "m"})]
