"""The tuning database, JSON-lines exchange, dispatch contexts and shipped configurations.

Nothing here loads SQLAlchemy before a database is opened.
"""

from autosched.records.choose import choose as choose
from autosched.records.contexts import ApplyConfig as ApplyConfig
from autosched.records.contexts import ApplyHistoryBest as ApplyHistoryBest
from autosched.records.contexts import DispatchContext as DispatchContext
from autosched.records.contexts import FallbackContext as FallbackContext
from autosched.records.found import Found as Found
from autosched.records.found import RecordReader as RecordReader
from autosched.records.found import RecordStore as RecordStore
from autosched.records.found import Trust as Trust
from autosched.records.jsonl import JsonlReader as JsonlReader
from autosched.records.jsonl import ReadReport as ReadReport
from autosched.records.jsonl import read_lines as read_lines
from autosched.records.jsonl import write_lines as write_lines
from autosched.records.layers import LayeredReader as LayeredReader
from autosched.records.layers import default_reader as default_reader
from autosched.records.layers import open_reader as open_reader
from autosched.records.layers import open_store as open_store
from autosched.records.places import Place as Place
from autosched.records.places import database_to_write as database_to_write
from autosched.records.places import default_places as default_places
from autosched.records.query import RecordFilter as RecordFilter
from autosched.records.query import TaskSummary as TaskSummary
from autosched.records.record import SCHEMA_VERSION as SCHEMA_VERSION
from autosched.records.record import Record as Record
from autosched.records.record import from_document as from_document
from autosched.records.record import make_record as make_record
from autosched.records.shipped import ShippedReader as ShippedReader, shipped_families as shipped_families
