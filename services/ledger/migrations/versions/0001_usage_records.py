"""Usage records, which nothing changes or deletes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TEXTS = ("kind", "model", "worker", "user_id", "key_id", "project")
COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "tool_ms")
REFUSAL = "usage records are immutable"


def upgrade() -> None:
    op.create_table(
        "usage_records",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in TEXTS),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTS),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("cost", sa.BigInteger, nullable=False),
    )
    op.create_index("usage_of_tenant", "usage_records", ["tenant", "at", "id", "cost"])
    if op.get_bind().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()


def _guard_sqlite() -> None:
    for event in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER usage_records_refuse_{event.lower()} BEFORE {event} ON usage_records "
            f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        )


def _guard_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION usage_records_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    op.execute(
        "CREATE TRIGGER usage_records_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON usage_records "
        "FOR EACH STATEMENT EXECUTE FUNCTION usage_records_refuse()"
    )


def downgrade() -> None:
    op.drop_table("usage_records")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION usage_records_refuse()")
