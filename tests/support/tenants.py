"""Organisations and keys of a running server, made on its own database as the command line makes them."""

import asyncio
from pathlib import Path

from deploy.installation import Installation
from deploy.settings import ServeSettings
from services.accounts.ports import AccountPorts
from services.accounts.tiers import TierFile
from services.common.account_messages import NewKey, NewOrganisation


def new_key(home: Path, tenant: str, *, tier: str = "enterprise", tiers: Path | None = None, **fields: object) -> str:
    """A secret of the organisation, which is made if there is none. tiers: the file that the server reads."""

    async def make(accounts: AccountPorts) -> str:
        if tenant not in {o.id for o in await accounts.organisations.organisations()}:
            await accounts.organisations.create_organisation(NewOrganisation(id=tenant, name=tenant, tier=tier))
        key = await accounts.keys.create_key(NewKey(tenant=tenant, name="tests", **fields))  # type: ignore[arg-type]
        assert key.secret
        return key.secret

    async def opened() -> str:
        installation = Installation(ServeSettings(home=home))
        installation.tiers = TierFile(tiers)
        try:
            return await make(await installation.open())
        finally:
            await installation.close()

    return asyncio.run(opened())
