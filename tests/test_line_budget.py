"""etproto stays small and its imports run one way."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import etproto

PACKAGE = Path(__file__).resolve().parent.parent / "etproto"
FILES = sorted(PACKAGE.rglob("*.py"))

# The budget of the whole package: what it has, rounded up to the next 500.
CODE_LINES = 16_500
FILE_LINES = 400  # of one file, everything counted

# Modules by layer, one layer a line, the first knowing nobody: a module imports from its own layer and from
# those before it. Names are those below etproto; a name stands for all that is inside it, unless a longer one
# says otherwise. Executors return a Trace, and a trace knows tasks only, so the trace stands before them.
TABLE = """
errors
layout tasks expressions kernels.ptx
layouts tensor_maps kernels.groups kernels.roles
trace
tile_kind kernels.tiles
graph readers generators dependence graph_expand program program_parse program_parts \
edge_map regions needs numbering cells expand
lowering lowering_graph encoding triggers
scheduled schedulers schedule
check
kernels
executors
models
doctor
cli demo __main__ __init__
"""
LAYERS = [line.split() for line in TABLE.split("\n") if line]

NEVER = {"matplotlib", "torch", "experiments", "paper_figures", "tests"}
# What numba and numba-cuda bring: llvmlite builds the intrinsics, cuda.bindings talks to the driver.
CORE = {"numba", "numba_cuda", "llvmlite", "cuda", "numpy", "networkx", "etproto"}


def module_name(path: Path) -> str:
    """Name below etproto; ``__init__`` for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank, nor only a comment, nor part of a docstring."""
    silent = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported name, absolute, and whether a function imports it; not what only type hints import.

    ``from a import b`` gives ``a.b``, since b may be a module.
    """

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children = node.orelse
        else:
            children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(["etproto", *path.relative_to(PACKAGE).parts[: -node.level]]) if node.level else ""
            origin = ".".join(filter(None, [package, node.module]))
            yield from ((f"{origin}.{alias.name}", inside) for alias in node.names)
        for child in children:
            yield from visit(child, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    return visit(parsed(path), False)


def layer(module: str) -> int | None:
    """Index of a module's layer: that of the longest name in the table that holds it."""
    while True:
        for number, names in enumerate(LAYERS):
            if module in names:
                return number
        if "." not in module:
            return None
        module = module.rpartition(".")[0]


def short(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix()


def test_line_budget() -> None:
    """The budget is a ratchet: raising it needs a reason in the commit that does so."""
    counts = {path: code_lines(path.read_text(encoding="utf-8")) for path in FILES}
    trees = [parsed(path) for path in FILES]
    calls = [node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    kinds = sum(getattr(called, "id", getattr(called, "attr", "")) == "TileKind" for called in calls)
    total = sum(counts.values())
    names = getattr(etproto, "__all__", [])
    size = f"{total} code lines of {CODE_LINES} in {len(FILES)} files"
    print(f"\netproto: {size}, {kinds} tile kinds, {len(names)} public names")
    longest = sorted(counts, key=counts.__getitem__, reverse=True)[:3]
    assert total <= CODE_LINES, f"the longest: {', '.join(f'{short(p)} {counts[p]}' for p in longest)}"


def test_no_file_is_long() -> None:
    lengths = {short(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES} == {}


def test_imports_of_other_packages() -> None:
    faults = []
    for path in FILES:
        for name, inside in imports(path):
            top = name.partition(".")[0]
            if top in NEVER or (not inside and top not in CORE and top not in sys.stdlib_module_names):
                faults.append(f"{short(path)} imports {top}" + (" in a function" if inside else ""))
    assert faults == []


def test_every_module_has_a_layer() -> None:
    unknown = [short(path) for path in FILES if layer(module_name(path)) is None]
    assert unknown == [], "add them to LAYERS of this test"


def test_imports_run_in_the_order_of_the_layers() -> None:
    faults = []
    for path in FILES:
        for name, _ in imports(path):
            package, _, imported = name.partition(".")
            importer, origin = layer(module_name(path)), layer(imported)
            if origin is None:  # not a module, but a name that the package exports
                origin = layer("__init__")
            if package == "etproto" and importer is not None and importer < origin:
                faults.append(f"{short(path)} imports {name}, which comes later")
    assert faults == []


# -- the measures themselves ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ('"""A docstring\nof two lines."""\n\n# a comment\nx = 1  # and code\n', 1),
        ('def f():\n    """Doc."""\n    return """text\n    of two lines"""\n', 3),
        ("x = [\n    1,\n    # a comment\n\n    2,\n]\n", 4),
    ],
)
def test_code_lines(text: str, expected: int) -> None:
    assert code_lines(text) == expected


def test_layer_is_that_of_the_longest_name() -> None:
    assert layer("kernels.tiles.gemm") == layer("kernels.tiles") < layer("kernels.worker") == layer("kernels")
    assert layer("__init__") == layer("cli") == len(LAYERS) - 1
    assert layer("no_such_module") is None
