"""Turns of the web app: they run on the server, and followers come, go and come back. See docs/web-api.md."""

import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.web import begin, conversation, events, finish, messages, text_of
from tests.support.server import Server, until


@pytest.fixture
def http(simulated_server: Server) -> Iterator[httpx.Client]:
    with simulated_server.client() as made:
        yield made


def test_a_follower_sees_the_text_and_then_the_saved_answer(http: httpx.Client) -> None:
    one = conversation(http)
    begun = begin(http, one)
    found = list(events(http, begun["answer"]["id"]))
    positions = [p for p, _ in found]
    assert positions == sorted(set(positions))
    *_, (_, last) = found
    assert last["done"]["content"] == text_of(found)
    assert len(found) > 20, "the text came in one piece"
    assert messages(http, one)[begun["answer"]["id"]] == last["done"]


@pytest.mark.parametrize("by_header", [False, True], ids=["from", "Last-Event-ID"])
def test_who_comes_back_gets_the_rest_without_gap_or_repeat(http: httpx.Client, by_header: bool) -> None:
    answer = begin(http, conversation(http))["answer"]["id"]
    pieces: list[str] = []
    position, cuts = 0, 0
    while True:
        if by_header:
            stream = events(http, answer, **({"Last-Event-ID": str(position)} if cuts else {}))
        else:
            stream = events(http, answer, position)
        done = None
        for seen, (at, payload) in enumerate(stream):
            pieces.append(payload.get("text", ""))
            position, done = at, payload.get("done")
            if seen == 5 * (cuts + 1) and not done:
                break
        stream.close()  # type: ignore[attr-defined]
        if done:
            break
        cuts += 1
    assert cuts >= 2
    assert "".join(pieces) == done["content"]


def test_two_followers_see_the_same(http: httpx.Client, simulated_server: Server) -> None:
    answer = begin(http, conversation(http))["answer"]["id"]
    seen: list[str] = []

    def follow() -> None:
        with simulated_server.client() as own:
            seen.append(text_of(list(events(own, answer))))

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    saved = finish(http, answer)
    for thread in threads:
        thread.join(10)
    assert seen == [saved["content"]] * 2


def test_a_turn_goes_on_without_followers(http: httpx.Client) -> None:
    one = conversation(http)
    answer = begin(http, one)["answer"]["id"]
    stream = events(http, answer)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    until(lambda: messages(http, one)[answer]["status"] == "complete", 10, "the end of the turn", pause=0.05)
    [(_, only)] = events(http, answer)
    assert only["done"]["content"] == messages(http, one)[answer]["content"]
    [(_, again)] = events(http, answer, 3)
    assert again == only


def test_stop_keeps_what_was_said(http: httpx.Client, simulated_server: Server) -> None:
    one = conversation(http)
    answer = begin(http, one)["answer"]["id"]
    stream = events(http, answer)
    shown = [next(stream) for _ in range(5)]
    assert http.post(f"/api/turns/{answer}/stop").status_code == 204
    rest = list(stream)
    *_, (_, last) = rest
    assert last["done"]["status"] == "stopped"
    assert last["done"]["content"] == text_of(shown + rest)
    assert messages(http, one)[answer]["status"] == "stopped"
    assert http.post(f"/api/turns/{answer}/stop").status_code == 204, "stopping what is over does nothing"


def test_stop_frees_the_real_engine(server: Server) -> None:
    with server.client() as http:
        until(lambda: server.running() == 0, 20, "an idle engine")
        one = conversation(http, parameters={"temperature": 0})
        answer = begin(http, one, content="Write a very long story about the sea.")["answer"]["id"]
        next(events(http, answer))
        until(lambda: server.running() == 1, 10, "the engine's start")
        began = time.monotonic()
        assert http.post(f"/api/turns/{answer}/stop").status_code == 204
        until(lambda: server.running() == 0, 5, "the engine's end", pause=0.04)
        took = time.monotonic() - began
        assert took < 0.5, f"free after {took:.3f} s"
        saved = messages(http, one)[answer]
        assert saved["status"] == "stopped"
        assert saved["content"]


def test_stop_at_once_is_a_stop_too(http: httpx.Client) -> None:
    for _ in range(5):
        one = conversation(http)
        answer = begin(http, one)["answer"]["id"]
        assert http.post(f"/api/turns/{answer}/stop").status_code == 204
        assert messages(http, one)[answer]["status"] == "stopped"
        assert http.post(f"/api/conversations/{one}/turns", json={"content": "again"}).status_code == 201


def test_regenerate_is_a_branch_beside(http: httpx.Client) -> None:
    one = conversation(http, parameters={"max_tokens": 4})
    first = begin(http, one)
    finish(http, first["answer"]["id"])
    second = begin(http, one, regenerate=first["answer"]["id"])
    assert second["user"] is None
    assert second["answer"]["parent_id"] == first["user"]["id"]
    assert finish(http, second["answer"]["id"])["status"] == "complete"
    assert len(messages(http, one)) == 3
    read = http.get(f"/api/conversations/{one}").json()
    assert read["leaf_id"] == second["answer"]["id"]
    back = http.patch(f"/api/conversations/{one}", json={"leaf_id": first["answer"]["id"]}).json()
    assert back["leaf_id"] == first["answer"]["id"]
    assert back["updated"] == read["updated"], "looking at another branch is no change"


def test_an_edit_is_a_branch_of_the_question(http: httpx.Client) -> None:
    one = conversation(http, parameters={"max_tokens": 2})
    first = begin(http, one)
    finish(http, first["answer"]["id"])
    then = begin(http, one, content="and then?", parent_id=first["answer"]["id"])
    finish(http, then["answer"]["id"])
    edited = begin(http, one, content="and before?", parent_id=first["answer"]["id"])
    finish(http, edited["answer"]["id"])
    assert edited["user"]["parent_id"] == then["user"]["parent_id"]
    assert len(messages(http, one)) == 6


def test_continue_goes_on_in_place(http: httpx.Client) -> None:
    one = conversation(http, parameters={"max_tokens": 4, "temperature": 0})
    answer = begin(http, one)["answer"]["id"]
    before = finish(http, answer)
    assert before["finish_reason"] == "length"
    more = begin(http, one, **{"continue": answer})
    assert more["answer"]["id"] == answer
    assert more["answer"]["content"] == before["content"]
    found = list(events(http, answer))
    *_, (_, last) = found
    assert last["done"]["content"] == before["content"] + text_of(found)
    assert len(last["done"]["content"]) > len(before["content"])
    assert len(messages(http, one)) == 2
    whole = begin(http, one, regenerate=answer, parameters={"max_tokens": 500, "temperature": 0})["answer"]["id"]
    assert finish(http, whole)["content"].startswith(last["done"]["content"]), "it began anew"
    refused = http.post(f"/api/conversations/{one}/turns", json={"continue": whole})
    assert refused.status_code == 400, "a complete answer has nothing to continue"


def test_continue_on_the_real_model_keeps_the_text(server: Server) -> None:
    with server.client() as http:
        one = conversation(http, parameters={"max_tokens": 6, "temperature": 0})
        answer = begin(http, one, content="Write a very long story about the sea.")["answer"]["id"]
        before = finish(http, answer)["content"]
        begin(http, one, **{"continue": answer})
        after = finish(http, answer)["content"]
        assert after.startswith(before)
        assert len(after) > len(before)
        twelve = begin(http, one, regenerate=answer, parameters={"max_tokens": 12, "temperature": 0})["answer"]["id"]
        assert finish(http, twelve)["content"].split() == after.split(), "greedy in two pieces is greedy in one"


def test_one_turn_at_a_time(http: httpx.Client) -> None:
    one = conversation(http)
    begun = begin(http, one)
    for body in (
        {"content": "again"}, {"regenerate": begun["answer"]["id"]}, {"continue": begun["answer"]["id"]},
        {"content": "x", "parent_id": begun["user"]["id"]},
    ):  # fmt: skip
        refused = http.post(f"/api/conversations/{one}/turns", json=body)
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "conflict"
    assert len(messages(http, one)) == 2
    finish(http, begun["answer"]["id"])
    finish(http, begin(http, one, content="again", parent_id=begun["answer"]["id"])["answer"]["id"])


def test_ten_at_once_start_one(http: httpx.Client, simulated_server: Server) -> None:
    one = conversation(http)
    statuses: list[int] = []

    def send() -> None:
        with simulated_server.client() as own:
            statuses.append(own.post(f"/api/conversations/{one}/turns", json={"content": "hi"}).status_code)

    threads = [threading.Thread(target=send) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [201] + [409] * 9
    assert len(messages(http, one)) == 2


def test_a_message_sent_again_starts_nothing(http: httpx.Client) -> None:
    one = conversation(http, parameters={"max_tokens": 10})
    body: dict[str, Any] = {"content": "hello", "id": f"msg_{secrets.token_hex(16)}", "parent_id": None}
    path = f"/api/conversations/{one}/turns"
    first = http.post(path, json=body)
    assert first.status_code == 201
    assert first.json()["user"]["id"] == body["id"]
    again = http.post(path, json=body)
    assert again.status_code == 200
    assert again.json()["answer"]["id"] == first.json()["answer"]["id"]
    finish(http, first.json()["answer"]["id"])
    late = http.post(path, json=body)
    assert (late.status_code, late.json()["answer"]["status"]) == (200, "complete")
    assert len(messages(http, one)) == 2
    assert http.post(path, json=body | {"content": "other"}).status_code == 409
    other = conversation(http)
    assert http.post(f"/api/conversations/{other}/turns", json=body).status_code == 409


def test_deleting_a_conversation_stops_its_turn(http: httpx.Client, simulated_server: Server) -> None:
    until(lambda: simulated_server.running() == 0, 10, "an idle engine")
    one = conversation(http)
    answer = begin(http, one)["answer"]["id"]
    stream = events(http, answer)
    next(stream)
    assert http.delete(f"/api/conversations/{one}").status_code == 204
    assert simulated_server.running() == 0
    for _ in stream:  # whatever the follower is still told, it ends
        pass
    assert http.get(f"/api/turns/{answer}/events").status_code == 404
    assert http.get(f"/api/conversations/{one}").status_code == 404
    assert not list((simulated_server.home / "turns").glob(f"{answer}*"))


def test_a_position_beyond_the_end_waits_for_the_end(http: httpx.Client) -> None:
    answer = begin(http, conversation(http), parameters={"max_tokens": 5})["answer"]["id"]
    found = list(events(http, answer, 10_000))
    assert [set(payload) for _, payload in found] == [{"done"}]
    for bad in ("-1", "x", "1.5"):
        assert http.get(f"/api/turns/{answer}/events", params={"from": bad}).status_code == 400
        assert http.get(f"/api/turns/{answer}/events", headers={"Last-Event-ID": bad}).status_code == 400
