"""Whose e-mail address is known to be theirs, and who made an invite.

Of an account that was made before, only an identity provider or being the oldest owner vouches; the makers of earlier
invites are not known, and not checked.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

VOUCHED_FOR = """
UPDATE users SET verified = true WHERE id IN (SELECT user_id FROM identities) OR id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY created, id) AS place FROM users WHERE role = 'owner'
    ) AS owners WHERE place = 1
)"""


def upgrade() -> None:
    _add("users", sa.Column("verified", sa.Boolean, nullable=False, server_default=sa.false()))
    _add("invites", sa.Column("made_by", sa.Text, nullable=False, server_default=""))
    op.execute(VOUCHED_FOR)


def _add(table: str, column: sa.Column[bool] | sa.Column[str]) -> None:
    """Required of new rows: the default is for those that are there."""
    with op.batch_alter_table(table) as batch:
        batch.add_column(column)
    with op.batch_alter_table(table) as batch:
        batch.alter_column(column.name, existing_type=column.type, existing_nullable=False, server_default=None)


def downgrade() -> None:
    for table, column in (("invites", "made_by"), ("users", "verified")):
        with op.batch_alter_table(table) as batch:
            batch.drop_column(column)
