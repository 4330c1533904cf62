"""What travels through the account ports: organisations and the people, projects and secrets in them.

`tenant` is the id of an organisation; `actor` says who did a deed, for the audit log: the id of a user or key, "cli" or
"system". Times are seconds since the epoch (UTC), money is in integer micro-units of the price table's currency.
"""

from typing import Literal

from msgspec import Struct

from services.common.messages import Json

Role = Literal["owner", "admin", "member"]
ROLES: tuple[Role, ...] = ("member", "admin", "owner")
"""In ascending order of rights."""
Scope = Literal["model.request", "model.read", "conversations", "usage.read", "admin", "operator"]
"""What a key may do. admin: manage its organisation. operator: manage all of them."""
USER_SCOPES: tuple[Scope, ...] = ("model.request", "model.read", "conversations", "usage.read")
"""Those of a key that names none."""


class Ref(Struct, frozen=True):
    """Names one thing of an organisation; another organisation's is as missing as one that never was."""

    tenant: str
    id: str
    actor: str = "system"


class Organisation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str
    tier: str = "free"
    region: str = ""
    """Where its content is stored and computed; "" is wherever the installation is."""
    monthly_budget: int | None = None
    """Below the tier's; None: the tier's alone counts."""
    suspended: bool = False
    operator: bool = False
    """Its owners run the installation: they manage every organisation."""
    created: float = 0.0


class NewOrganisation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    id: str | None = None
    tier: str = "free"
    region: str = ""
    operator: bool = False
    actor: str = "system"


class OrganisationPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None leaves a field as it is; a monthly_budget of -1 takes the limit away."""

    id: str
    name: str | None = None
    tier: str | None = None
    region: str | None = None
    monthly_budget: int | None = None
    suspended: bool | None = None
    actor: str = "system"


class Member(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user. Belongs to one organisation."""

    id: str
    tenant: str
    email: str
    name: str = ""
    role: Role = "member"
    space: str = ""
    """Where this person's conversations are kept; nobody else's are kept there."""
    has_password: bool = False
    created: float = 0.0
    last_seen: float | None = None


class MemberPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    id: str
    name: str | None = None
    role: Role | None = None
    actor: str = "system"


class NewPassword(Struct, frozen=True, kw_only=True):
    tenant: str
    user_id: str
    new: str
    current: str | None = None
    """None: an operator sets it on the command line, or the user has none yet."""
    actor: str = "system"

    def __repr__(self) -> str:
        return f"NewPassword(user_id={self.user_id!r})"


class Project(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    tenant: str
    name: str
    archived: bool = False
    """Its keys are refused."""
    created: float = 0.0


class NewProject(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    name: str
    actor: str = "system"


class ProjectPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    id: str
    name: str | None = None
    archived: bool | None = None
    actor: str = "system"


class ServiceAccount(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The owner of keys that no person owns."""

    id: str
    tenant: str
    name: str
    project: str = ""
    created: float = 0.0


class NewServiceAccount(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    name: str
    project: str = ""
    actor: str = "system"


class Invite(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    tenant: str
    email: str
    """The only address that may use it; "": whoever has the link."""
    role: Role = "member"
    created: float = 0.0
    expires: float = 0.0
    accepted_by: str = ""
    organisation: str = ""
    """Its name, for the page that shows the invitation."""
    token: str | None = None
    """Present once, in the answer that made the invite."""

    def __repr__(self) -> str:
        return f"Invite(id={self.id!r}, tenant={self.tenant!r})"


class NewInvite(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    email: str = ""
    role: Role = "member"
    lifetime_s: float = 7 * 24 * 3600.0
    actor: str = "system"


class NewKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    name: str = ""
    owner: str = ""
    """The id of a user or service account; "": the organisation itself."""
    project: str = ""
    scopes: tuple[Scope, ...] = USER_SCOPES
    models: tuple[str, ...] = ()
    """The models that it may use; () is all that its organisation may."""
    expires: float | None = None
    actor: str = "system"


class ApiKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    tenant: str
    name: str
    hint: str
    """The last four characters, to tell keys apart."""
    created: float
    owner: str = ""
    project: str = ""
    scopes: tuple[Scope, ...] = USER_SCOPES
    models: tuple[str, ...] = ()
    expires: float | None = None
    last_used: float | None = None
    """Exact to a minute."""
    revoked: bool = False
    secret: str | None = None
    """Present once, in the answer that made the key."""

    def __repr__(self) -> str:
        return f"ApiKey(id={self.id!r}, tenant={self.tenant!r}, name={self.name!r}, hint={self.hint!r})"


class KeyQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """owner, project: None for any."""

    tenant: str
    owner: str | None = None
    project: str | None = None


class Principal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who is asking, and what the request may do. Everything that is stored belongs to a tenant."""

    tenant: str
    key_id: str = ""
    user_id: str = ""
    """The person, or the service account, that acts; "" for the organisation itself."""
    space: str = ""
    """Where the caller's conversations are kept."""
    project: str = ""
    role: Role = "member"
    scopes: tuple[Scope, ...] = USER_SCOPES
    models: tuple[str, ...] = ()
    tier: str = "free"
    region: str = ""
    monthly_budget: int | None = None

    @property
    def actor(self) -> str:
        return self.key_id or self.user_id or "owner"


class NewSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """user_id "" and key_id "": the owner of the machine, who has no account yet."""

    tenant: str
    user_id: str = ""
    key_id: str = ""
    """The key that was shown to sign in: the session ends with it."""


class PasswordSignIn(Struct, frozen=True, kw_only=True):
    email: str
    password: str
    address: str = ""
    """Where the attempt came from: guesses are throttled for each address and each account."""

    def __repr__(self) -> str:
        return "PasswordSignIn(…)"


class ExternalIdentity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody whom an OIDC provider has vouched for. The pair (issuer, subject) names them for ever; e-mails change."""

    issuer: str
    subject: str
    email: str
    email_verified: bool = False
    name: str = ""
    groups: tuple[str, ...] = ()


class Registration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person who makes an account: by an invite, or as the first user of an empty installation."""

    email: str
    password: str
    name: str = ""
    invite: str = ""
    """The token of an invite link; "": this is the first user, who becomes the owner of `tenant`."""
    tenant: str = ""
    space: str = ""
    """The space that the first user takes over."""

    def __repr__(self) -> str:
        return "Registration(…)"


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One deed. The log is append-only; each entry's hash covers the entry and the hash before it."""

    tenant: str
    actor: str
    action: str
    """`noun.verb`: key.create, key.revoke, member.role, tier.change, conversation.delete, signin.failed …"""
    target: str = ""
    details: Json = {}
    """Never a secret, never content."""
    seq: int = 0
    at: float = 0.0
    hash: str = ""


class AuditQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Newest first. before: only entries with a smaller seq. tenant None: of every organisation."""

    tenant: str | None
    before: int | None = None
    actor: str | None = None
    action: str | None = None
    limit: int = 50


class AuditReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    entries: int
    head: str
    """The last entry's hash: kept elsewhere, it also shows whether the end was cut off."""
    broken_at: int | None = None
    """The first seq whose entry or place in the chain is not what was written; None: the log is whole."""
    reason: str = ""
