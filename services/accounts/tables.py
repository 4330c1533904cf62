"""The tables of accounts. SQLite and PostgreSQL."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, Table, Text

metadata = MetaData()

organisations = Table(
    "organisations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("monthly_budget", BigInteger),
    Column("suspended", Boolean, nullable=False),
    Column("operator", Boolean, nullable=False),
    Column("created", Double, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("email", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("space", Text, nullable=False, unique=True),
    Column("password", Text),
    Column("created", Double, nullable=False),
    Column("last_seen", Double),
    Column("verified", Boolean, nullable=False),
    Index("users_of_tenant", "tenant", "created"),
)
"""verified: somebody who is believed has said that the e-mail is this person's."""

identities = Table(
    "identities",
    metadata,
    Column("issuer", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Index("identities_of_user", "user_id"),
)

projects = Table(
    "projects",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("archived", Boolean, nullable=False),
    Column("created", Double, nullable=False),
    Index("projects_of_tenant", "tenant", "created"),
)

service_accounts = Table(
    "service_accounts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created", Double, nullable=False),
    Index("service_accounts_of_tenant", "tenant", "created"),
)

invites = Table(
    "invites",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("digest", Text, nullable=False, unique=True),
    Column("email", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("accepted_by", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Index("invites_of_tenant", "tenant", "created"),
)
"""made_by: the actor; "" for one that was made before this was noted."""

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("digest", Text, nullable=False, unique=True),
    Column("owner", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("models", Text, nullable=False),
    Column("expires", Double),
    Column("last_used", Double),
    Column("created", Double, nullable=False),
    Column("revoked", Boolean, nullable=False),
    Index("api_keys_of_tenant", "tenant", "created"),
    Index("api_keys_of_owner", "owner"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Index("sessions_expire", "expires"),
    Index("sessions_of_user", "user_id"),
)

attempts = Table(
    "sign_in_attempts",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("until", Double, nullable=False),
)
"""Failed guesses: subject is a digest of an address or of an account; until is when the next one may be made."""

audit = Table(
    "audit_log",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Index("audit_of_tenant", "tenant", "seq"),
)
