"""Alembic's steps from one schema version of the tuning database to the next."""
