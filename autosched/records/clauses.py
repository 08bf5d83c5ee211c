"""Filters as SQL: values are always bound, never written into the text of a query."""

from __future__ import annotations

import importlib
import operator
from typing import TYPE_CHECKING, Any, assert_never

import sqlalchemy as sa

from autosched.records.query import RecordFilter
from autosched.records.schema import DEVICES, RECORDS, WORKLOADS
from autosched.records.where import Both, Comparison, Condition, Not

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Table

R, W, D = RECORDS, WORKLOADS, DEVICES
JOINED = R.join(W, R.c.workload_id == W.c.id).join(D, R.c.device_id == D.c.id)

COLUMNS = {
    "op": W.c.op,
    "workload": W.c.key,
    "template": R.c.template,
    "status": R.c.status,
    "device": D.c.document,
    "family": D.c.family,
    "host": R.c.host,
    "session": R.c.session,
    "uid": R.c.uid,
    "threads": R.c.threads,
    "ms": R.c.median_s * 1e3,
    "winner": R.c.is_winner,
    "default": R.c.is_default,
}
COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def insert_into(dialect: str, table: Table) -> Any:
    """An INSERT that can say what to do about rows that are there already; loads the one dialect that is used."""
    return importlib.import_module(f"sqlalchemy.dialects.{dialect}").insert(table)


def clauses_of(query: RecordFilter) -> list[ColumnElement[bool]]:
    """The conditions of a filter, all of which must hold."""
    clauses: list[ColumnElement[bool]] = []
    if query.op:
        clauses.append(W.c.op == query.op)
    if query.workload:
        clauses.append(W.c.key == query.workload)
    if query.template:
        clauses.append(R.c.template == query.template)
    if query.status is not None:
        clauses.append(R.c.status == str(query.status))
    if query.session:
        clauses.append(R.c.session == query.session)
    if query.since_s is not None:
        clauses.append(R.c.time >= query.since_s)
    if query.winners_only:
        clauses.append(R.c.is_winner.is_(True))
    if query.uid:
        clauses.append(R.c.uid.startswith(query.uid, autoescape=True))
    if query.where is not None:
        clauses.append(clause_of(query.where))
    return clauses


def clause_of(condition: Condition) -> Any:
    """A condition as an SQL expression; what is unknown (the time of a failure) fulfils no comparison, nor its Not."""
    match condition:
        case Comparison(field="target", operator=sign, value=value):
            found = D.c.family == value
            if value in ("cpu", "cuda", "gpu"):
                found = D.c.kind == ("cuda" if value == "gpu" else value)
            return sa.not_(found) if sign == "!=" else found
        case Comparison(field=field, operator=sign, value=value):
            column = COLUMNS[field]
            if sign == "~" or field in ("workload", "device"):
                found = column.contains(value, autoescape=True)
                return sa.not_(found) if sign == "!=" else found
            return COMPARE[sign](column, value)
        case Not(part=part):
            return sa.not_(clause_of(part))
        case Both(is_and=is_and, parts=parts):
            return (sa.and_ if is_and else sa.or_)(*map(clause_of, parts))
        case _:
            assert_never(condition)
