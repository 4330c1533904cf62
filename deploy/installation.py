"""The data folder and the database: what every command of an installation opens first."""

import os
import secrets
from contextlib import suppress
from tempfile import mkstemp

import services.accounts.store as account_store
import services.conversations.store as conversation_store
import services.ledger.store as ledger_store
from deploy.settings import ServeSettings
from gateway.auth import LOCAL
from gateway.oidc_settings import OidcSettings
from services.accounts.ports import AccountPorts
from services.accounts.roles import OidcMapping
from services.accounts.service import AccountServices
from services.accounts.sign_in import SignInService
from services.accounts.tiers import TierFile, TierSettings
from services.common.account_messages import ApiKey, KeyQuery, NewKey, NewOrganisation
from services.common.errors import InvalidRequest, NotFound
from services.common.sql import migrate, open_database


class Installation:
    """`open` it, then use `accounts`; `close` it at the end. Errors: `InvalidRequest` for settings that cannot be used."""

    accounts: AccountServices

    def __init__(self, settings: ServeSettings):
        self._settings = settings
        self.tiers = TierFile(TierSettings().tiers)
        self.database = open_database(settings.database)

    async def open(self) -> AccountPorts:
        """Errors: `InvalidRequest` for a folder, `Overloaded` for a database that cannot be used."""
        home = self._settings.home
        os.umask(0o077)  # conversations are in these files
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            pepper = self.pepper()
        except OSError as e:
            raise InvalidRequest(f"The data folder {home} cannot be used: {e.strerror}.") from e
        for component in (conversation_store, account_store, ledger_store):
            name = component.__name__.split(".")[1]
            await migrate(self.database, name, component.MIGRATIONS)
        store = account_store.AccountStore(self.database, pepper)
        self.accounts = AccountServices(store, pepper, self.tiers, SignInService(store, pepper, _mapping()))
        ports = self.accounts.ports
        await _ensure_local(ports)
        return ports

    async def close(self) -> None:
        if hasattr(self, "accounts"):
            await self.accounts.close()
        await self.database.dispose()

    def pepper(self) -> bytes:
        """Made once; whoever has the database but not this file cannot test a guessed key."""
        path = self._settings.home / "pepper"
        if not path.exists():
            # Whole or not at all, and the first of two that start together wins: keys are worth nothing without it.
            descriptor, fresh = mkstemp(dir=path.parent)
            os.write(descriptor, secrets.token_bytes(32))
            os.close(descriptor)
            with suppress(FileExistsError):
                os.link(fresh, path)
            os.unlink(fresh)
        return path.read_bytes()


def _mapping() -> OidcMapping | None:
    oidc = OidcSettings()
    if oidc.issuer is None:
        return None
    return OidcMapping(tenant=oidc.tenant, default_role=oidc.default_role, groups=oidc.group_roles)


async def _ensure_local(ports: AccountPorts) -> None:
    """The organisation of whoever runs the installation."""
    try:
        await ports.organisations.organisation(LOCAL.tenant)
    except NotFound:
        await ports.organisations.create_organisation(
            NewOrganisation(id=LOCAL.tenant, name="My organisation", tier=LOCAL.tier, operator=True)
        )


async def first_key(ports: AccountPorts) -> ApiKey:
    """The newest good key that nobody in particular owns; its secret is there only if it was made now."""
    keys = await ports.keys.keys(KeyQuery(tenant=LOCAL.tenant, owner=""))
    good = [k for k in keys if not k.revoked and k.expires is None]
    return good[-1] if good else await ports.keys.create_key(NewKey(tenant=LOCAL.tenant, name="first start"))
