"""A whole life of the product, with everything that people do and mistake, and what of it was to be kept secret."""

import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.integration.test_oidc_sign_in import through
from tests.support.canaries import Places, files
from tests.support.oidc_provider import OidcProvider
from tests.support.organisations import PASSWORD, Installation, Organisation, installation, taken
from tests.support.server import SIMULATED, Server, until


@dataclass
class Life:
    """What there was to keep secret, by what it was, and where it might be."""

    server: Server
    secrets: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    refusals: list[httpx.Response] = field(default_factory=list)
    pages: Places = field(default_factory=dict)
    """What it answers to everybody, and to owners."""
    places: Places = field(default_factory=dict)

    def secret(self, what: str, value: str = "") -> str:
        """A new one where none is given."""
        self.secrets[what] = value or f"canary-{secrets.token_urlsafe(24)}"
        return self.secrets[what]

    def word(self, what: str) -> str:
        self.said[what] = f"{what.replace(' ', '-')}-canary-{secrets.token_hex(8)}"
        return self.said[what]

    def asked(self, http: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
        """Something that is refused."""
        answer = http.request(method, path, **options)
        assert 400 <= answer.status_code < 500, (path, answer.status_code, answer.text)
        self.refusals.append(answer)
        return answer

    def lived(self, provider: OidcProvider) -> "Life":
        self.secret("OIDC client secret", provider.client_secret)
        with installation(self.server) as place:
            self.secret("sign-in link", self.server.signin.partition("token=")[2])
            self.secret("first key", self.server.key)
            acme = place.organisation("Acme")
            self._signs_in(place, acme, provider)
            self._has_keys(place, acme)
            self._says(place, acme)
            self._fails(place, acme)
            self._is_killed(place, acme)
            self._shows(place, acme)
        return self

    def _signs_in(self, place: Installation, acme: Organisation, provider: OidcProvider) -> None:
        self.secret("password", PASSWORD)
        http = place.browser()
        sign_in = {"email": acme.member.email, "password": PASSWORD}
        taken(http.post("/api/session", json=sign_in))
        self.secret("cookie", http.cookies["antiphon_session"])
        change = {"current": PASSWORD, "new": self.secret("new password")}
        taken(http.post("/api/account/password", json=change))
        self.secret("cookie after the change", http.cookies["antiphon_session"])
        guess = {"email": acme.admin.email, "password": self.secret("wrong password")}
        self.asked(http, "POST", "/api/session", json=guess)
        # People paste into the wrong field, and forget which password is which.
        slip = {"email": self.secret("password as e-mail"), "password": self.secret("password of nobody")}
        self.asked(http, "POST", "/api/session", json=slip)
        self.asked(http, "POST", "/api/account/password", json={"current": self.secret("former"), "new": "another one"})
        self.asked(http, "GET", f"/signin?token={self.secret('wrong link')}")
        with httpx.Client(base_url=self.server.url) as http:
            assert through(http, provider.people[0]).headers["location"] == "/"
            self.secret("cookie by OIDC", http.cookies["antiphon_session"])
            for number, token in enumerate(provider._access):
                self.secret(f"access token {number}", token)
            http.get("/signin/oidc")
            for number, part in enumerate(http.cookies["antiphon_oidc"].split(".")):
                self.secret(f"OIDC cookie {number}", part)
            code, state = self.secret("wrong code"), self.secret("wrong state")
            assert "signin_error" in http.get(f"/signin/oidc/callback?code={code}&state={state}").headers["location"]
        for number, person in enumerate(acme.people):
            self.secret(f"cookie {number}", person.browser.cookies["antiphon_session"])

    def _has_keys(self, place: Installation, acme: Organisation) -> None:
        owner = acme.owner
        invite = taken(owner.browser.post("/api/organization/invites", json={"email": "new@example.com"}))
        self.secret("open invite", invite["token"])
        assert place.operator.get(f"/api/invites/{invite['token']}").status_code == 200
        self.asked(place.operator, "GET", f"/api/invites/inv-{self.secret('wrong invite')}")
        body = {
            "email": "new@example.com",
            "password": self.secret("bad sign-up"),
            "invite": self.secret("sign-up invite"),
        }
        self.asked(place.operator, "POST", "/api/signup", json=body)
        for number, person in enumerate(acme.people):
            self.secret(f"key {number}", person.key["secret"])
            self.ids.append(person.key["id"])
            assert person.program.get("/v1/models").status_code == 200
        revoked = owner.new_key(name="revoked")
        program = place.program(self.secret("revoked key", revoked["secret"]))
        http = place.browser()
        taken(http.post("/api/session", json={"key": revoked["secret"]}))
        self.secret("cookie by key", http.cookies["antiphon_session"])
        taken(owner.browser.delete(f"/api/organization/api_keys/{revoked['id']}"))
        self.asked(program, "GET", "/v1/models")
        http = place.program(f"sk-{self.secret('wrong key')}")
        self.asked(http, "GET", "/v1/models")
        self.asked(http, "POST", "/api/session", json={"key": f"sk-{self.secret('wrong key to sign in')}"})

    def _says(self, place: Installation, acme: Organisation) -> None:
        for path, body in (
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": self.word("prompt")}], "seed": 1}),
            (
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": self.word("streamed")}], "stream": True},
            ),
            ("/v1/completions", {"prompt": self.word("completion")}),
        ):
            headers = {"idempotency-key": self.secret(f"idempotency key {len(self.said)}")}
            answer = acme.owner.program.post(path, json=body | {"model": SIMULATED, "max_tokens": 20}, headers=headers)
            assert answer.status_code == 200, answer.text
            if answer.headers["content-type"] == "application/json":
                choice = answer.json()["choices"][0]
                self.said[f"answer {len(self.said)}"] = (choice.get("text") or choice["message"]["content"])[:40]
        self._talks(acme.owner.browser, stop=False)
        self._talks(acme.member.program, stop=True)

    def _talks(self, http: httpx.Client, *, stop: bool) -> str:
        """In the web app."""
        one = taken(http.post("/api/conversations", json={"system_prompt": self.word("system prompt")}))["id"]
        asked = {"content": self.word(f"message {len(self.said)}")}
        answer = taken(http.post(f"/api/conversations/{one}/turns", json=asked))["answer"]["id"]
        if stop:
            taken(http.post(f"/api/turns/{answer}/stop"))
        assert "done" in http.get(f"/api/turns/{answer}/events").text
        taken(http.patch(f"/api/conversations/{one}", json={"title": self.word("title")}))
        return str(one)

    def _fails(self, place: Installation, acme: Organisation) -> None:
        key, http, browser = acme.owner.key["secret"], acme.owner.program, acme.owner.browser
        word = self.word("refused prompt")
        broken = f'{{"key": "{key}", "messages": "{word}"'.encode()
        json_type = {"content-type": "application/json"}
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/organization/projects"):
            self.asked(http, "POST", path, content=broken, headers=json_type)
            self.asked(
                http, "POST", path, json={"model": key, "messages": word, "prompt": word, "input": word, "name": 1}
            )
        self.asked(http, "POST", "/api/session", content=broken, headers=json_type)
        good = {"model": SIMULATED, "messages": [{"role": "user", "content": word}], "max_tokens": 1}
        self.asked(http, "POST", "/v1/chat/completions", json=good | {"temperature": f"{key} {word}"})
        self.asked(http, "POST", "/v1/chat/completions", json=good | {key: word})
        self.asked(http, "POST", "/v1/chat/completions", json=good | {"model": f"{key}-model"})
        self.asked(
            http, "POST", "/v1/chat/completions", json=good, headers={"idempotency-key": f"{key}\u00e9".encode()}
        )
        assert http.post("/v1/chat/completions", json=good, headers={"idempotency-key": key}).status_code == 200
        self.asked(http, "POST", "/v1/chat/completions", json=good | {"n": 2}, headers={"idempotency-key": key})
        assert http.post("/v1/chat/completions", json=good | {"user": key, "metadata": {"k": key}}).status_code == 200
        self.asked(http, "GET", f"/v1/nothing/{key}?api_key={key}")
        self.asked(http, "GET", f"/v1/models/{key}")
        self.asked(http, "GET", f"/v1/organization/api_keys?owner=%00{key}")
        self.asked(
            browser, "POST", "/api/conversations", json={"parameters": {"temperature": word}, "model": {"a": word}}
        )
        self.asked(browser, "GET", f"/api/conversations/{key}")
        with httpx.Client(base_url=self.server.url) as stranger:
            for headers in (
                {"x-api-key": key},
                {"api-key": key},
                {"authorization": key},
                {"authorization": f"Basic {key}"},
            ):
                self.asked(stranger, "GET", "/v1/models", headers=headers)
            self.asked(stranger, "GET", f"/v1/models?api_key={key}", headers={"cookie": f"antiphon_session={key}"})
            self.asked(stranger, "GET", "/v1/models", headers={"user-agent": key, "referer": f"http://x/?{key}"})
            self.asked(stranger, key.replace("-", "").upper()[:30], "/v1/models")

    def _is_killed(self, place: Installation, acme: Organisation) -> None:
        http, program = acme.owner.browser, acme.owner.program
        one = taken(http.post("/api/conversations", json={}))["id"]
        body = {"model": SIMULATED, "messages": [{"role": "user", "content": self.word("prompt of the dying")}]}
        with (
            suppress(httpx.HTTPError),
            program.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as stream,
        ):
            assert next(stream.iter_lines())
            asked = {"content": self.word("message of the dying")}
            answer = taken(http.post(f"/api/conversations/{one}/turns", json=asked))["answer"]["id"]
            with http.stream("GET", f"/api/turns/{answer}/events") as events:
                for number, _ in enumerate(events.iter_lines()):
                    if number == 6:
                        self.places |= files(self.server.home)  # as they are while it runs
                        self.server.kill()
        self.server.start()
        self.secret("second link", self.server.signin.partition("token=")[2])
        again = place.program(acme.owner.key["secret"], self.server.url)
        found = {m["id"]: m for m in again.get(f"/api/conversations/{one}").json()["messages"]}
        assert found[answer]["content"], "what was written before the kill is there"

    def _shows(self, place: Installation, acme: Organisation) -> None:
        http = place.program(acme.owner.key["secret"], self.server.url)
        for path in (
            "/metrics", "/openapi.json", "/v1/organization/audit_logs?limit=200", "/v1/organization/api_keys",
            "/v1/organization/users", "/v1/organization/invites", "/v1/usage.csv", "/v1/usage?group_by=key_id,user_id",
        ):  # fmt: skip
            answer = http.get(path)
            assert answer.status_code == 200, path
            self.pages[f"page {path}"] = answer.content
        until(lambda: http.get("/v1/usage?bucket=all").json()["data"], 20, "the usage's way to the ledger", pause=0.1)
