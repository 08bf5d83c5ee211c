"""Winners know the default's time in a column; indices hold what summaries and time filters need."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Add `records.baseline_s` and fill it from the winners' details; replace the index by task, add two."""
    op.add_column("records", sa.Column("baseline_s", sa.Float, nullable=True))
    op.drop_index("records_by_task", "records")
    columns = ["workload_id", "device_id", "threads", "time", "status", "is_default", "median_s"]
    op.create_index("records_by_task", "records", columns)
    op.create_index("records_by_time", "records", ["time"])
    op.create_index("records_by_session", "records", ["session", "time"])
    records = sa.table(
        "records", sa.column("id"), sa.column("details"), sa.column("is_winner"), sa.column("baseline_s")
    )
    connection = op.get_bind()
    winners = connection.execute(sa.select(records.c.id, records.c.details).where(records.c.is_winner.is_(True))).all()
    for number, details in winners:
        baseline_s = json.loads(details).get("how", {}).get("baseline_s")
        if isinstance(baseline_s, int | float) and not isinstance(baseline_s, bool) and baseline_s > 0:
            connection.execute(records.update().where(records.c.id == number).values(baseline_s=baseline_s))
