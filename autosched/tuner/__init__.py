"""Tuning: search strategies, cost models, the task scheduler and measurement."""
