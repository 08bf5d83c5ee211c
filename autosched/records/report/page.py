"""The page around a report's data. Data goes in as JSON and reaches the page as text only, never as markup."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from autosched.errors import RecordError

# The browser itself refuses every request and every script that is not in the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>autosched: tuning report</title>
<style>
{style}
</style>
</head>
<body>
<a class="skip" href="#tasks">Skip to the tasks</a>
<header><h1>Tuning report</h1><p id="origin"></p></header>
<main>
<section aria-labelledby="h-summary"><h2 id="h-summary">Summary</h2><dl id="summary"></dl></section>
<section id="tasks" aria-labelledby="h-tasks"><h2 id="h-tasks">Tasks</h2>
<p><label for="filter">Filter</label> <input id="filter" type="search" placeholder="conv2d"></p>
<div class="wide" tabindex="0" role="region" aria-label="Table of tasks"><table id="task-table"></table></div>
<figure><div id="shares" class="chart"></div><figcaption id="shares-text"></figcaption></figure></section>
<section aria-labelledby="h-task"><h2 id="h-task">One task</h2>
<p><label for="chosen">Task</label> <select id="chosen"></select></p>
<p id="winner"></p>
<figure><div id="convergence" class="chart"></div><figcaption id="convergence-text"></figcaption></figure>
<figure><div id="importance" class="chart"></div><figcaption id="importance-text"></figcaption></figure>
<figure><div id="parallel" class="chart"></div><figcaption>Parallel coordinates: a line for each of the fastest
trials, dark where it is fast.</figcaption></figure>
<p><label for="knob-x">Knobs</label> <select id="knob-x"></select> <label for="knob-y">against</label>
<select id="knob-y"></select></p>
<figure><div id="pairs" class="chart"></div><figcaption>Best time in ms for each pair of values.</figcaption></figure>
<figure><div id="failures" class="chart"></div><figcaption id="failures-text"></figcaption></figure>
<div id="sources"></div>
<details><summary>All trials of the task</summary>
<div class="wide" tabindex="0" role="region" aria-label="Table of trials"><table id="trial-table"></table></div>
</details>
</section>
</main>
<noscript>The tables and charts of this page need JavaScript; it is all in this file.</noscript>
<script id="data" type="application/json">{data}</script>
<script>{plotly}</script>
<script>
{script}
</script>
</body>
</html>
"""


def make_page(document: dict[str, Any]) -> str:
    """The page that shows a document of `make_document`. Raises RecordError if plotly is not installed."""
    here = resources.files(__package__)
    parts = {
        "{policy}": POLICY,
        "{style}": (here / "page.css").read_text(encoding="utf-8"),
        "{data}": _as_json(document),
        "{plotly}": _plotly_script(),
        "{script}": (here / "page.js").read_text(encoding="utf-8"),
    }
    pieces, rest = [], PAGE
    for name, text in parts.items():  # one after the other, so that no part's text is searched for places
        before, _, rest = rest.partition(name)
        pieces += [before, text]
    return "".join([*pieces, rest])


def _as_json(document: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plotly_script() -> str:
    try:
        return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except (ModuleNotFoundError, OSError):
        raise RecordError("the report's charts need plotly", hint="pip install plotly") from None
