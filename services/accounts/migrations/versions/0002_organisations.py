"""Organisations, the people and projects in them, who owns a key and what it may do, and the audit log.

A key that was made before stays good: it belongs to its organisation itself. Sessions end.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

OF_KEYS = {
    "owner": "",
    "project": "",
    "scopes": "model.request,model.read,conversations,usage.read",
    "models": "",
}


def upgrade() -> None:
    _create_organisations()
    _create_people()
    _create_projects()
    _extend_keys()
    _replace_sessions()
    _create_audit_log()


def _text(name: str, *, primary_key: bool = False, unique: bool | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, primary_key=primary_key, unique=unique)


def _create_organisations() -> None:
    organisations = op.create_table(
        "organisations",
        _text("id", primary_key=True),
        _text("name"),
        _text("tier"),
        _text("region"),
        sa.Column("monthly_budget", sa.BigInteger),
        sa.Column("suspended", sa.Boolean, nullable=False),
        sa.Column("operator", sa.Boolean, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
    )
    keys = sa.table("api_keys", sa.column("tenant"), sa.column("created"))
    known = sa.select(keys.c.tenant, sa.func.min(keys.c.created)).group_by(keys.c.tenant)
    for tenant, created in op.get_bind().execute(known).all():
        row = {"id": tenant, "name": tenant, "tier": "enterprise", "region": "", "monthly_budget": None}
        row |= {"suspended": False, "operator": tenant == "local", "created": created}
        op.execute(sa.insert(organisations).values(row))


def _create_people() -> None:
    op.create_table(
        "users",
        _text("id", primary_key=True),
        _text("tenant"),
        _text("email", unique=True),
        _text("name"),
        _text("role"),
        _text("space", unique=True),
        sa.Column("password", sa.Text),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("last_seen", sa.Double),
    )
    op.create_index("users_of_tenant", "users", ["tenant", "created"])
    op.create_table(
        "identities", _text("issuer", primary_key=True), _text("subject", primary_key=True), _text("user_id")
    )
    op.create_index("identities_of_user", "identities", ["user_id"])
    op.create_table(
        "invites",
        _text("id", primary_key=True),
        _text("tenant"),
        _text("digest", unique=True),
        _text("email"),
        _text("role"),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
        _text("accepted_by"),
    )
    op.create_index("invites_of_tenant", "invites", ["tenant", "created"])
    op.create_table(
        "sign_in_attempts",
        _text("subject", primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )


def _create_projects() -> None:
    op.create_table(
        "projects",
        _text("id", primary_key=True),
        _text("tenant"),
        _text("name"),
        sa.Column("archived", sa.Boolean, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_index("projects_of_tenant", "projects", ["tenant", "created"])
    op.create_table(
        "service_accounts",
        _text("id", primary_key=True),
        _text("tenant"),
        _text("project"),
        _text("name"),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_index("service_accounts_of_tenant", "service_accounts", ["tenant", "created"])


def _extend_keys() -> None:
    with op.batch_alter_table("api_keys") as batch:
        for name, value in OF_KEYS.items():
            batch.add_column(sa.Column(name, sa.Text, nullable=False, server_default=value))
        batch.add_column(sa.Column("expires", sa.Double))
        batch.add_column(sa.Column("last_used", sa.Double))
    with op.batch_alter_table("api_keys") as batch:
        for name in OF_KEYS:
            batch.alter_column(name, existing_type=sa.Text, existing_nullable=False, server_default=None)
    op.create_index("api_keys_of_owner", "api_keys", ["owner"])


def _replace_sessions() -> None:
    op.drop_table("sessions")
    op.create_table(
        "sessions",
        _text("digest", primary_key=True),
        _text("tenant"),
        _text("user_id"),
        _text("key_id"),
        sa.Column("expires", sa.Double, nullable=False),
    )
    op.create_index("sessions_expire", "sessions", ["expires"])
    op.create_index("sessions_of_user", "sessions", ["user_id"])


def _create_audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        _text("tenant"),
        _text("actor"),
        _text("action"),
        _text("target"),
        _text("details"),
        _text("hash"),
    )
    op.create_index("audit_of_tenant", "audit_log", ["tenant", "seq"])
    for statement in SQLITE_GUARD if op.get_bind().dialect.name == "sqlite" else POSTGRES_GUARD:
        op.execute(statement)


SQLITE_GUARD = [
    f"""CREATE TRIGGER audit_log_refuses_{deed} BEFORE {deed} ON audit_log
    BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END"""
    for deed in ("update", "delete")
]
POSTGRES_GUARD = [
    """CREATE FUNCTION audit_log_refuses() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'audit_log is append-only'; END $$""",
    """CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_refuses()""",
]


def downgrade() -> None:
    op.drop_table("audit_log")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_log_refuses")
    op.drop_table("sessions")
    op.create_table(
        "sessions",
        _text("digest", primary_key=True),
        _text("tenant"),
        sa.Column("expires", sa.Double, nullable=False),
    )
    op.create_index("sessions_expire", "sessions", ["expires"])
    op.drop_index("api_keys_of_owner", "api_keys")
    with op.batch_alter_table("api_keys") as batch:
        for name in (*OF_KEYS, "expires", "last_used"):
            batch.drop_column(name)
    for name in ("sign_in_attempts", "invites", "identities", "users", "service_accounts", "projects", "organisations"):
        op.drop_table(name)
