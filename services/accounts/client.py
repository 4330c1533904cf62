"""Every port of accounts, kept by another process."""

from collections.abc import Sequence

import aiohttp

from services.accounts.ports import AccountPorts
from services.common import account_messages as a
from services.common.http import Peer


def connect(base_url: str, session: aiohttp.ClientSession) -> AccountPorts:
    def peer(port: str) -> Peer:
        return Peer(f"{base_url.rstrip('/')}/{port}", session)

    return AccountPorts(
        keys=KeysClient(peer("keys")),
        sessions=SessionsClient(peer("sessions")),
        sign_in=SignInClient(peer("sign_in")),
        organisations=OrganisationsClient(peer("organisations")),
        members=MembersClient(peer("members")),
        projects=ProjectsClient(peer("projects")),
        service_accounts=ServiceAccountsClient(peer("service_accounts")),
        invites=InvitesClient(peer("invites")),
        audit=AuditClient(peer("audit")),
    )


class _Client:
    def __init__(self, peer: Peer):
        self._peer = peer


class KeysClient(_Client):
    async def authenticate(self, secret: str) -> a.Principal:
        return await self._peer.call("authenticate", secret, a.Principal)

    async def create_key(self, request: a.NewKey) -> a.ApiKey:
        return await self._peer.call("create_key", request, a.ApiKey)

    async def keys(self, query: a.KeyQuery) -> Sequence[a.ApiKey]:
        return await self._peer.call("keys", query, tuple[a.ApiKey, ...])

    async def revoke_key(self, ref: a.Ref) -> None:
        await self._peer.call("revoke_key", ref, None)


class SessionsClient(_Client):
    async def open(self, session: a.NewSession) -> str:
        return await self._peer.call("open", session, str)

    async def resolve(self, token: str) -> a.Principal:
        return await self._peer.call("resolve", token, a.Principal)

    async def close(self, token: str) -> None:
        await self._peer.call("close", token, None)

    async def close_all(self, user: a.Ref) -> None:
        await self._peer.call("close_all", user, None)


class SignInClient(_Client):
    async def empty(self) -> bool:
        return await self._peer.call("empty", None, bool)

    async def with_password(self, attempt: a.PasswordSignIn) -> a.NewSession:
        return await self._peer.call("with_password", attempt, a.NewSession)

    async def with_identity(self, identity: a.ExternalIdentity) -> a.NewSession:
        return await self._peer.call("with_identity", identity, a.NewSession)

    async def register(self, request: a.Registration) -> a.NewSession:
        return await self._peer.call("register", request, a.NewSession)

    async def set_password(self, request: a.NewPassword) -> None:
        await self._peer.call("set_password", request, None)


class OrganisationsClient(_Client):
    async def create_organisation(self, request: a.NewOrganisation) -> a.Organisation:
        return await self._peer.call("create_organisation", request, a.Organisation)

    async def organisation(self, id: str) -> a.Organisation:
        return await self._peer.call("organisation", id, a.Organisation)

    async def organisations(self) -> Sequence[a.Organisation]:
        return await self._peer.call("organisations", None, tuple[a.Organisation, ...])

    async def update_organisation(self, patch: a.OrganisationPatch) -> a.Organisation:
        return await self._peer.call("update_organisation", patch, a.Organisation)


class MembersClient(_Client):
    async def members(self, tenant: str) -> Sequence[a.Member]:
        return await self._peer.call("members", tenant, tuple[a.Member, ...])

    async def member(self, ref: a.Ref) -> a.Member:
        return await self._peer.call("member", ref, a.Member)

    async def update_member(self, patch: a.MemberPatch) -> a.Member:
        return await self._peer.call("update_member", patch, a.Member)

    async def remove_member(self, ref: a.Ref) -> None:
        await self._peer.call("remove_member", ref, None)


class ProjectsClient(_Client):
    async def create_project(self, request: a.NewProject) -> a.Project:
        return await self._peer.call("create_project", request, a.Project)

    async def projects(self, tenant: str) -> Sequence[a.Project]:
        return await self._peer.call("projects", tenant, tuple[a.Project, ...])

    async def update_project(self, patch: a.ProjectPatch) -> a.Project:
        return await self._peer.call("update_project", patch, a.Project)


class ServiceAccountsClient(_Client):
    async def create_service_account(self, request: a.NewServiceAccount) -> a.ServiceAccount:
        return await self._peer.call("create_service_account", request, a.ServiceAccount)

    async def service_accounts(self, tenant: str) -> Sequence[a.ServiceAccount]:
        return await self._peer.call("service_accounts", tenant, tuple[a.ServiceAccount, ...])

    async def remove_service_account(self, ref: a.Ref) -> None:
        await self._peer.call("remove_service_account", ref, None)


class InvitesClient(_Client):
    async def create_invite(self, request: a.NewInvite) -> a.Invite:
        return await self._peer.call("create_invite", request, a.Invite)

    async def invites(self, tenant: str) -> Sequence[a.Invite]:
        return await self._peer.call("invites", tenant, tuple[a.Invite, ...])

    async def invite(self, token: str) -> a.Invite:
        return await self._peer.call("invite", token, a.Invite)

    async def remove_invite(self, ref: a.Ref) -> None:
        await self._peer.call("remove_invite", ref, None)


class AuditClient(_Client):
    async def append(self, entry: a.AuditEntry) -> a.AuditEntry:
        return await self._peer.call("append", entry, a.AuditEntry)

    async def entries(self, query: a.AuditQuery) -> Sequence[a.AuditEntry]:
        return await self._peer.call("entries", query, tuple[a.AuditEntry, ...])

    async def verify(self) -> a.AuditReport:
        return await self._peer.call("verify", None, a.AuditReport)
