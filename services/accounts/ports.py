"""Every port of accounts, wherever it is kept: in this process (service.py) or in another (client.py)."""

from dataclasses import dataclass

from services.common.account_ports import (
    Audit,
    Invites,
    Keys,
    Members,
    Organisations,
    Projects,
    ServiceAccounts,
    Sessions,
    SignIn,
)


@dataclass(frozen=True)
class AccountPorts:
    keys: Keys
    sessions: Sessions
    sign_in: SignIn
    organisations: Organisations
    members: Members
    projects: Projects
    service_accounts: ServiceAccounts
    invites: Invites
    audit: Audit
