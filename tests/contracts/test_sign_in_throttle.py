"""How `SignIn` holds up guesses, wherever it runs: also over several processes, and many at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable

import pytest

from services.accounts.throttle import ACCOUNT_MOST_S, ADDRESS_MOST_S, FORGET_S, FREE, KNOWN_S
from services.common import account_messages as a
from services.common.errors import NotSignedIn, TooManyAttempts
from services.common.sql import open_database
from tests.support.sign_in import ACME, GOOD, OTHER, House, account_services, house_at

OLIVE = "olive@acme.example"
HOME, ABROAD = "192.0.2.1", "198.51.100.7"


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with house_at(place, database_url) as house:
        await house.owner()
        yield house


async def enter(house: House, email: str = OLIVE, password: str = GOOD, address: str = HOME) -> a.NewSession:
    attempt = a.PasswordSignIn(email=email, password=password, address=address)
    return await house.ports.sign_in.with_password(attempt)


async def miss(house: House, email: str = OLIVE, address: str = HOME) -> None:
    with pytest.raises(NotSignedIn):
        await enter(house, email, OTHER, address)


async def held_up(attempt: Awaitable[a.NewSession]) -> float:
    with pytest.raises(TooManyAttempts) as failure:
        await attempt
    assert failure.value.retry_after is not None
    return failure.value.retry_after


async def misses(house: House, number: int, email: str = OLIVE, address: str = HOME) -> None:
    """Each as soon as it may be made."""
    for _ in range(number):
        try:
            await enter(house, email, OTHER, address)
        except TooManyAttempts as e:
            house.clock.now += e.retry_after or 0
            await miss(house, email, address)
        except NotSignedIn:
            continue


async def test_after_five_failures_each_attempt_waits_twice_as_long(house: House) -> None:
    for _ in range(FREE):
        await miss(house)
    waits = []
    for _ in range(8):
        waits.append(await held_up(enter(house, password=OTHER)))
        assert await held_up(enter(house)) == waits[-1]  # a right password waits too, and refusals cost nothing
        house.clock.now += waits[-1]
        await miss(house)
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128])


async def test_waiting_as_long_as_told_suffices(house: House) -> None:
    await misses(house, FREE + 3)
    house.clock.now += await held_up(enter(house))
    await enter(house)


async def test_waits_end_somewhere(house: House) -> None:
    await misses(house, FREE + 14)
    assert await held_up(enter(house)) == pytest.approx(ADDRESS_MOST_S)
    assert await held_up(enter(house, address=ABROAD)) == pytest.approx(ACCOUNT_MOST_S)


async def test_a_success_clears_the_account(house: House) -> None:
    for number in range(FREE * 3):
        await miss(house, address=f"203.0.113.{number // 4}")
        if number % FREE == FREE - 1:
            house.clock.now += 1
            await enter(house, address="")


async def test_a_success_does_not_clear_the_address_for_guesses_at_others(house: House) -> None:
    for number in range(FREE):
        await enter(house)
        await miss(house, f"{number}@acme.example")
    assert await held_up(enter(house)) == pytest.approx(1)


async def test_successes_from_one_address_hold_nobody_up(house: House) -> None:
    for _ in range(FREE * 4):
        await enter(house)


async def test_an_address_is_held_up_for_every_account(house: House) -> None:
    for number in range(FREE):
        await miss(house, f"{number}@acme.example")
    await held_up(enter(house))
    await enter(house, address=ABROAD)


async def test_an_account_is_held_up_for_every_new_address(house: House) -> None:
    for number in range(FREE):
        await miss(house, address=f"203.0.113.{number}")
    await held_up(enter(house))
    await held_up(enter(house, address=""))


async def test_unknown_accounts_are_held_up_like_known_ones(house: House) -> None:
    for number in range(FREE):
        await miss(house, "nobody@acme.example", f"203.0.113.{number}")
    await held_up(enter(house, "nobody@acme.example"))


async def test_guesses_from_elsewhere_do_not_hold_up_where_the_owner_has_signed_in(house: House) -> None:
    await enter(house)
    for number in range(FREE + 10):
        await misses(house, 1, address=f"203.0.113.{number}")
    await held_up(enter(house, address=ABROAD))
    await enter(house)
    for _ in range(FREE):
        await miss(house)
    await held_up(enter(house))


async def test_an_address_is_known_for_a_while(house: House) -> None:
    await enter(house)
    house.clock.now += KNOWN_S + 1
    for number in range(FREE):
        await miss(house, address=f"203.0.113.{number}")
    await held_up(enter(house))


async def test_neighbours_in_one_ipv6_network_are_one_address(house: House) -> None:
    for number in range(FREE):
        await miss(house, f"{number}@acme.example", f"2001:db8:0:1::{number}")
    await held_up(enter(house, address="2001:db8:0:1:ffff::"))
    await enter(house, address="2001:db8:0:2::1")


async def test_failures_are_forgotten_in_time(house: House) -> None:
    await misses(house, FREE + 2)
    house.clock.now += FORGET_S + 5
    for _ in range(FREE):
        await miss(house)
    assert await held_up(enter(house)) == pytest.approx(1)
    house.clock.now += FORGET_S + 61
    await enter(house, address=ABROAD)
    assert await house.count("sign_in_attempts") == 2  # one of an address, one of the pair


async def test_guesses_at_the_current_password_are_held_up(house: House) -> None:
    (olive,) = await house.ports.members.members(ACME)

    def change(current: str) -> Awaitable[None]:
        request = a.NewPassword(tenant=ACME, user_id=olive.id, new="another good one", current=current, actor=olive.id)
        return house.ports.sign_in.set_password(request)

    for _ in range(FREE):
        with pytest.raises(NotSignedIn):
            await change(OTHER)
    with pytest.raises(TooManyAttempts):
        await change(GOOD)
    await enter(house)
    house.clock.now += 1
    await change(GOOD)


async def test_fifty_guesses_at_once_are_five(house: House) -> None:
    guesses = [enter(house, password=OTHER) for _ in range(50)]
    done = await asyncio.gather(*guesses, return_exceptions=True)
    assert Counter(type(outcome).__name__ for outcome in done) == {"NotSignedIn": FREE, "TooManyAttempts": 50 - FREE}


async def test_replicas_count_together(house: House) -> None:
    engine = open_database(house.database_url)
    other = account_services(engine, house.clock)
    replica = House(other.ports, house.clock, house.database_url)
    guesses = [enter(one, password=OTHER, address=f"203.0.113.{n}") for n in range(25) for one in (house, replica)]
    done = await asyncio.gather(*guesses, return_exceptions=True)
    await other.close()
    await engine.dispose()
    assert Counter(type(outcome).__name__ for outcome in done) == {"NotSignedIn": FREE, "TooManyAttempts": 50 - FREE}
