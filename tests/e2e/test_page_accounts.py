"""Getting in and out: passwords, invitations, single sign-on, the first account, and who comes after whom."""

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from benchmarks.page_upstream import Script
from tests.e2e.accounts_page import (
    OLIVE,
    House,
    Person,
    Visit,
    ended,
    house,
    open_menu,
    shows_chat,
    sign_in,
    title,
    visit,
)
from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import MakeServer
from tests.support.oidc_provider import OidcProvider
from tests.support.oidc_provider import Person as Known
from tests.support.server import Server

__all__ = ["house", "visit"]

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_the_first_account_keeps_the_conversations_and_signs_in_by_password(
    visit: Visit, start_scripted: MakeServer
) -> None:
    server = start_scripted()
    page = await visit(House(server), None)
    await expect(page.get_by_text("This server has no account yet")).to_be_visible()
    await page.goto(server.signin)
    await ChatPage(page).ask_whole("Asked before there were accounts.")
    await open_menu(page)
    await page.get_by_role("link", name="Settings").click()
    await page.get_by_role("button", name="Create your account").click()
    await page.get_by_label("Name", exact=True).fill(OLIVE.name)
    await page.get_by_label("E-mail", exact=True).fill(OLIVE.email)
    await page.get_by_label("Password", exact=True).fill("password")
    await page.get_by_role("button", name="Create account").click()
    await expect(page.get_by_role("alert")).to_contain_text("guessed first")
    await page.get_by_label("Password", exact=True).fill(OLIVE.password)
    await page.get_by_role("button", name="Create account").click()
    await expect(page.get_by_role("heading", name="Profile")).to_be_visible()
    await page.get_by_role("link", name="Back to chat").click()
    await open_menu(page)
    await page.get_by_role("button", name="Sign out").click()
    await sign_in(page, OLIVE)
    await expect(page.get_by_role("link", name="Asked before there were accounts.")).to_be_visible()
    await expect(await open_menu(page)).to_contain_text(OLIVE.name)


async def test_a_wrong_password_is_said_beside_the_form_and_the_right_one_signs_in(house: House, visit: Visit) -> None:
    page = await visit(house, None)
    await expect(page.get_by_label("E-mail", exact=True)).to_be_focused()
    await expect(page.get_by_label("E-mail", exact=True)).to_have_attribute("autocomplete", "username")
    await expect(page.get_by_label("Password", exact=True)).to_have_attribute("autocomplete", "current-password")
    await sign_in(page, OLIVE, "not her password")
    await expect(page.get_by_role("alert")).to_contain_text("The e-mail or the password is wrong.")
    await expect(page.get_by_label("Password", exact=True)).to_be_focused()
    await sign_in(page, OLIVE)
    await shows_chat(page)


async def test_guesses_are_held_up_and_the_button_says_for_how_long(visit: Visit, start_scripted: MakeServer) -> None:
    server = start_scripted()
    House(server).settle()
    page = await visit(House(server), None)
    button = page.get_by_role("button", name=re.compile("^(Sign in|Try again)"))
    House(server).guess(OLIVE)
    await sign_in(page, OLIVE)
    await expect(button).to_have_text(re.compile(r"Try again in \d+ s"))
    await expect(button).to_be_disabled()
    await expect(page.get_by_role("alert")).to_contain_text("Too many attempts")
    await expect(button).to_have_text("Sign in")
    await button.click()
    await shows_chat(page)


async def test_a_server_that_is_away_is_said_and_what_was_typed_stays(house: House, visit: Visit) -> None:
    page = await visit(house, None)
    await expect(page.get_by_label("E-mail", exact=True)).to_be_focused()
    await page.context.set_offline(True)
    await sign_in(page, OLIVE)
    await expect(page.get_by_role("alert")).to_contain_text("The server can't be reached.")
    await page.context.set_offline(False)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await shows_chat(page)


async def test_an_api_key_still_signs_in(house: House, visit: Visit) -> None:
    page = await visit(house, None)
    await page.get_by_role("button", name="Use an API key instead").click()
    await page.get_by_label("API key").fill(house.server.key)
    await page.keyboard.press("Enter")
    await shows_chat(page)


async def test_an_invitation_makes_one_account(house: House, visit: Visit) -> None:
    path = house.invite(role="member", email="ivan@house.example")
    page = await visit(house, None, path)
    await expect(title(page, "Join My organisation")).to_be_visible()
    await expect(page.get_by_text("You are invited as a member")).to_be_visible()
    await expect(page.get_by_label("E-mail", exact=True)).to_have_value("ivan@house.example")
    await page.get_by_label("Name", exact=True).fill("Ivan")
    await page.get_by_label("Password", exact=True).fill("seven eight nine")
    await page.get_by_role("button", name="Create account").click()
    await shows_chat(page)
    await open_menu(page)
    await expect(page.get_by_text("· member")).to_be_visible()
    again = await visit(house, None, path)
    await expect(title(again, "This invitation can't be used")).to_be_visible()
    await again.get_by_role("link", name="Go to sign in").click()
    await expect(again.get_by_label("Password", exact=True)).to_be_visible()


async def test_an_invitation_says_at_the_field_that_an_address_is_taken(house: House, visit: Visit) -> None:
    page = await visit(house, None, house.invite(role="member"))
    await page.get_by_label("Name", exact=True).fill("Olive again")
    await page.get_by_label("E-mail", exact=True).fill(OLIVE.email)
    await page.get_by_label("Password", exact=True).fill(OLIVE.password)
    await page.get_by_role("button", name="Create account").click()
    await expect(page.get_by_label("E-mail", exact=True)).to_have_accessible_description(
        re.compile("account with this e-mail")
    )


async def test_signing_out_everywhere_ends_the_other_browsers_too(house: House, visit: Visit) -> None:
    person = house.join("Everett")
    here, there = await visit(house, person, "/settings/account"), await visit(house, person)
    await shows_chat(there)
    await here.get_by_role("button", name="Sign out everywhere").click()
    await expect(here.get_by_role("button", name="Cancel")).to_be_focused()
    await here.get_by_role("button", name="Sign out everywhere", exact=True).click()
    await expect(here.get_by_label("Password", exact=True)).to_be_visible()
    await ended(there)
    await there.reload()
    await expect(there.get_by_label("Password", exact=True)).to_be_visible()


async def test_nobody_sees_what_the_person_before_had_typed(house: House, visit: Visit) -> None:
    first, second = house.join("Fiona"), house.join("Sven")
    page = await visit(house, first)
    chat = ChatPage(page)
    await chat.composer.fill("Only for Fiona's eyes")
    await page.context.clear_cookies()
    await (
        page.get_by_role("textbox", name="Search conversations")
        .or_(page.get_by_role("searchbox", name="Search conversations"))
        .fill("anything")
    )
    await expect(page.get_by_text("Your session has ended.")).to_be_visible()
    await sign_in(page, second)
    await expect(chat.composer).to_have_value("")
    await expect(await open_menu(page)).to_contain_text("Sven")
    assert "Fiona" not in await page.evaluate("JSON.stringify(localStorage)")


async def test_single_sign_on_has_a_button_and_its_failure_has_words(visit: Visit, start_scripted_oidc: Server) -> None:
    page = await visit(House(start_scripted_oidc), None)
    await page.get_by_role("link", name="Sign in with Test provider").click()
    await page.get_by_role("button", name="Deny").click()
    await expect(page.get_by_role("alert")).to_contain_text("The identity provider did not sign you in.")
    assert "signin_error" not in page.url
    await page.get_by_role("link", name="Sign in with Test provider").click()
    await page.get_by_label("E-mail", exact=True).fill("ada@example.com")
    await page.get_by_label("Password").fill("correct horse")
    await page.get_by_role("button", name="Sign in").click()
    await shows_chat(page)
    await page.goto("/settings/account")
    await expect(page.get_by_role("button", name="Set password")).to_be_visible()


@pytest.fixture
def start_scripted_oidc(script: Script, start_server: MakeServer) -> Iterator[Server]:
    """A server with a provider behind it, and an account, so that it does not ask for the first one."""
    with OidcProvider() as provider:
        provider.people = [Known()]
        server = start_server(
            model="script", UPSTREAM_URL=script.url, OIDC_DEFAULT_ROLE="member", **provider.settings()
        )
        House(server).settle()
        yield server


async def test_a_changed_password_ends_every_other_session(house: House, visit: Visit) -> None:
    person = house.join("Petra")
    here, there = await visit(house, person, "/settings/account"), await visit(house, person)
    await here.get_by_label("Current password").fill("not this one")
    await here.get_by_label("New password").fill("quite another one")
    await here.get_by_role("button", name="Change password").click()
    await expect(here.get_by_label("Current password")).to_have_accessible_description(re.compile("not right"))
    await here.get_by_label("Current password").fill(person.password)
    await here.get_by_role("button", name="Change password").click()
    await expect(here.get_by_text("You are signed out everywhere else.")).to_be_visible()
    await ended(there)
    await there.reload()
    await sign_in(there, Person(person.name, person.email, "quite another one"))
    await shows_chat(there)
    await here.reload()
    await expect(title(here, "Account")).to_be_visible()
