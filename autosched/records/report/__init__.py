"""One page of HTML about a database: it opens from disk and asks no server for anything."""

from autosched.records.report.document import make_document as make_document
from autosched.records.report.document import progress_of as progress_of
from autosched.records.report.page import make_page as make_page
from autosched.records.report.roofline import Machines as Machines
from autosched.records.report.roofline import Peak as Peak
