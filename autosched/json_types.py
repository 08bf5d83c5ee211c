"""The types of JSON documents, for those who write and read them: manifests, rows of tables, messages, records."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = Any  # a value in a document: what is there depends on the document, and its reader sees to that
JsonObject: TypeAlias = dict[str, Json]
