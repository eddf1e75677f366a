"""The picture of a workflow as inline SVG: classes only, no script and no style attribute, 340 px wide on every screen.

Members side by side are rows between two rails: one from which all of them start, one at which the workflow goes on
when all have ended. A state has a colour, a sign and a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from .formats import one_line
from .workflow_graph import DONE, FAILED, READY, RUNNING, Graph, Node

WIDTH, BOX_HEIGHT, GAP, CAPTION = 340, 60, 18, 18
#: The rails, and the boxes between them.
LEFT_RAIL, BOX_END, RIGHT_RAIL = 8, 312, 332
SIGNS = {"done": "✓", "failed": "✗", "running": "▶", "ready": "○", "later": "…", "cancelled": "–"}
#: Characters that fit into a line.
TITLE_CHARACTERS, LINE_CHARACTERS = 32, 44

Link = Callable[[Node], str]


def picture(graph: Graph, link: Link) -> SafeString:
    """Return the drawing; `link` returns the address behind a call, or ""."""
    drawing = _Drawing(link)
    if len(graph.branches) == 1:
        bottom = drawing.branch(graph.branches[0], 4, x=LEFT_RAIL, width=BOX_END - LEFT_RAIL)
        join = bottom - BOX_HEIGHT // 2
        drawing.edge(f"M{BOX_END} {join}H{RIGHT_RAIL}" if graph.then or graph.on_failure else "")
    else:
        bottom, join = drawing.rows(graph.branches)
    if graph.then is not None:
        join = drawing.callback(graph.then, bottom, join, _("then"))
        bottom = join + BOX_HEIGHT // 2
    if graph.on_failure is not None:
        drawing.callback(graph.on_failure, bottom, join, _("on failure"), is_dashed=True)
        bottom += CAPTION + 12 + BOX_HEIGHT
    return format_html(
        '<svg class="rsmq-graph" viewBox="0 0 {} {}" width="{}" height="{}" role="group"'
        ' aria-labelledby="rsmq-graph-t">'
        '<title id="rsmq-graph-t">{}</title>{}{}</svg>',
        WIDTH,
        bottom + 6,
        WIDTH,
        bottom + 6,
        graph.summary,
        format_html_join("", '<path class="rsmq-edge{}" d="{}"/>', drawing.edges),
        format_html_join("", "{}", ((part,) for part in drawing.parts)),
    )


@dataclass
class _Drawing:
    link: Link
    edges: list[tuple[str, str]] = field(default_factory=list)
    parts: list[SafeString] = field(default_factory=list)

    def edge(self, path: str, *, is_dashed: bool = False) -> None:
        """Draw a line."""
        self.edges.append((" rsmq-dashed" if is_dashed else "", path))

    def branch(self, nodes: list[Node], top: int, *, x: int, width: int) -> int:
        """Draw calls that follow each other; return where the last one ends."""
        y = top
        for n, node in enumerate(nodes):
            if n:
                self.edge(_arrow(x + width // 2, y - GAP, y))
            self.parts.append(_box(node, x, y, width, self.link(node)))
            y += BOX_HEIGHT + GAP
        return y - GAP

    def rows(self, branches: list[list[Node]]) -> tuple[int, int]:
        """Draw branches one below the other, between the rails; return where they end, and where the right one does."""
        x, width, y = LEFT_RAIL + 20, BOX_END - LEFT_RAIL - 20, 4
        begins, ends = [], []
        for branch in branches:
            bottom = self.branch(branch, y, x=x, width=width)
            begins.append(y + BOX_HEIGHT // 2)
            ends.append(bottom - BOX_HEIGHT // 2)
            y = bottom + GAP
        self.edge(f"M{LEFT_RAIL} {begins[0]}V{begins[-1]}")
        for begin in begins:
            self.edge(f"M{LEFT_RAIL} {begin}H{x}M{x - 5} {begin - 4}L{x} {begin}L{x - 5} {begin + 4}")
        for end in ends:
            self.edge(f"M{x + width} {end}H{RIGHT_RAIL}")
        self.edge(f"M{RIGHT_RAIL} {ends[0]}V{ends[-1]}")
        return y - GAP, ends[-1]

    def callback(self, node: Node, top: int, join: int, caption: str, *, is_dashed: bool = False) -> int:
        """Draw a callback below everything else, at the right rail; return the middle of its box."""
        y = top + CAPTION + 12
        middle = y + BOX_HEIGHT // 2
        line = f"M{RIGHT_RAIL} {join}V{middle}H{BOX_END}M{BOX_END + 5} {middle - 4}L{BOX_END} {middle}"
        self.edge(f"{line}L{BOX_END + 5} {middle + 4}", is_dashed=is_dashed)
        self.parts.append(format_html('<text class="rsmq-caption" x="{}" y="{}">{}</text>', LEFT_RAIL, y - 7, caption))
        self.parts.append(_box(node, LEFT_RAIL, y, BOX_END - LEFT_RAIL, self.link(node)))
        return middle


def _arrow(x: int, top: int, bottom: int) -> str:
    return f"M{x} {top}V{bottom}M{x - 4} {bottom - 5}L{x} {bottom}L{x + 4} {bottom - 5}"


def _box(node: Node, x: int, y: int, width: int, url: str) -> SafeString:
    """Return a box: task and run time, arguments or how many calls, state. It is clipped at its own edge."""
    inner = format_html(
        '<svg x="{}" y="{}" width="{}" height="{}" class="rsmq-node rsmq-is-{}">{}{}'
        '<rect class="rsmq-stripe" x="0" y="0" width="5" height="{}"/>'
        '<text x="14" y="20"><tspan class="rsmq-sign">{}</tspan> {}</text>'
        '<text class="rsmq-line-2" x="14" y="37">{}</text><text class="rsmq-line-3" x="14" y="53">{}</text>'
        '<text class="rsmq-run-time" x="{}" y="53">{}</text>{}</svg>',
        x,
        y,
        width,
        BOX_HEIGHT,
        node.state,
        _hint(node),
        format_html('<rect class="rsmq-box" x="1" y="1" width="{}" height="{}" rx="4"/>', width - 2, BOX_HEIGHT - 2),
        BOX_HEIGHT,
        SIGNS[node.state],
        _tail(node.task, TITLE_CHARACTERS),
        one_line(node.arguments if node.calls == 1 else node.label, LINE_CHARACTERS),
        one_line(node.state_text, LINE_CHARACTERS),
        width - 10,
        node.run_time,
        _bar(node, width),
    )
    return format_html('<a href="{}">{}</a>', url, inner) if url else inner


def _hint(node: Node) -> SafeString:
    words = [node.label, node.task, node.arguments, node.state_text, node.run_time]
    return format_html("<title>{}</title>", " · ".join(word for word in words if word))


def _bar(node: Node, width: int) -> SafeString:
    """Return which share of many calls is in which state, as a bar at the top edge."""
    return format_html_join(
        "", '<rect class="rsmq-share-{}" x="{}" y="1" width="{}" height="4"/>', _shares(node, width)
    )


def _shares(node: Node, width: int) -> Iterator[tuple[str, str, str]]:
    total, at = sum(node.counts.values()), 5.0
    for state in (DONE, FAILED, RUNNING, READY):
        share = (width - 6) * node.counts.get(state, 0) / total if total else 0
        if share:
            yield state, f"{at:.1f}", f"{max(share, 1.5):.1f}"
            at += share


def _tail(path: str, longest: int) -> str:
    """Return the end of a dotted path, where its names differ."""
    return path if len(path) <= longest else "…" + path[1 - longest :]
