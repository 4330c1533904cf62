"""The id of somebody else's object gets the same answer as one that never was: on every route that there is.

The routes are those of the OpenAPI document. A name that is neither known as an id nor as none fails the first test.
"""

import re
import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.support.openapi_routes import VALID, Operation, operations
from tests.support.organisations import MAKERS, SAME, Installation, Organisation, Person, Things, installation, taken
from tests.support.server import SIMULATED, Server, until

IDS = {*MAKERS, *SAME}
CHOSEN = {"id"}
"""A new message's id, which its sender chooses, so that a repeated request is known: one that is taken is taken."""
SECRETS = {"token", "invite", "key", "password", "current", "new", "state", "code"}
"""Who has it may use it, whoever that is."""
SHARED = {"model", "models", "tier"}
"""The same for all organisations."""
PLAIN = set(
    """
    name email role expires_in_days scopes region monthly_budget suspended archived title system_prompt parameters content
    q before limit from action start end bucket group_by error iss
    n max_tokens temperature top_p top_k min_p seed frequency_penalty presence_penalty repetition_penalty stop logit_bias
    stream stream_options user messages max_completion_tokens logprobs top_logprobs response_format tools tool_choice
    parallel_tool_calls metadata store service_tier prompt_cache_key safety_identifier reasoning_effort verbosity modalities
    prompt echo best_of suffix input encoding_format dimensions
    """.split()
)
"""Names nothing that is stored."""
PRIVATE = ("conversation_id", "answer_id", "leaf_id", "parent_id", "regenerate", "continue")
"""Of one person, not of the organisation."""
CHAT = {"model": SIMULATED, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("tenants")
    with Server(home, model=SIMULATED, EMBEDDING_MODEL="none") as server, installation(server) as made:
        yield made


@pytest.fixture(scope="module")
def acme(place: Installation) -> Organisation:
    return place.organisation("Acme")


@pytest.fixture(scope="module")
def bravo(place: Installation) -> Organisation:
    return place.organisation("Bravo")


@pytest.fixture(scope="module")
def routes(place: Installation) -> list[Operation]:
    return operations(place.server.url)


def slots(operation: Operation) -> Iterator[str]:
    """Where an id goes."""
    for name in (*operation.in_path, *operation.in_query, *operation.fields):
        if name in IDS:
            yield name


def asked(operation: Operation, http: httpx.Client, own: Things, slot: str, id: str) -> httpx.Response:
    """All ids are the asker's own, but for the one in the slot."""
    ids = {name: id if name == slot else own[name] for name in operation.in_path}
    return operation.request(http, ids, **({} if slot in operation.in_path else {slot: id}))


def missing_like(id: str) -> str:
    return re.sub("[0-9a-f]{32}$", secrets.token_hex(16), id)


def told(answer: httpx.Response, id: str) -> tuple[int, str, dict[str, str]]:
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    return answer.status_code, answer.text.replace(id, "ID"), headers


def assert_hidden(operation: Operation, slot: str, id: str, http: httpx.Client, own: Things) -> int:
    """The status."""
    where = f"{operation}: {slot}"
    missing = missing_like(id)
    assert missing != id, where
    theirs = asked(operation, http, own, slot, id)
    assert told(theirs, id) == told(asked(operation, http, own, slot, missing), missing), where
    assert "secret" not in theirs.text, where
    return theirs.status_code


def expected(operation: Operation, slot: str, asker: Person) -> tuple[int, ...]:
    if operation.path.endswith("/organizations/{organization_id}"):
        return (403,)  # of the operator alone
    if slot in operation.in_query:
        return (200,) if asker.role == "owner" else (200, 403)
    return (404,) if asker.role == "owner" or slot in PRIVATE else (403, 404)


def test_every_name_is_known_as_an_id_or_as_none(routes: list[Operation]) -> None:
    known = IDS | CHOSEN | SECRETS | SHARED | PLAIN
    for operation in routes:
        unknown = {*operation.in_path, *operation.in_query, *operation.fields} - known
        assert not unknown, f"{operation}: is {unknown} an id? Give it a maker in tests/support/organisations.py if so."
        assert not operation.schema or operation.schema in VALID, f"{operation}: no body for {operation.schema}"
        assert re.findall(r"{(\w+)", operation.path) == list(operation.in_path), operation
    assert sum(1 for operation in routes for _ in slots(operation)) >= 50


def test_another_organisations_objects_are_missing_on_every_route(
    acme: Organisation, bravo: Organisation, routes: list[Operation], place: Installation
) -> None:
    own = {person: Things(bravo, person) for person in bravo.people}
    statuses: dict[str, int] = {}
    for operation in routes:
        for slot in slots(operation):
            theirs = Things(acme, acme.owner)
            for person in bravo.people:
                for http in person.doors(operation.path):
                    status = assert_hidden(operation, slot, theirs[slot], http, own[person])
                    assert status in expected(operation, slot, person), (operation, slot, person.role, status)
                    statuses[str(status)] = statuses.get(str(status), 0) + 1
            assert_there(operation, slot, theirs, acme, place)
    assert statuses["404"] >= 100


def assert_there(operation: Operation, slot: str, theirs: Things, acme: Organisation, place: Installation) -> None:
    """The same requests, by those whose it is, find it: as it was, and not because the requests are wrong."""
    http = acme.owner.doors(operation.path)[-1]
    if operation.path.endswith("/organizations/{organization_id}"):
        http = place.operator if operation.path.startswith("/api") else _operators_program(place)
    answer = asked(operation, http, theirs, slot, theirs[slot])
    assert answer.status_code in (200, 201, 204), (str(operation), slot, answer.text)


def _operators_program(place: Installation) -> httpx.Client:
    body = {"scopes": ["admin", "operator"], "owner": ""}
    return place.program(place.operator.post("/api/organization/api_keys", json=body).json()["secret"])


def test_colleagues_conversations_are_missing_on_every_route(acme: Organisation, routes: list[Operation]) -> None:
    checked = 0
    theirs = Things(acme, acme.owner)
    for operation in routes:
        for slot in slots(operation):
            if slot not in PRIVATE:
                continue
            for person in (acme.admin, acme.member, acme.join("owner")):
                for http in person.doors(operation.path):
                    assert assert_hidden(operation, slot, theirs[slot], http, Things(acme, person)) == 404
                    checked += 1
    assert checked >= 40
    conversation = acme.owner.browser.get(f"/api/conversations/{theirs['conversation_id']}").json()
    assert (conversation["title"], len(conversation["messages"])) == ("secret words", 2)


def test_a_members_routes_tell_nothing_of_colleagues_keys(acme: Organisation, routes: list[Operation]) -> None:
    for operation in routes:
        for slot in {"key_id", "owner", "user_id"} & set(slots(operation)):
            id = acme.admin.key["id"] if slot == "key_id" else acme.admin.id
            own = Things(acme, acme.member)
            for http in acme.member.doors(operation.path):
                assert assert_hidden(operation, slot, id, http, own) in (200, 403, 404)
    assert acme.admin.program.get("/v1/models").status_code == 200


def test_lists_and_sums_hold_nothing_of_others_whatever_they_are_filtered_by(
    acme: Organisation, bravo: Organisation, routes: list[Operation]
) -> None:
    """Every route that reads, as it is and filtered by each id; the control is that all of it is found by its owner."""
    things = used(acme)
    names = {things[name] for name in MAKERS} | {person.email for person in acme.people}
    found: set[str] = set()
    checked = 0
    for operation in (o for o in routes if not o.writes and not o.in_path and o.path.startswith(("/api/", "/v1/"))):
        filters = [{name: things[name]} for name in operation.in_query if name in IDS]
        for asked_for in ({}, *filters):
            mine = acme.owner.doors(operation.path)[-1].get(operation.path, params=asked_for)
            found |= {name for name in names if name in mine.text}
            for person in bravo.people:
                for http in person.doors(operation.path):
                    theirs = http.get(operation.path, params=asked_for)
                    assert theirs.status_code in (200, 401, 403), (operation, theirs.text)
                    assert not {name for name in names if name in theirs.text}, (operation, asked_for)
                    assert not asked_for or '"requests":' not in theirs.text, (operation, asked_for)
                    checked += 1
    assert names - {things["answer_id"]} <= found
    assert checked >= 100


def used(acme: Organisation) -> Things:
    """With usage that each filter finds: of a key in a project, made for a service account and used."""
    things = Things(acme, acme.owner)
    http = acme.owner.browser
    body = {"owner": things["service_account_id"], "project": things["project_id"], "scopes": ["model.request"]}
    key = taken(http.post("/api/organization/api_keys", json=body))
    taken(acme.place.program(key["secret"]).post("/v1/chat/completions", json=CHAT))
    things.known(key_id=key["id"], user_id=acme.owner.id)
    taken(acme.owner.program.post("/v1/chat/completions", json=CHAT))
    for query in ({"key_id": key["id"]}, {"project": things["project_id"]}, {"user_id": acme.owner.id}):
        until(lambda q=query: http.get("/api/usage", params=q).json()["data"], 20, "usage", pause=0.1)  # type: ignore[misc]
        assert len(http.get("/api/usage.csv", params=query).text.splitlines()) >= 2
    return things


def test_an_id_that_is_taken_tells_nothing_of_what_has_it(acme: Organisation, bravo: Organisation) -> None:
    name = f"msg_{secrets.token_hex(16)}"
    for person, organisation, status in ((acme.owner, acme, 201), (bravo.owner, bravo, 409)):
        path = f"/api/conversations/{Things(organisation, person)['conversation_id']}/turns"
        answer = person.browser.post(path, json={"content": "secret words", "id": name})
        assert answer.status_code == status, answer.text
        assert person is acme.owner or "secret" not in answer.text


def test_an_idempotency_key_of_another_organisation_or_person_replays_nothing(
    acme: Organisation, bravo: Organisation
) -> None:
    headers = {"idempotency-key": "order-4711"}
    answers = [
        person.program.post("/v1/chat/completions", json=CHAT, headers=headers)
        for person in (acme.owner, acme.owner, acme.member, bravo.owner, bravo.member)
    ]
    assert [answer.status_code for answer in answers] == [200] * 5
    ids = [answer.json()["id"] for answer in answers]
    assert ids[0] == ids[1], "the control: one's own is replayed"
    assert len(set(ids)) == 4
