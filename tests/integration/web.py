"""What tests of the web app's API do over and over."""

import json
from collections.abc import Iterator
from typing import Any

import httpx


def conversation(http: httpx.Client, **fields: Any) -> str:
    made = http.post("/api/conversations", json=fields)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def begin(http: httpx.Client, conversation_id: str, **body: Any) -> dict[str, Any]:
    """The answer of a new turn. Without `regenerate` or `continue`: of a new message at the root."""
    if not {"content", "regenerate", "continue"} & set(body):
        body["content"] = "Hello there"
    answer = http.post(f"/api/conversations/{conversation_id}/turns", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def events(http: httpx.Client, answer_id: str, start: int | None = None, **headers: str) -> Iterator[tuple[int, Any]]:
    """(id, payload) of each event, as they come."""
    query = {} if start is None else {"from": start}
    with http.stream("GET", f"/api/turns/{answer_id}/events", params=query, headers=headers, timeout=60) as stream:
        assert stream.status_code == 200, stream.read()
        assert stream.headers["content-type"].startswith("text/event-stream")
        position = -1
        for line in stream.iter_lines():
            if line.startswith("id: "):
                position = int(line[4:])
            elif line.startswith("data: "):
                yield position, json.loads(line[6:])


def finish(http: httpx.Client, answer_id: str) -> dict[str, Any]:
    """Follow to the end; the message as saved."""
    *_, (_, last) = events(http, answer_id)
    message: dict[str, Any] = last.get("done") or last["message"]
    return message


def messages(http: httpx.Client, conversation_id: str) -> dict[str, dict[str, Any]]:
    answer = http.get(f"/api/conversations/{conversation_id}")
    assert answer.status_code == 200, answer.text
    return {m["id"]: m for m in answer.json()["messages"]}


def text_of(found: list[tuple[int, Any]]) -> str:
    return "".join(payload.get("text", "") for _, payload in found)
