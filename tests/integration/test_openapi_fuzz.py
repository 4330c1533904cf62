"""schemathesis over our own OpenAPI document: whatever it thinks of, the server has an answer that is no 5xx."""

import json
import time

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.server import SIMULATED, Server

BUDGET_S = 45.0


def test_the_document_names_every_route(simulated_server: Server) -> None:
    paths = httpx.get(f"{simulated_server.url}/openapi.json").json()["paths"]
    assert {
        "/v1/models", "/v1/models/{model}", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/api/session",
        "/api/models", "/api/conversations", "/api/conversations/{conversation_id}",
        "/api/conversations/{conversation_id}/turns", "/api/turns/{answer_id}/events", "/api/turns/{answer_id}/stop",
        "/health/live", "/health/ready", "/health/startup", "/metrics", "/signin",
    } <= set(paths)  # fmt: skip


def test_no_generated_request_makes_a_5xx(simulated_server: Server) -> None:
    document = httpx.get(f"{simulated_server.url}/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    operations = [o.ok() for o in schema.get_all_operations()]
    assert len(operations) >= 20
    began = time.monotonic()
    counts: dict[str, int] = {}
    with httpx.Client(base_url=simulated_server.url, headers=simulated_server.auth, timeout=20) as http:
        for i, operation in enumerate(operations):
            deadline = began + BUDGET_S * (i + 1) / len(operations)
            for mode in schemathesis.GenerationMode:
                _attack(operation, mode, http, deadline, counts)
    print(dict(sorted(counts.items())))
    assert sum(counts.values()) > 300
    assert httpx.get(f"{simulated_server.url}/health/ready").status_code == 200


def _attack(
    operation: schemathesis.APIOperation, mode: schemathesis.GenerationMode, http: httpx.Client, deadline: float,
    counts: dict[str, int],
) -> None:  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=25, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def one(case: schemathesis.Case) -> None:
        if time.monotonic() > deadline:
            return
        answer = case.call(session=None, base_url=str(http.base_url), headers=dict(http.headers), timeout=20)
        status = answer.status_code
        counts[str(status)] = counts.get(str(status), 0) + 1
        assert status < 500 or (status == 503 and operation.path == "/"), (
            f"{case.as_curl_command()}\n{answer.content!r}"
        )
        if status >= 400:
            error = json.loads(answer.content)["error"]
            assert set(error) == {"message", "type", "param", "code"}, answer.content
            assert answer.headers["x-request-id"]

    one()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
FIELDS = (
    "model messages prompt input n stop stream temperature top_p seed max_tokens logit_bias logprobs tools tool_choice "
    "response_format stream_options metadata user encoding_format dimensions content parent_id regenerate continue id "
    "parameters title key system_prompt"
).split()


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/api/conversations", "/api/session"]
)
def test_any_json_under_the_names_of_fields_is_no_5xx(simulated_server: Server, path: str) -> None:
    good = {
        "/v1/chat/completions": {"model": SIMULATED, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
        "/v1/completions": {"model": SIMULATED, "prompt": "x", "max_tokens": 1},
    }.get(path, {})

    with httpx.Client(base_url=simulated_server.url, headers=simulated_server.auth, timeout=20) as http:

        @given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
        @settings(max_examples=60, deadline=None, database=None, derandomize=True)
        def one(fields: dict[str, object]) -> None:
            answer = http.post(path, json=good | fields)
            assert answer.status_code < 500, (fields, answer.text)

        one()
