# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.records.report.document import make_document as make_document
from autosched.records.report.document import progress_of as progress_of
from autosched.records.report.page import make_page as make_page
from autosched.records.report.roofline import Machines as Machines
from autosched.records.report.roofline import Peak as Peak
