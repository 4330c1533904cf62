"""The ports of services.accounts. What belongs to another organisation is `NotFound`, like what never was.

Every deed is in the audit log when the method returns. Texts that people give are checked here: `InvalidRequest`
names the field.
"""

from collections.abc import Sequence
from typing import Protocol

from services.common import account_messages as a


class Keys(Protocol):
    async def authenticate(self, secret: str) -> a.Principal:
        """Errors: `InvalidApiKey`, for an unknown, malformed, expired or revoked key, and for one whose owner, project
        or organisation is gone, archived or suspended."""
        ...

    async def create_key(self, request: a.NewKey) -> a.ApiKey:
        """With its secret, which is never shown again. Errors: `NotFound` for an owner or project that is not there."""
        ...

    async def keys(self, query: a.KeyQuery) -> Sequence[a.ApiKey]:
        """Oldest first, revoked ones included."""
        ...

    async def revoke_key(self, ref: a.Ref) -> None:
        """Revoking again does nothing. Sessions that the key opened end with it."""
        ...


class Sessions(Protocol):
    """Who is signed in to the web app."""

    async def open(self, session: a.NewSession) -> str:
        """A token, to be kept in the browser's cookie and nowhere else."""
        ...

    async def resolve(self, token: str) -> a.Principal:
        """Errors: `NotSignedIn`, for an unknown, malformed, closed or expired token alike, and for one whose user or key
        is gone."""
        ...

    async def close(self, token: str) -> None:
        """Closing what is not open does nothing."""
        ...

    async def close_all(self, user: a.Ref) -> None:
        """Signs a user out everywhere."""
        ...


class Organisations(Protocol):
    async def create_organisation(self, request: a.NewOrganisation) -> a.Organisation:
        """Errors: `InvalidRequest` for a tier that is not in the tiers file, `Conflict` for an id that is taken."""
        ...

    async def organisation(self, id: str) -> a.Organisation: ...

    async def organisations(self) -> Sequence[a.Organisation]: ...

    async def update_organisation(self, patch: a.OrganisationPatch) -> a.Organisation: ...


class Members(Protocol):
    """The last owner of an organisation can neither be removed nor made less: `Conflict`. An actor who may not do so now,
    whatever the caller has checked before, neither: `Forbidden`."""

    async def members(self, tenant: str) -> Sequence[a.Member]: ...

    async def member(self, ref: a.Ref) -> a.Member: ...

    async def update_member(self, patch: a.MemberPatch) -> a.Member: ...

    async def remove_member(self, ref: a.Ref) -> None:
        """The account, its sessions and its keys."""
        ...


class Projects(Protocol):
    async def create_project(self, request: a.NewProject) -> a.Project: ...

    async def projects(self, tenant: str) -> Sequence[a.Project]: ...

    async def update_project(self, patch: a.ProjectPatch) -> a.Project: ...


class ServiceAccounts(Protocol):
    async def create_service_account(self, request: a.NewServiceAccount) -> a.ServiceAccount: ...

    async def service_accounts(self, tenant: str) -> Sequence[a.ServiceAccount]: ...

    async def remove_service_account(self, ref: a.Ref) -> None:
        """With its keys."""
        ...


class Invites(Protocol):
    async def create_invite(self, request: a.NewInvite) -> a.Invite:
        """With its token, which is never shown again."""
        ...

    async def invites(self, tenant: str) -> Sequence[a.Invite]: ...

    async def invite(self, token: str) -> a.Invite:
        """What an invite link shows before it is accepted. Errors: `NotFound` for one that is unknown, used or expired, and
        for one whose maker may not make it any more."""
        ...

    async def remove_invite(self, ref: a.Ref) -> None: ...


class SignIn(Protocol):
    """Each gives the session to open. Errors: `NotSignedIn` for wrong and for unknown alike, in the same time;
    `TooManyAttempts` with `retry_after` for guesses."""

    async def empty(self) -> bool:
        """No user exists yet: the first to register becomes the owner."""
        ...

    async def with_password(self, attempt: a.PasswordSignIn) -> a.NewSession: ...

    async def with_identity(self, identity: a.ExternalIdentity) -> a.NewSession:
        """Makes the account where the mapping of groups allows it. One with the same e-mail that nobody vouched for ends,
        and is made anew. Errors: `Forbidden` where the mapping does not allow it."""
        ...

    async def register(self, request: a.Registration) -> a.NewSession:
        """Errors: `Conflict` for an e-mail that is taken, `NotFound` for a bad invite, `Forbidden` without one."""
        ...

    async def set_password(self, request: a.NewPassword) -> None:
        """Signs the user out everywhere."""
        ...


class Audit(Protocol):
    async def append(self, entry: a.AuditEntry) -> a.AuditEntry:
        """The entry with its place in the chain, durable when this returns."""
        ...

    async def entries(self, query: a.AuditQuery) -> Sequence[a.AuditEntry]: ...

    async def verify(self) -> a.AuditReport: ...
