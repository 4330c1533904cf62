"""The settings: keys, members and invites, usage, the audit log; and for whom they are there."""

import re

import httpx
import pytest
from playwright.async_api import Page, expect

from benchmarks.page_upstream import Script
from tests.e2e.accounts_page import (
    OLIVE,
    House,
    Person,
    Visit,
    ended,
    house,
    open_menu,
    row,
    shows_chat,
    title,
    visit,
)
from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import TOUCH
from tests.support.server import until

__all__ = ["house", "visit"]

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def member(house: House) -> Person:
    return house.join("Mia Member")


def status(house: House, secret: str) -> int:
    return httpx.get(f"{house.server.url}/v1/models", headers={"Authorization": f"Bearer {secret}"}).status_code


async def test_a_key_is_shown_once_works_and_is_refused_soon_after_it_is_revoked(house: House, visit: Visit) -> None:
    page = await visit(house, OLIVE, "/settings/keys")
    await page.get_by_role("button", name="Create key").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Name", exact=True)).to_be_focused()
    await dialog.get_by_label("Name", exact=True).fill("Laptop")
    await dialog.get_by_label("Only some").check()
    await dialog.get_by_role("button", name="Create key").click()
    await expect(dialog.get_by_role("alert")).to_have_text("Choose at least one model.")
    await dialog.get_by_label("script", exact=True).check()
    await dialog.get_by_role("button", name="Create key").click()
    secret = await dialog.get_by_label("API key").input_value()
    assert status(house, secret) == 200
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_visible()  # the secret would be lost
    await dialog.get_by_role("button", name="Done").click()
    await expect(page.get_by_role("button", name="Create key")).to_be_focused()
    await expect(row(page, "Laptop")).to_contain_text(f"sk-…{secret[-4:]}")
    await expect(row(page, "Laptop")).to_contain_text("Use models")
    await expect(row(page, "Laptop")).to_contain_text("script")
    assert secret not in await page.content()
    await page.get_by_role("button", name="Revoke Laptop").click()
    await expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    await page.get_by_role("button", name="Revoke key").click()
    await expect(row(page, "Laptop")).to_have_count(0)
    until(lambda: status(house, secret) == 401, 5, "the refusal of a revoked key", pause=0.1)
    await page.get_by_role("button", name=re.compile("expired or revoked")).click()
    await expect(row(page, "Laptop")).to_contain_text("Revoked")


async def test_members_see_their_own_pages_and_keys_only(house: House, visit: Visit, member: Person) -> None:
    page = await visit(house, member, "/settings/keys")
    tabs = page.get_by_role("navigation", name="Settings").get_by_role("listitem")
    await expect(tabs).to_have_text(["Account", "API keys", "Usage"])
    await expect(page.get_by_text("You have no keys in use.")).to_be_visible()
    await page.get_by_role("button", name="Create key").click()
    await page.get_by_label("Choose…").check()
    await expect(page.get_by_label("Read usage")).to_be_visible()
    await expect(page.get_by_label("Manage the organisation")).to_have_count(0)
    await page.goto("/settings/members")
    await expect(page.get_by_text("your role does not show it")).to_be_visible()


async def test_roles_change_and_the_last_owner_stays(house: House, visit: Visit) -> None:
    house.join("Rosa")
    page = await visit(house, OLIVE, "/settings/members")
    await page.get_by_label("Role of Olive Owner").select_option("member")
    await expect(page.get_by_role("alert")).to_contain_text("keeps at least one owner")
    await expect(page.get_by_label("Role of Olive Owner")).to_have_value("owner")
    await page.get_by_label("Role of Rosa").select_option("admin")
    await expect(page.get_by_text("Rosa is now admin")).to_be_attached()
    await page.reload()
    await expect(page.get_by_label("Role of Rosa")).to_have_value("admin")


async def test_admins_give_no_role_above_their_own_and_leave_owners_alone(house: House, visit: Visit) -> None:
    page = await visit(house, house.join("Abel", "admin"), "/settings/members")
    await expect(row(page, OLIVE.email)).to_contain_text("owner")
    await expect(page.get_by_label("Role of Olive Owner")).to_have_count(0)
    await expect(page.get_by_role("button", name="Remove Olive Owner")).to_have_count(0)
    roles = page.get_by_role("combobox", name="Role", exact=True).get_by_role("option")
    await expect(roles).to_have_text(["member", "admin"])


async def test_a_removed_member_is_out(house: House, visit: Visit) -> None:
    person = house.join("Gone")
    theirs = await visit(house, person)
    page = await visit(house, OLIVE, "/settings/members")
    await page.get_by_role("button", name="Remove Gone").click()
    await page.get_by_role("button", name="Remove", exact=True).click()
    await expect(row(page, person.email)).to_have_count(0)
    await ended(theirs)
    await theirs.reload()
    await expect(theirs.get_by_label("Password", exact=True)).to_be_visible()


async def test_an_invite_link_can_be_copied_and_taken_back(house: House, visit: Visit) -> None:
    page = await visit(house, OLIVE, "/settings/members")
    await page.get_by_label("E-mail (optional)").fill("new@house.example")
    await page.get_by_role("button", name="Make invite link").click()
    link = await page.get_by_label("Invite link").input_value()
    guest = await visit(house, None, link)
    await expect(guest.get_by_label("E-mail", exact=True)).to_have_value("new@house.example")
    await page.get_by_role("button", name="Revoke the invite of new@house.example").click()
    await expect(page.get_by_label("Invite link")).to_have_count(0)
    await guest.reload()
    await expect(title(guest, "This invitation can't be used")).to_be_visible()


async def test_usage_shows_what_a_turn_cost(house: House, visit: Visit, script: Script) -> None:
    page = await visit(house, house.join("Uma"))
    await ChatPage(page).ask_whole("What does this cost?")
    await page.goto("/settings/usage")
    await expect(page.get_by_role("row", name=re.compile(r"^script 1 [\d,]+ \$0\.\d+"))).to_be_visible()
    await expect(page.get_by_text("You spent this month")).to_be_visible()
    await page.get_by_label("Split by").select_option("key_id")
    await expect(row(page, "Chat page")).to_be_visible()
    day = page.get_by_role("slider", name="Day of the chart")
    today = await day.get_attribute("aria-valuetext") or ""
    assert re.match(r"\d+ \w+: \$0\.\d+", today)
    await day.press("ArrowLeft")
    await expect(day).to_have_attribute("aria-valuetext", re.compile(r"\$0\.00"))
    await page.get_by_role("button", name="Show the days as a table").click()
    await expect(page.get_by_role("region", name="Use by day").get_by_role("row")).to_have_count(2)
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download CSV").click()
    path = await (await download.value).path()
    assert "script" in path.read_text()


async def test_usage_is_explained_where_there_is_none(house: House, visit: Visit) -> None:
    page = await visit(house, house.join("Nils"), "/settings/usage")
    await expect(page.get_by_text("Nothing was used in this period.")).to_be_visible()


async def test_the_audit_log_says_who_did_what(house: House, visit: Visit) -> None:
    house.invite(role="admin")
    page = await visit(house, OLIVE, "/settings/audit")
    await expect(row(page, "created an invite").first).to_contain_text(OLIVE.name)
    await expect(row(page, "created an invite").first).to_contain_text("role: admin")


async def test_projects_and_service_accounts_own_keys(house: House, visit: Visit) -> None:
    page = await visit(house, OLIVE, "/settings/projects")
    await page.get_by_label("New project").fill("Research")
    await page.get_by_role("button", name="Create project").click()
    await expect(row(page, "Research")).to_be_visible()
    await page.get_by_label("New service account").fill("Nightly job")
    await page.get_by_role("button", name="Create service account").click()
    await expect(row(page, "Nightly job")).to_be_visible()
    await page.get_by_role("link", name="API keys").click()
    await page.get_by_role("button", name="Create key").click()
    await page.get_by_role("dialog").get_by_label("Name", exact=True).fill("For the job")
    await page.get_by_label("Owner").select_option("Nightly job")
    await page.get_by_label("Project").select_option("Research")
    await page.get_by_role("dialog").get_by_role("button", name="Create key").click()
    await page.get_by_role("button", name="Done").click()
    await expect(row(page, "For the job")).to_contain_text("Nightly job")
    await expect(row(page, "For the job")).to_contain_text("Research")
    await page.get_by_role("link", name="Projects").click()
    await page.get_by_role("button", name="Archive: Research").click()
    await expect(row(page, "Research")).to_contain_text("Archived")


async def test_settings_lie_over_the_chat_and_the_back_button_leads_through_them(house: House, visit: Visit) -> None:
    page = await visit(house, OLIVE)
    await shows_chat(page)
    await page.get_by_role("textbox", name="Message", exact=True).fill("Half a thought")
    await open_menu(page)
    await expect(page.get_by_role("link", name="Settings")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(title(page, "Account")).to_be_focused()
    await page.get_by_role("link", name="Usage").press("Enter")
    await expect(title(page, "Usage")).to_be_visible()
    await expect(page.get_by_role("link", name="Usage")).to_have_attribute("aria-current", "page")
    assert page.url.endswith("/settings/usage")
    await page.go_back()
    await expect(title(page, "Account")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("textbox", name="Message", exact=True)).to_have_value("Half a thought")
    await expect(page.get_by_role("button", name="Account:")).to_be_focused()


async def test_on_a_phone_the_settings_are_a_list_and_its_pages(house: House, visit: Visit) -> None:
    page = await visit(house, OLIVE, **TOUCH)
    await page.get_by_role("button", name="Show conversations").click()
    await open_menu(page)
    await page.get_by_role("link", name="Settings").click()
    await expect(title(page, "Settings")).to_be_focused()
    await page.get_by_role("link", name="API keys").click()
    await expect(title(page, "API keys")).to_be_focused()
    await expect(page.get_by_role("link", name="Usage")).to_have_count(0)
    await page.get_by_role("link", name="Settings").click()
    await page.get_by_role("link", name="Back to chat").click()
    await shows_chat(page)


async def test_the_settings_are_not_loaded_before_they_are_opened(house: House, visit: Visit) -> None:
    page = await visit(house, OLIVE)
    await shows_chat(page)
    loaded: list[str] = await page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    assert len(loaded) <= 9
    assert [name for name in loaded if re.search("Settings|SignIn|Invite", name)] == []
    await open_menu(page)
    await page.get_by_role("link", name="Settings").click()
    await expect(title(page, "Account")).to_be_visible()


async def _set_budget(page: Page, amount: str) -> None:
    await open_menu(page)
    await page.get_by_role("link", name="Settings").click()
    await page.get_by_role("link", name="Usage").click()
    await page.get_by_role("button", name="Change budget").click()
    await page.get_by_label("Monthly budget in USD").fill("much")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("such as 50")
    await page.get_by_label("Monthly budget in USD").fill(amount)
    await page.keyboard.press("Enter")
    # A server may remember the former one for some seconds; the page asks again then.
    await expect(page.get_by_text("The budget is used up")).to_be_visible(timeout=15_000)


async def test_a_used_up_budget_leads_to_the_usage_page(house: House, visit: Visit, script: Script) -> None:
    page = await visit(house, OLIVE)
    await ChatPage(page).ask_whole("Spend something.")
    with house.client(OLIVE) as http:
        try:
            await _set_budget(page, "0.000001")
            await page.get_by_role("link", name="Back to chat").click()
            await ChatPage(page).ask("One more.")
            await expect(page.get_by_role("alert")).to_contain_text("budget")
            await page.get_by_role("link", name="See Settings → Usage").click()
            await expect(page.get_by_text("The budget is used up")).to_be_visible()
        finally:
            assert http.patch("/api/organization", json={"monthly_budget": None}).is_success
