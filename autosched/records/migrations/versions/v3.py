"""A table of leases: which configuration is being measured by whom."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Add the empty table."""
    op.create_table(
        "leases",
        sa.Column("task", sa.String(32), primary_key=True),
        sa.Column("config", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("until", sa.Float, nullable=False),
    )
