"""A drawing of a model's graph as SVG: a box for each call of a kernel, with the model's nodes that it computes."""

from __future__ import annotations

from html import escape

from autosched.printable import printable
from autosched.runtime.graph import NOP, Graph, Node

WIDTH, HEIGHT = 250, 46  # of a box
GAP_X, GAP_Y = 24, 34
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1a1a1a } .small { font-size: 10px; fill: #555 }
  rect { fill: #eef3fb; stroke: #4a6fa5 } .end { fill: #f3f3f3; stroke: #888 } path { fill: none; stroke: #999 }
  @media (prefers-color-scheme: dark) {
    text { fill: #eee } .small { fill: #bbb } rect { fill: #24344d; stroke: #7fa3d8 } .end { fill: #333; stroke: #999 }
  }
"""


def draw(graph: Graph, title: str = "") -> str:
    """The graph from its inputs, above, to its outputs, below. Calls that do nothing are left out."""
    memory, edges = _Memory(graph), []
    boxes = [_Box(graph.values[v].name, _shape(graph, v), 0, True) for v in graph.inputs]
    for k, value in enumerate(graph.inputs):
        memory.write(value, k)
    for node in graph.nodes:
        if node.kernel == NOP:
            continue
        before = sorted({writer for v in node.inputs for writer in memory.writers(v)})
        edges += [(writer, len(boxes)) for writer in before]
        for value in node.outputs:
            memory.write(value, len(boxes))
        boxes.append(_call_box(graph, node, 1 + max((boxes[writer].row for writer in before), default=0)))
    last = 1 + max(box.row for box in boxes)
    for value in graph.outputs:
        edges += [(writer, len(boxes)) for writer in memory.writers(value)]
        boxes.append(_Box(graph.values[value].name, _shape(graph, value), last, True))
    return _svg(boxes, edges, title)


def to_page(svg: str, title: str) -> str:
    """A drawing as a page of HTML, which a browser can scroll and search."""
    head = f'<meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>{_text(title)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{svg}\n</body></html>\n'


class _Box:
    def __init__(self, title: str, below: str, row: int, is_end: bool) -> None:
        self.title, self.below, self.row, self.is_end = title, below, row, is_end
        self.x = self.y = 0


class _Memory:
    """Who wrote which bytes last: parts of a concatenation are values of their own in the memory of the whole."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._written: dict[tuple[str, int], list[tuple[int, int, int]]] = {}  # storage -> (first byte, end, writer)

    def write(self, number: int, writer: int) -> None:
        key, first, end = self._place(number)
        kept = []
        for a, b, other in self._written.get(key, []):
            kept += [(a, min(b, first), other)] if a < first else []
            kept += [(max(a, end), b, other)] if b > end else []
        self._written[key] = [*kept, (first, end, writer)]

    def writers(self, number: int) -> set[int]:
        key, first, end = self._place(number)
        return {writer for a, b, writer in self._written.get(key, []) if a < end and first < b}

    def _place(self, number: int) -> tuple[tuple[str, int], int, int]:
        value = self.graph.values[self.graph.root(number)]
        storage, size = value.storage, max(1, value.size_bytes)
        if storage.kind == "arena":
            return ("arena", 0), storage.index, storage.index + size
        return (storage.kind, storage.index), 0, size


def _shape(graph: Graph, number: int) -> str:
    value = graph.values[number]
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _call_box(graph: Graph, node: Node, row: int) -> _Box:
    made = ", ".join(_shape(graph, v) for v in node.outputs)
    return _Box(node.kernel, f"{node.origin}  →  {made}" if node.origin else made, row, False)


def _svg(boxes: list[_Box], edges: list[tuple[int, int]], title: str) -> str:
    used: dict[int, int] = {}
    for box in boxes:
        box.x, box.y = GAP_X + used.get(box.row, 0) * (WIDTH + GAP_X), GAP_Y + box.row * (HEIGHT + GAP_Y)
        used[box.row] = used.get(box.row, 0) + 1
    width = GAP_X + max(used.values(), default=1) * (WIDTH + GAP_X)
    height = 2 * GAP_Y + max(used, default=0) * (HEIGHT + GAP_Y) + HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{_text(title)}</title><style>{STYLE}</style>",
    ]
    for a, b in edges:
        x0, y0, x1, y1 = boxes[a].x + WIDTH // 2, boxes[a].y + HEIGHT, boxes[b].x + WIDTH // 2, boxes[b].y
        lines.append(f'<path d="M{x0} {y0}C{x0} {y0 + GAP_Y} {x1} {y1 - GAP_Y} {x1} {y1}"/>')
    for box in boxes:
        kind = ' class="end"' if box.is_end else ""
        lines.append(
            f"<g><title>{_text(box.title)}: {_text(box.below)}</title>"
            f'<rect{kind} x="{box.x}" y="{box.y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
            f'<text x="{box.x + 8}" y="{box.y + 19}">{_text(_cut(box.title, 36))}</text>'
            f'<text class="small" x="{box.x + 8}" y="{box.y + 36}">{_text(_cut(box.below, 46))}</text></g>'
        )
    return "\n".join([*lines, "</svg>\n"])


def _text(text: str) -> str:
    return escape(printable(text))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
