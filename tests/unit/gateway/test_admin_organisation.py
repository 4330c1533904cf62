"""An organisation's people, keys and projects: each role's rights, through the API and through the web app alike."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.common import account_messages as a
from tests.support.house import ALL, House, furnished, house

KEY = {
    "object", "id", "name", "hint", "owner", "project", "scopes", "models", "created", "expires", "last_used", "revoked",
}  # fmt: skip
MISSING = "user_" + "0" * 32


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnished(tmp_path_factory.mktemp("house") / "template.db")


@pytest.fixture
async def home(template: Path, tmp_path: Path) -> AsyncIterator[House]:
    async with house(template, tmp_path) as made:
        yield made


class Caller:
    """Somebody, through one of the two doors."""

    def __init__(self, http: httpx.AsyncClient, door: str, id: str = ""):
        self.http = http
        self.door = door
        self.id = id

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        json = {} if body is None and method in ("POST", "PATCH") else body
        answer = await self.http.request(method, f"{self.door}{path}", json=json)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def refused(self, method: str, path: str, body: Any = None, status: int = 403) -> dict[str, Any]:
        found = (await self.ask(method, path, body, status))["error"]
        assert isinstance(found, dict)
        return found


@pytest.fixture(params=["/v1", "/api"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def caller(home: House, door: str, role: a.Role, tenant: str = "local", email: str = "") -> Caller:
    """A person with this role: the session, or a key with all that it can have."""
    member, browser = await home.person(role, tenant, email)
    if door == "/api":
        return Caller(browser, door, member.id)
    scopes = tuple(scope for scope in ALL if scope != "operator" or tenant == "local")
    return Caller(await home.key(tenant, owner=member.id, scopes=scopes), door, member.id)


async def test_everybody_sees_the_organisation_and_owners_change_it(home: House, door: str) -> None:
    owner, admin, member = [await caller(home, door, role) for role in ("owner", "admin", "member")]
    found = await member.ask("GET", "/organization")
    assert found == {
        "object": "organization", "id": "local", "name": "Local", "tier": "free", "region": "", "monthly_budget": None,
        "suspended": False, "operator": True, "created": found["created"],
    }  # fmt: skip
    for low in (admin, member):
        await low.refused("PATCH", "/organization", {"name": "mine"})
    changed = await owner.ask("PATCH", "/organization", {"name": "Renamed", "monthly_budget": 5_000_000})
    assert (changed["name"], changed["monthly_budget"]) == ("Renamed", 5_000_000)
    assert (await owner.ask("PATCH", "/organization", {"name": "Again"}))["monthly_budget"] == 5_000_000
    assert (await owner.ask("PATCH", "/organization", {"monthly_budget": None}))["monthly_budget"] is None


@pytest.mark.parametrize(
    ("body", "param"),
    [({"tier": "enterprise"}, "tier"), ({"suspended": True}, "suspended"), ({"operator": True}, "operator"),
     ({"monthly_budget": -1}, "monthly_budget"), ({"monthly_budget": 1.5}, "monthly_budget"), ({"name": ""}, "name"),
     ({"name": "a\x00b"}, "name"), ({"name": "x" * 5000}, "name")],
)  # fmt: skip
async def test_an_owner_gives_the_organisation_no_more_than_a_name_and_a_budget(
    home: House, door: str, body: dict[str, Any], param: str
) -> None:
    owner = await caller(home, door, "owner")
    assert (await owner.refused("PATCH", "/organization", body, 400))["param"] == param


async def test_admins_see_people_and_members_do_not(home: House, door: str) -> None:
    admin, member = await caller(home, door, "admin"), await caller(home, door, "member")
    people = await admin.ask("GET", "/organization/users")
    assert people["object"] == "list"
    assert {p["email"]: p["role"] for p in people["data"]} == {
        "admin@local.example": "admin",
        "member@local.example": "member",
    }
    one = await admin.ask("GET", f"/organization/users/{member.id}")
    assert set(one) == {"object", "id", "email", "name", "role", "has_password", "created", "last_seen"}
    assert one["object"] == "organization.user"
    assert isinstance(one["created"], int)
    for path in ("/organization/users", f"/organization/users/{member.id}", "/organization/invites",
                 "/organization/service_accounts", "/organization/audit_logs"):  # fmt: skip
        await member.refused("GET", path)


async def test_admins_neither_touch_nor_make_owners(home: House, door: str) -> None:
    owner, admin, member = [await caller(home, door, role) for role in ("owner", "admin", "member")]
    await admin.refused("PATCH", f"/organization/users/{owner.id}", {"role": "member"})
    await admin.refused("PATCH", f"/organization/users/{owner.id}", {"name": "x"})
    await admin.refused("DELETE", f"/organization/users/{owner.id}")
    await admin.refused("PATCH", f"/organization/users/{member.id}", {"role": "owner"})
    await admin.refused("PATCH", f"/organization/users/{admin.id}", {"role": "owner"})
    await admin.refused("POST", "/organization/invites", {"role": "owner"})
    assert (await admin.ask("PATCH", f"/organization/users/{member.id}", {"role": "admin"}))["role"] == "admin"
    assert (await owner.ask("PATCH", f"/organization/users/{member.id}", {"role": "owner"}))["role"] == "owner"
    await owner.ask("DELETE", f"/organization/users/{member.id}", status=204)
    await owner.refused("GET", f"/organization/users/{member.id}", status=404)
    await owner.refused("PATCH", f"/organization/users/{owner.id}", {"role": "member"}, 409)
    await owner.refused("DELETE", f"/organization/users/{owner.id}", status=409)


async def test_members_change_nobody(home: House, door: str) -> None:
    admin, member = await caller(home, door, "admin"), await caller(home, door, "member")
    for method, path, body in (
        ("PATCH", f"/organization/users/{member.id}", {"role": "admin"}), ("DELETE", f"/organization/users/{admin.id}", None),
        ("POST", "/organization/invites", {}), ("DELETE", "/organization/invites/x", None),
        ("POST", "/organization/projects", {"name": "p"}), ("PATCH", "/organization/projects/x", {"archived": True}),
        ("POST", "/organization/service_accounts", {"name": "s"}), ("DELETE", "/organization/service_accounts/x", None),
    ):  # fmt: skip
        await member.refused(method, path, body)


async def test_a_persons_loss_of_rights_is_their_keys(home: House) -> None:
    owner = await caller(home, "/api", "owner")
    admin = await caller(home, "/v1", "admin")
    await admin.ask("GET", "/organization/users")
    await owner.ask("PATCH", f"/organization/users/{admin.id}", {"role": "member"})
    await admin.refused("GET", "/organization/users")


async def test_invites_are_made_shown_and_withdrawn(home: House, door: str) -> None:
    admin = await caller(home, door, "admin")
    made = await admin.ask(
        "POST", "/organization/invites", {"email": "New@Example.com", "role": "admin", "expires_in_days": 1}, 201
    )
    assert made["path"] == f"/invite/{made['token']}"
    assert (made["object"], made["email"], made["role"]) == ("organization.invite", "new@example.com", "admin")
    assert 86390 < made["expires"] - made["created"] < 86410
    listed = (await admin.ask("GET", "/organization/invites"))["data"]
    assert {"object", "id", "email", "role", "created", "expires", "accepted_by"} == set(listed[-1])
    assert made["token"] not in str(listed)
    await admin.ask("DELETE", f"/organization/invites/{made['id']}", status=204)
    assert (await home.client().get(f"/api/invites/{made['token']}")).status_code == 404
    for bad, param in (
        ({"expires_in_days": 0}, "expires_in_days"),
        ({"role": "emperor"}, "role"),
        ({"email": "x"}, "email"),
    ):
        assert (await admin.refused("POST", "/organization/invites", bad, 400))["param"] == param


async def test_projects_and_service_accounts(home: House, door: str) -> None:
    admin, member = await caller(home, door, "admin"), await caller(home, door, "member")
    project = await admin.ask("POST", "/organization/projects", {"name": "P"}, 201)
    assert set(project) == {"object", "id", "name", "archived", "created"}
    account = await admin.ask(
        "POST", "/organization/service_accounts", {"name": "S", "project": project["id"]}, 201
    )  # fmt: skip
    assert set(account) == {"object", "id", "name", "project", "created"}
    assert (await admin.ask("GET", "/organization/service_accounts"))["data"] == [account]
    key = await admin.ask("POST", "/organization/api_keys", {"owner": account["id"]}, 201)
    assert (key["owner"], key["project"]) == (account["id"], project["id"])
    program = home.client(authorization=f"Bearer {key['secret']}")
    assert (await program.get("/v1/organization")).status_code == 200
    assert (await admin.ask("PATCH", f"/organization/projects/{project['id']}", {"archived": True}))["archived"]
    assert (await program.get("/v1/organization")).status_code == 401
    renamed = await admin.ask("PATCH", f"/organization/projects/{project['id']}", {"name": "Q", "archived": False})
    assert (await member.ask("GET", "/organization/projects"))["data"] == [renamed]
    assert (await program.get("/v1/organization")).status_code == 200
    await admin.ask("DELETE", f"/organization/service_accounts/{account['id']}", status=204)
    assert (await program.get("/v1/organization")).status_code == 401


async def test_a_person_makes_sees_and_revokes_keys_of_their_own(home: House) -> None:
    member, admin = await caller(home, "/api", "member"), await caller(home, "/api", "admin")
    made = await member.ask("POST", "/organization/api_keys", {"name": "mine"}, 201)
    assert set(made) == KEY | {"secret"}
    assert (made["owner"], made["scopes"], made["models"]) == (member.id, list(a.USER_SCOPES), [])
    assert made["secret"].endswith(made["hint"])
    theirs = await admin.ask("POST", "/organization/api_keys", {"scopes": ["model.request"], "expires_in_days": 2}, 201)
    assert theirs["owner"] == admin.id
    assert 2 * 86400 - 10 < theirs["expires"] - theirs["created"] < 2 * 86400 + 10
    [listed] = (await member.ask("GET", "/organization/api_keys"))["data"]
    assert listed == {k: v for k, v in made.items() if k != "secret"}
    assert (await member.ask("GET", f"/organization/api_keys?owner={admin.id}"))["data"] == []
    assert {k["id"] for k in (await admin.ask("GET", "/organization/api_keys"))["data"]} == {made["id"], theirs["id"]}
    assert [k["id"] for k in (await admin.ask("GET", f"/organization/api_keys?owner={member.id}"))["data"]] == [
        made["id"]
    ]
    missing = await member.refused("DELETE", "/organization/api_keys/key_" + "0" * 32, status=404)
    assert await member.refused("DELETE", f"/organization/api_keys/{theirs['id']}", status=404) == missing
    await member.ask("DELETE", f"/organization/api_keys/{made['id']}", status=204)
    assert (await home.client(authorization=f"Bearer {made['secret']}").get("/v1/organization")).status_code == 401
    assert (await member.ask("GET", "/organization/api_keys"))["data"][0]["revoked"] is True
    await admin.ask("DELETE", f"/organization/api_keys/{theirs['id']}", status=204)
    await admin.refused("DELETE", f"/organization/api_keys/{'key_' + '0' * 32}", status=404)


@pytest.mark.parametrize("scope", ["admin", "operator"])
async def test_a_member_gives_a_key_no_more_than_they_have(home: House, scope: str) -> None:
    member = await caller(home, "/api", "member")
    found = await member.refused("POST", "/organization/api_keys", {"scopes": ["model.read", scope]})
    assert (found["code"], found["param"]) == ("missing_scope", "scopes")
    assert f"`{scope}`" in found["message"]


async def test_nobody_makes_a_key_for_somebody_else(home: House, door: str) -> None:
    """It would read that person's conversations."""
    owner, admin = await caller(home, door, "owner"), await caller(home, door, "admin")
    member = await caller(home, "/api", "member")
    for maker, other in ((admin, owner), (admin, member), (owner, member), (member, admin)):
        assert (await maker.refused("POST", "/organization/api_keys", {"owner": other.id}))["param"] == "owner"
    await member.refused("POST", "/organization/api_keys", {"owner": ""})
    assert (await admin.refused("POST", "/organization/api_keys", {"owner": MISSING}, 404))["param"] == "owner"


async def test_an_admin_does_not_become_the_owner_by_a_key_that_nobody_owns(home: House, door: str) -> None:
    owner, admin = await caller(home, door, "owner"), await caller(home, door, "admin")
    for scope in ("admin", "operator", "conversations"):
        await admin.refused("POST", "/organization/api_keys", {"owner": "", "scopes": [scope]})
    made = await admin.ask("POST", "/organization/api_keys", {"owner": ""}, 201)
    assert (made["owner"], made["scopes"]) == ("", ["model.request", "model.read", "usage.read"])
    made = await owner.ask("POST", "/organization/api_keys", {"owner": "", "scopes": ["admin", "conversations"]}, 201)
    assert made["scopes"] == ["admin", "conversations"]


async def test_a_key_that_leaked_makes_no_successors(home: House) -> None:
    person, _ = await home.person("owner")
    for fields in ({"owner": person.id}, {}):
        made = await home.ports.keys.create_key(a.NewKey(tenant="local", **fields))
        for client, door in ((home.client(authorization=f"Bearer {made.secret}"), "/v1"),
                             (home.client(authorization=f"Bearer {made.secret}"), "/api"),
                             (home.client(origin="http://localhost"), "/api")):  # fmt: skip
            if "authorization" not in client.headers:
                assert (await client.post("/api/session", json={"key": made.secret})).status_code == 204
            program = Caller(client, door)
            for method, path in (("POST", "/organization/api_keys"), ("DELETE", f"/organization/api_keys/{made.id}")):
                found = await program.refused(method, path)
                assert (found["code"], "`admin`" in found["message"]) == ("missing_scope", True)


async def test_a_keys_own_bounds_are_those_of_the_keys_that_it_makes(home: House) -> None:
    project = await home.ports.projects.create_project(a.NewProject(tenant="local", name="P"))
    scopes = ("admin", "model.request")
    program = Caller(await home.key(scopes=scopes, models=("small",), project=project.id), "/v1")
    made = await program.ask("POST", "/organization/api_keys", {}, 201)
    assert (made["scopes"], made["models"], made["project"]) == (["model.request"], ["small"], project.id)
    for body, param in (
        ({"models": ["large"]}, "models"),
        ({"project": ""}, "project"),
        ({"scopes": ["usage.read"]}, "scopes"),
    ):
        assert (await program.refused("POST", "/organization/api_keys", body))["param"] == param


async def test_a_key_without_the_scope_manages_nothing_whatever_its_owners_role(home: House) -> None:
    person, _ = await home.person("owner")
    for fields in ({"owner": person.id}, {}):
        program = Caller(await home.key(scopes=("conversations", "model.request"), **fields), "/v1")
        await program.ask("GET", "/organization")
        for method, path in (
            ("PATCH", "/organization"), ("GET", "/organization/users"), ("POST", "/organization/invites"),
            ("POST", "/organization/projects"), ("GET", "/organization/service_accounts"), ("GET", "/organization/audit_logs"),
            ("GET", "/organizations"), ("GET", "/tiers"), ("GET", "/usage"), ("GET", "/usage.csv"),
        ):  # fmt: skip
            found = await program.refused(method, path)
            assert found["code"] == "missing_scope", path


@pytest.mark.parametrize(
    ("body", "param"),
    [({"scopes": []}, "scopes"), ({"scopes": ["all"]}, "scopes"), ({"scopes": "admin"}, "scopes"), ({"models": [""]}, "models"),
     ({"models": ["a\x00"]}, "models"), ({"models": ["m"] * 101}, "models"), ({"expires_in_days": 0}, "expires_in_days"),
     ({"expires_in_days": 1e9}, "expires_in_days"), ({"name": "\x00"}, "name"), ({"project": "\x00"}, "project"),
     ({"owner": "\u2028"}, "owner"), ({"secret": "sk-mine"}, "secret"), ({"tenant": "other"}, "tenant")],
)  # fmt: skip
async def test_what_cannot_be_a_key_is_named(home: House, body: dict[str, Any], param: str) -> None:
    member = await caller(home, "/api", "member")
    assert (await member.refused("POST", "/organization/api_keys", body, 400))["param"].startswith(param)


async def test_what_is_anothers_is_as_missing_as_what_never_was(home: House, door: str) -> None:
    mine, theirs = await caller(home, door, "owner"), await caller(home, door, "owner", "other")
    victim, _ = await home.person("member", "other")
    project = await theirs.ask("POST", "/organization/projects", {"name": "P"}, 201)
    account = await theirs.ask("POST", "/organization/service_accounts", {"name": "S"}, 201)
    invite = await theirs.ask("POST", "/organization/invites", {}, 201)
    key = await theirs.ask("POST", "/organization/api_keys", {}, 201)
    before = await home.actions("other")
    for method, path, body, id in (
        ("GET", "/organization/users/{}", None, victim.id), ("PATCH", "/organization/users/{}", {"role": "admin"}, victim.id),
        ("DELETE", "/organization/users/{}", None, victim.id), ("DELETE", "/organization/invites/{}", None, invite["id"]),
        ("PATCH", "/organization/projects/{}", {"name": "x"}, project["id"]),
        ("DELETE", "/organization/service_accounts/{}", None, account["id"]),
        ("DELETE", "/organization/api_keys/{}", None, key["id"]),
    ):  # fmt: skip
        missing = await mine.refused(method, path.format("x" + id[1:-1] + "0"), body, 404)
        assert await mine.refused(method, path.format(id), body, 404) == missing
    for field, id in (("owner", victim.id), ("owner", account["id"]), ("project", project["id"])):
        missing = await mine.refused("POST", "/organization/api_keys", {field: "x" + id[1:]}, 404)
        assert await mine.refused("POST", "/organization/api_keys", {field: id}, 404) == missing
    assert await home.actions("other") == before
    lists = "users", "invites", "projects", "service_accounts", "api_keys", "audit_logs"
    seen = str([await mine.ask("GET", f"/organization/{name}") for name in lists])
    assert not [id for id in (victim.id, project["id"], account["id"], invite["id"], key["id"]) if id in seen]


async def test_the_audit_log_comes_newest_first_a_page_at_a_time(home: House, door: str) -> None:
    admin = await caller(home, door, "admin")
    for name in ("a", "b", "c"):
        await admin.ask("POST", "/organization/projects", {"name": name}, 201)
    first = (await admin.ask("GET", "/organization/audit_logs?limit=2"))["data"]
    assert [set(e) for e in first] == [{"object", "seq", "at", "actor", "action", "target", "details", "hash"}] * 2
    assert first[0]["seq"] > first[1]["seq"]
    rest = (await admin.ask("GET", f"/organization/audit_logs?before={first[1]['seq']}&action=project.create"))["data"]
    assert [e["action"] for e in rest] == ["project.create"]
    assert (await admin.ask("GET", "/organization/audit_logs?actor=nobody"))["data"] == []
    by = (await admin.ask("GET", f"/organization/audit_logs?actor={first[0]['actor']}"))["data"]
    assert {e["action"] for e in by} >= {"project.create"}
    for query, param in (("limit=0", "limit"), ("limit=x", "limit"), ("before=-1", "before"), ("actor=%00", "actor")):
        assert (await admin.refused("GET", f"/organization/audit_logs?{query}", status=400))["param"] == param


async def test_owners_of_the_operators_organisation_manage_all_of_them(home: House, door: str) -> None:
    owner = await caller(home, door, "owner")
    made = await owner.ask("POST", "/organizations", {"name": "New", "tier": "plus", "region": "eu"}, 201)
    assert (made["object"], made["tier"], made["region"], made["operator"]) == ("organization", "plus", "eu", False)
    invite = made["invite"]
    assert (invite["role"], invite["path"]) == ("owner", f"/invite/{invite['token']}")
    shown = (await home.client().get(f"/api/invites/{invite['token']}")).json()
    assert (shown["organisation"], shown["role"]) == ("New", "owner")
    listed = (await owner.ask("GET", "/organizations"))["data"]
    assert {o["id"] for o in listed} == {"local", "other", made["id"]}
    patch = {"tier": "team", "monthly_budget": 7, "name": "Newer", "region": ""}
    changed = await owner.ask("PATCH", f"/organizations/{made['id']}", patch)
    assert patch.items() <= changed.items()
    assert (await owner.ask("PATCH", f"/organizations/{made['id']}", {"monthly_budget": None}))[
        "monthly_budget"
    ] is None
    await owner.refused("PATCH", "/organizations/nobody", {"name": "x"}, 404)
    assert (await owner.refused("POST", "/organizations", {"name": "x", "tier": "gold"}, 400))["param"] == "tier"
    tiers = (await owner.ask("GET", "/tiers"))["data"]
    assert {"free", "plus", "team", "enterprise"} <= {t["name"] for t in tiers}
    assert {t["object"] for t in tiers} == {"tier"}
    assert {"tier.change", "organisation.update"} <= set(await home.actions(made["id"]))


async def test_a_suspended_organisation_is_out_at_once_and_ones_own_stays(home: House, door: str) -> None:
    owner, guest = await caller(home, door, "owner"), await caller(home, door, "owner", "other")
    await owner.ask("PATCH", "/organizations/other", {"suspended": True})
    assert (await guest.http.get(f"{door}/organization")).status_code == 401
    await owner.ask("PATCH", "/organizations/other", {"suspended": False})
    assert (await guest.http.get(f"{door}/organization")).status_code == 200
    assert (await owner.refused("PATCH", "/organizations/local", {"suspended": True}, 409))["param"] == "suspended"


async def test_others_are_no_operators(home: House, door: str) -> None:
    admin, guest = await caller(home, door, "admin"), await caller(home, door, "owner", "other")
    for low in (admin, guest):
        for method, path in (("GET", "/organizations"), ("POST", "/organizations"), ("PATCH", "/organizations/other"),
                             ("GET", "/tiers")):  # fmt: skip
            await low.refused(method, path, {"name": "x"} if method != "GET" else None)


async def test_strangers_are_asked_who_they_are_before_anything_else(home: House) -> None:
    stranger = home.client()
    checked = 0
    for path, methods in home.app.openapi()["paths"].items():
        if not path.startswith(("/v1/", "/api/organization", "/api/usage", "/api/tiers", "/api/account")):
            continue
        for method in methods:
            answer = await stranger.request(method, path, json=None if method == "get" else {})
            code = "invalid_api_key" if path.startswith("/v1/") else "not_signed_in"
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, code), (method, path)
            checked += 1
    assert checked >= 50
