"""Devices of several kinds: a column says which, and the document has the fields of its kind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add `devices.kind`; all devices so far are CPUs, whose documents stay as they are."""
    word = sa.String(64).with_variant(sa.Text(), "postgresql")
    op.add_column("devices", sa.Column("kind", word, nullable=False, server_default="cpu"))
