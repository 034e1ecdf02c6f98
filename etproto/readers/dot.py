r"""DOT files: a parser of the graph language of Graphviz, for directed graphs.

Grammar and meaning follow the language's public description: ids are names, numerals, quoted strings (with
``\"``, line continuation and ``+``) or HTML strings; a subgraph used as an end of an edge stands for all its
nodes; ``node [...]`` sets defaults for the nodes made after it in that subgraph. Ports and the attributes of
edges and graphs are read and dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from etproto.errors import FileFormatError
from etproto.graph import TaskGraph
from etproto.readers.common import bad, read_text, task_attributes, task_graph

__all__ = ["parse", "read"]

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f\v\ufeff]+ | //[^\n]* | /\*.*?\*/ | (?m:^)\#[^\n]*)
      | (?P<edge>-[->])
      | (?P<name>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)
      | (?P<number>-?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?))
      | (?P<quoted>"(?:[^"\\]|\\.)*")
      | (?P<html><)
      | (?P<mark>[{}\[\];,:=+])""",
    re.VERBOSE | re.DOTALL,
)
_HTML = re.compile(r"<!--.*?-->|[<>]", re.DOTALL)
_KEYWORDS = {"strict", "graph", "digraph", "subgraph", "node", "edge"}
_ID = ("id", "quoted", "html")
_DEEPEST = 200  # nested subgraphs; Python's own stack bears some 900 calls


class _Token(NamedTuple):
    kind: str  # "id", "quoted", "html", "end", or the keyword or mark itself
    text: str
    line: int

    def __str__(self) -> str:
        return "the end of the file" if self.kind == "end" else repr(self.text[:40])


def read(path: str | Path) -> TaskGraph:
    """Read a DOT file; see `parse`."""
    return parse(read_text(path), str(path))


def parse(text: str, source: str) -> TaskGraph:
    r"""Parse one DOT digraph.

    Tasks are named by their DOT ids. Node attributes `cost` (or `weight`), `priority`, `kind` and `args` (as
    in ``args="2,1"``) are those of `TaskGraph.from_networkx`; `label` becomes the display name, escapes
    resolved.

    Parameters
    ----------
    text : str
        The whole file.
    source : str
        Where it came from, for messages.

    Returns
    -------
    TaskGraph
        Self loops are kept, so that `TaskGraph.validate` names them. Duplicate edges are merged, with a
        `UserWarning` unless the graph is ``strict``.

    Raises
    ------
    FileFormatError
        If the text is not a DOT graph, the graph is undirected, or an attribute has the wrong type.

    Examples
    --------
    >>> print(parse('digraph tiles { node [cost=2]; a -> {b "c d"} -> e }', "tiles.dot"))
    tiles: 4 tasks (task 4), 4 edges, critical path 6 us
    """
    return _Parser(_tokens(text, source), source).graph()


def _tokens(text: str, source: str) -> list[_Token]:
    tokens, position, line = [], 0, 1
    number_end = -1  # where a numeral ended: a name must not begin right there
    while position < len(text):
        match = _TOKEN.match(text, position)
        place = f"{source}:{line}"
        if match is None:
            what = {'"': "a closing quote", "/": "a comment"}.get(text[position], "an id or one of {}[];,:=+->")
            raise bad(place, what, repr(text[position : position + 20].split("\n")[0]))
        kind, word, end = match.lastgroup, match[0], match.end()
        if kind == "html":
            end = _html_end(text, position, place)
            word = text[position:end]
        if kind in ("name", "number") and number_end == position:
            raise bad(place, "a quoted id, since it begins with a digit", repr(tokens[-1].text + word))
        if kind == "number":
            number_end = end
        if kind == "name" and word.lower() in _KEYWORDS:
            tokens.append(_Token(word.lower(), word, line))
        elif kind == "quoted":
            tokens.append(_Token("quoted", re.sub(r'\\(\\|"|\n)', _unquote, word[1:-1]), line))
        elif kind in ("name", "number"):
            tokens.append(_Token("id", word, line))
        elif kind == "html":
            tokens.append(_Token("html", word, line))
        elif kind != "space":
            tokens.append(_Token(word, word, line))
        line += text.count("\n", position, end)
        position = end
    tokens.append(_Token("end", "", line))
    return tokens


def _unquote(escape: re.Match[str]) -> str:
    r"""Only ``\"`` and a line continuation are escapes here; ``\\`` and ``\n`` are so in labels alone."""
    return {'\\"': '"', "\\\n": ""}.get(escape[0], escape[0])


def _html_end(text: str, position: int, place: str) -> int:
    depth = 0
    for match in _HTML.finditer(text, position):
        depth += {"<": 1, ">": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    raise bad(place, "the > that closes an HTML string", "the end of the file")


@dataclass
class _Scope:
    """A graph or subgraph: its nodes, the node defaults in force, its named subgraphs."""

    parent: _Scope | None = None
    nodes: dict[str, None] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    named: dict[str, _Scope] = field(default_factory=dict)
    depth: int = 0

    def effective_defaults(self) -> dict[str, str]:
        return (self.parent.effective_defaults() if self.parent else {}) | self.defaults

    def add(self, node: str) -> None:
        self.nodes[node] = None
        if self.parent:
            self.parent.add(node)


class _Html(str):
    """An HTML string: markup, never a display name."""


class _Parser:
    """Recursive descent; one method a rule of the grammar."""

    def __init__(self, tokens: list[_Token], source: str) -> None:
        self.tokens, self.source, self.position = tokens, source, 0
        self.nodes: dict[str, dict[str, str]] = {}
        self.line_of: dict[str, int] = {}
        self.edges: list[tuple[str, str]] = []

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def bad(self, expected: str, token: _Token | None = None) -> FileFormatError:
        token = token or self.next
        return bad(f"{self.source}:{token.line}", expected, token)

    def take(self, *kinds: str) -> _Token | None:
        """The next token, if it is one of `kinds`."""
        if self.next.kind not in kinds:
            return None
        self.position += 1
        return self.tokens[self.position - 1]

    def need(self, kind: str, expected: str) -> _Token:
        token = self.take(kind)
        if token is None:
            raise self.bad(expected)
        return token

    def graph(self) -> TaskGraph:
        strict = self.take("strict")
        if self.next.kind == "graph":
            raise self.bad("'digraph', since the edges of an undirected graph order nothing")
        self.need("digraph", "'digraph' or 'strict digraph'")
        name = self.identifier()
        self.body(_Scope())
        self.need("end", "one graph and then the end of the file")
        nodes = {}
        for node, raw in self.nodes.items():
            nodes[node] = task_attributes(raw, f"{self.source}:{self.line_of[node]}")
            label = nodes[node].pop("label", node)
            if not isinstance(label, _Html):
                nodes[node]["label"] = _display(label, node)
        edges = list(dict.fromkeys(self.edges)) if strict else self.edges
        return task_graph(nodes, edges, self.source, name=name)

    def body(self, scope: _Scope) -> None:
        opening = self.need("{", "'{'")
        if scope.depth > _DEEPEST:
            raise self.bad(f"subgraphs nested at most {_DEEPEST} deep", opening)
        while not self.take("}"):
            if self.next.kind == "end":
                raise self.bad(f"'}}' for the '{{' of line {opening.line}")
            self.statement(scope)
            while self.take(";"):
                pass

    def statement(self, scope: _Scope) -> None:
        if defaults := self.take("graph", "node", "edge"):
            if self.next.kind != "[":
                raise self.bad(f"'[' after {defaults.text!r}")
            attributes = self.attributes()
            if defaults.kind == "node":
                scope.defaults |= attributes
        elif self.next.kind in _ID and self.assignment():
            pass  # an attribute of the graph
        else:
            self.edge_statement(scope)

    def assignment(self) -> bool:
        """``id = id``, or nothing read."""
        start = self.position
        self.identifier()
        if self.take("="):
            if self.identifier() is None:
                raise self.bad("the value of an attribute")
            return True
        self.position = start
        return False

    def edge_statement(self, scope: _Scope) -> None:
        """One end is a node statement; n ends are n - 1 times all edges from one to the next."""
        line = self.next.line
        ends = [self.end(scope)]
        while arrow := self.take("->", "--"):
            if arrow.kind == "--":
                raise self.bad("'->' in a directed graph", arrow)
            ends.append(self.end(scope))
        for left, right in pairwise(ends):
            self.edges += [(source, target) for source in left for target in right]
        if self.next.kind == "[":
            attributes = self.attributes()
            for node in ends[0] if len(ends) == 1 else ():
                self.nodes[node] |= attributes
                self.line_of[node] = line

    def end(self, scope: _Scope) -> list[str]:
        """A subgraph, or nodes separated by commas, each with ports that are dropped."""
        if self.next.kind in ("subgraph", "{"):
            name = self.identifier() if self.take("subgraph") else None
            child = _Scope(scope, depth=scope.depth + 1)
            if name is not None:
                child = scope.named.setdefault(name, child)
            self.body(child)
            return list(child.nodes)
        nodes = []
        while not nodes or self.take(","):
            line = self.next.line
            node = self.identifier()
            if node is None:
                raise self.bad("a node, a subgraph, an attribute or '}'" if not nodes else "a node after ','")
            for _ in range(2):
                if self.take(":") and self.identifier() is None:
                    raise self.bad("a port")
            if node not in self.nodes:
                self.nodes[node] = scope.effective_defaults()
                self.line_of[node] = line
            scope.add(node)
            nodes.append(node)
        return nodes

    def attributes(self) -> dict[str, str]:
        """One or more bracketed lists."""
        found = {}
        while self.take("["):
            while not self.take("]"):
                key = self.identifier()
                if key is None:
                    raise self.bad("an attribute or ']'")
                value = self.identifier() if self.take("=") else "true"
                if value is None:
                    raise self.bad(f"the value of attribute {key!r}")
                found[key] = value
                self.take(",", ";")
        return found

    def identifier(self) -> str | None:
        token = self.take(*_ID)
        if token is None:
            return None
        text = _Html(token.text) if token.kind == "html" else token.text
        while token.kind == "quoted" and self.take("+"):
            text += self.need("quoted", "a quoted string after '+'").text
        return text


def _display(label: str, node: str) -> str:
    r"""A label as read by people: ``\n``, ``\l`` and ``\r`` end lines, ``\N`` is the node's name."""
    ends = {"n": "\n", "l": "\n", "r": "\n", "N": node}
    return re.sub(r"\\(.)", lambda match: ends.get(match[1], match[1]), label, flags=re.DOTALL).rstrip("\n")
