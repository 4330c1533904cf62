"""Every port of accounts, in this process, on one database."""

import time
from collections.abc import Callable

from services.accounts.audit import AuditLog
from services.accounts.invites import InviteService
from services.accounts.keys import KeyService
from services.accounts.members import MemberService
from services.accounts.organisations import OrganisationService
from services.accounts.ports import AccountPorts
from services.accounts.projects import ProjectService, ServiceAccountService
from services.accounts.sessions import SessionTokens
from services.accounts.store import AccountStore
from services.common.account_ports import SignIn
from services.common.usage_ports import Tiers

Clock = Callable[[], float]


class AccountServices:
    """`ports` ask the database each time: see cache.py. `close` them before the database."""

    def __init__(
        self, store: AccountStore, pepper: bytes, tiers: Tiers, sign_in: SignIn, clock: Clock = time.time
    ):  # fmt: skip
        self._keys = KeyService(store, pepper, clock)
        self.ports = AccountPorts(
            keys=self._keys,
            sessions=SessionTokens(store, pepper, clock),
            sign_in=sign_in,
            organisations=OrganisationService(store, tiers, clock),
            members=MemberService(store, clock),
            projects=ProjectService(store, clock),
            service_accounts=ServiceAccountService(store, clock),
            invites=InviteService(store, pepper, clock),
            audit=AuditLog(store, clock),
        )

    async def close(self) -> None:
        """Waits for what is still being written behind the requests."""
        await self._keys.close()
