"""The page around a report's data. Data goes in as JSON and reaches the page as text only, never as markup."""

from __future__ import annotations

from importlib import resources

from autosched.errors import RecordError
from autosched.printable import printable_values
from autosched.records.report.columns import fitted, plain_json, pooled

# The browser itself refuses every request and every script that is not in the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)

MOST_DATA = 1_000_000  # bytes beside plotly's five million: the page stays below six


def make_page(document: dict[str, object]) -> str:
    """The page that shows a document of `make_document`. Raises RecordError if plotly is not installed."""
    here = resources.files(__package__)
    facts = fitted(pooled(document), MOST_DATA)
    parts = {
        "{policy}": POLICY,
        "{style}": (here / "page.css").read_text(encoding="utf-8"),
        "{data}": as_json(facts),
        "{script}": (here / "page.js").read_text(encoding="utf-8"),  # the tables are there before plotly is read
        "{plotly}": _plotly_script(),
    }
    pieces, rest = [], (here / "page.html").read_text(encoding="utf-8")
    for name, text in parts.items():  # one after the other, so that no part's text is searched for places
        before, _, rest = rest.partition(name)
        pieces += [before, text]
    return "".join([*pieces, rest])


def as_json(document: dict[str, object]) -> str:
    """JSON that cannot end the script element it stands in, and whose texts the page can show as they are."""
    text = plain_json(printable_values(document))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plotly_script() -> str:
    try:
        return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except (ModuleNotFoundError, OSError):
        raise RecordError("the report's charts need plotly", hint="pip install 'autosched[report]'") from None
