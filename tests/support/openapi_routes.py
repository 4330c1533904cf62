"""The operations of the product's own OpenAPI document, and the least that each takes."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.server import SIMULATED

ABOVE_ALL = {"model": SIMULATED, "max_tokens": 1}
VALID: dict[str, dict[str, Any]] = {
    "ChangePassword": {"current": "quite a long one", "new": "another long one"},
    "ChatRequest": ABOVE_ALL | {"messages": [{"role": "user", "content": "Hi"}]},
    "CompletionRequest": ABOVE_ALL | {"prompt": "Hi"},
    "CreateConversation": {},
    "CreateInvite": {},
    "CreateKey": {"name": "new"},
    "CreateOrganisation": {"name": "New"},
    "CreateProject": {"name": "New"},
    "CreateServiceAccount": {"name": "New"},
    "Credentials": {"email": "nobody@example.com", "password": "quite a long one"},
    "EmbeddingsBody": {"model": "all-minilm-l6-v2", "input": "Hi"},
    "PatchAccount": {"name": "Other"},
    "PatchAnyOrganisation": {"name": "Other"},
    "PatchConversation": {"title": "Other"},
    "PatchMember": {"name": "Other"},
    "PatchOrganisation": {"name": "Other"},
    "PatchProject": {"name": "Other"},
    "SignUp": {"email": "somebody@example.com", "password": "quite a long one"},
    "TurnBody": {"content": "Hi"},
}
"""A body for each schema: whoever adds one adds it here, too."""
ALTERNATIVES = ("content", "regenerate", "continue")
"""Fields of a turn, of which exactly one is given."""


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    in_path: tuple[str, ...]
    in_query: tuple[str, ...]
    schema: str
    """The name of its body's schema; "": it takes none."""
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    def body(self) -> dict[str, Any] | None:
        if not self.schema:
            return None
        assert self.schema in VALID, f"{self}: give VALID a body for {self.schema}"
        return dict(VALID[self.schema])

    def request(self, http: httpx.Client, ids: dict[str, str], **names: str) -> httpx.Response:
        """ids: for the path. names: further ids, for the query where it takes them, else for the body."""
        query = {name: value for name, value in names.items() if name in self.in_query}
        fields = {name: value for name, value in names.items() if name in self.fields and name not in query}
        assert {*query, *fields} == set(names), f"{self} does not take all of {set(names)}"
        body = self.body()
        if body is not None:
            body = {k: v for k, v in body.items() if not (k == "content" and {*ALTERNATIVES} & set(fields))} | fields
        return http.request(self.method, self.path.format(**ids), params=query, json=body)


def operations(server_url: str) -> list[Operation]:
    document = httpx.get(f"{server_url}/openapi.json").json()
    schemas = document["components"]["schemas"]
    found = [
        _operation(method.upper(), path, operation, schemas)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(found) >= 70
    return found


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Operation:
    places: dict[str, list[str]] = {"path": [], "query": [], "header": []}
    for parameter in operation.get("parameters", []):
        places[parameter["in"]].append(parameter["name"])
    schema = ""
    if content := operation.get("requestBody", {}).get("content"):
        schema = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
    fields = tuple(schemas[schema]["properties"]) if schema else ()
    return Operation(method, path, tuple(places["path"]), tuple(places["query"]), schema, fields)
