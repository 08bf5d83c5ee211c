"""The first released schema: where upgrades begin."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Do nothing: a database of version 1 is what it says."""
