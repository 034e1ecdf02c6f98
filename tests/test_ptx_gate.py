"""A gate that needs no GPU: PTX of every kernel, for sm_80, sm_90 and sm_90a, keeps the device rules.

A loop that waits for memory must hold an acquire load or an atomic: a plain load is moved out of it, and it
never ends. Such a loop is known by its exits: none of the conditions that end it depends on a register that
one pass hands to the next, nor on a clock, so nothing but another thread can end it. A loop that sleeps
between its passes counts too, unless all its exits depend on a clock. Waits at mbarriers are inline assembly with
a loop of its own inside, which a clock ends.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from numba import cuda

from etproto.kernels.compile import compile_ptx, entry_name
from etproto.kernels.ptx.memory import load_acquire_int32
from etproto.kernels.ptx.timer import globaltimer, nanosleep
from etproto.kernels.ptx.views import array_view
from etproto.kernels.reset import reset
from etproto.kernels.source import kernel_function
from etproto.kernels.tiles.spin import spin
from etproto.kernels.workers import worker_kernel
from etproto.lowering import lower
from etproto.lowering_graph import lower_graph
from etproto.models import MODELS
from etproto.tile_kind import TileKind

HOPPER = (9, 0, "a")
WITH_ROLES = ("matmul", "skinny", "chain", "mlp")  # their portable bodies differ in nothing that sm_90 changes
PORTABLE = [*MODELS, "splitk, records in global memory", "spin", "reset"]
KERNELS = [(name, (8, 0)) for name in PORTABLE] + [(name, (9, 0)) for name in PORTABLE if name not in WITH_ROLES]
# Of the hopper worker: with a trace, with run-time values, with a store role, and with two kinds that share memory.
HOPPER_KERNELS = ["splitk, traced", "bucket_sum, records in global memory", "matmul", "mlp"]
# Bytes of the hopper worker, whose threads have 168 registers: spills of the protocol's rare paths. More of them
# where records too large for shared memory are read by 64-bit addresses.
MOST_SPILLED = {True: 200, False: 800}
CLOCKS = {"%globaltimer", "%clock64"}
# The bundled programs' kinds work on float32 and int32 alone; a float64 literal would double their cost.
DOUBLE = re.compile(r"\b(?:add|sub|mul|fma|div|rcp|sqrt|neg|abs|max|min)\.(?:r[nz]\.)?f64\b")


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction: its text, what it writes and what it reads."""

    text: str
    written: tuple[str, ...]
    read: tuple[str, ...]

    @property
    def acquires(self) -> bool:
        """Whether it sees what other threads have written meanwhile."""
        return bool(re.search(r"\bld\.acquire\.|\bld\.volatile\.|\batom\.", self.text))


@dataclass(frozen=True)
class Loop:
    """A natural loop: its instructions, those outside inner loops, and the registers that its exits test."""

    instructions: tuple[Instruction, ...]
    own: tuple[Instruction, ...]
    exits: tuple[frozenset[str], ...]

    def waits(self) -> bool:
        """Whether only another thread can end the loop, or it sleeps until one does."""
        flow = nx.DiGraph()
        for instruction in self.instructions:
            flow.add_edges_from((w, r) for w in instruction.written for r in instruction.read)
        behind = [
            {r for register in tested if register in flow for r in {register} | nx.descendants(flow, register)}
            for tested in self.exits
        ]
        timed = [bool(reached & CLOCKS) for reached in behind]
        counted = [not nx.is_directed_acyclic_graph(flow.subgraph(reached)) for reached in behind]
        sleeps = any("nanosleep" in instruction.text for instruction in self.own)
        return not any(timed + counted) or (sleeps and not all(timed))


def _instructions(line: str, number: int) -> Iterator[Instruction]:
    """Instructions of a line; inline assembly has several, and registers of its own."""
    local = set(re.findall(r"\.reg \.\w+ ([\w, ]+);", line))
    own = {name.strip() for names in local for name in names.split(",")}
    for part in re.sub(r"[{}]", " ", line).split(";"):
        part = part.strip()
        if not part or part.startswith("."):
            continue
        guard = re.match(r"@!?(%?\w+)\s+", part)
        opcode, _, operands = part[guard.end() if guard else 0 :].partition(" ") if " " in part else (part, "", "")
        if "\t" in part:
            opcode, _, operands = part[guard.end() if guard else 0 :].partition("\t")
        names = [
            f"{name} of {number}" if name in own else name
            for name in re.findall(r"%\w+|\b[a-z]\b", operands)
            if name.startswith("%") or name in own
        ]
        stores = opcode.startswith(("st.", "red.", "bar.sync", "bra", "ret", "nanosleep"))
        first = operands.split(",")[0]
        count = 0 if stores else len(re.findall(r"%\w+|\b[a-z]\b", first if "{" not in first else operands))
        written, read = names[:count], names[count:]
        if guard:
            read = [*read, guard[1]]
        yield Instruction(part, tuple(written), tuple(read))


def _graph(text: str) -> tuple[dict[str, list[Instruction]], nx.DiGraph]:
    """Basic blocks of the entry function, and its control-flow graph from the block ``entry``."""
    body = text[text.index("{", text.index(".entry")) + 1 :]
    blocks: dict[str, list[Instruction]] = {"entry": []}
    graph = nx.DiGraph([("entry", "entry body")])
    blocks[here := "entry body"] = []
    falls = True
    for number, line in enumerate(body.splitlines()):
        line = line.split("//")[0].strip()
        label = re.fullmatch(r"(\$\w+):", line)
        if label:
            if falls:
                graph.add_edge(here, label[1])
            blocks[here := label[1]] = []
            falls = True
        for instruction in [] if label else _instructions(line, number):
            blocks[here].append(instruction)
            jump = re.match(r"(@!?%\w+\s+)?bra(?:\.uni)?\s+(\$\w+)", instruction.text)
            if jump:
                graph.add_edge(here, jump[2])
                falls = jump[1] is not None
                if falls:  # what follows a conditional jump is a block of its own
                    graph.add_edge(here, f"after {number}")
                    blocks[here := f"after {number}"] = []
            elif "{" not in line and re.match(r"(ret|exit|trap)\b", instruction.text):  # inline assembly goes on
                falls = False
    return blocks, graph.subgraph(nx.descendants(graph, "entry") | {"entry"})


@cache
def loops(text: str) -> list[Loop]:
    """Natural loops of the entry function: the blocks from a dominator to an edge back to it."""
    blocks, graph = _graph(text)
    tree = nx.DiGraph((above, block) for block, above in nx.immediate_dominators(graph, "entry").items() if above)
    tree.remove_edges_from(list(nx.selfloop_edges(tree)))
    found: dict[str, set[str]] = {}
    for source, header in graph.edges:
        if source == header or nx.has_path(tree, header, source):
            loop = found.setdefault(header, {header})
            pending = [source]
            while pending:
                block = pending.pop()
                if block not in loop:
                    loop.add(block)
                    pending += graph.predecessors(block)
    result = []
    for loop in found.values():
        inner = set().union(*(other for other in found.values() if other < loop))
        exits = [block for block in loop if set(graph.successors(block)) - loop]
        tested = [frozenset(blocks[block][-1].read) for block in exits]
        instructions = [tuple(i for block in part for i in blocks[block]) for part in (loop, loop - inner)]
        result.append(Loop(*instructions, tuple(tested)))
    return result


def bad_polls(text: str) -> list[str]:
    """Loops that wait for memory without an acquire load or an atomic among their own instructions."""
    waiting = [loop for loop in loops(text) if loop.waits()]
    return ["\n".join(i.text for i in loop.own) for loop in waiting if not any(i.acquires for i in loop.own)]


def kinds_of(name: str) -> tuple[TileKind, ...]:
    """Tile kinds of a bundled program; what follows a comma in the name says how its kernel is made."""
    model = MODELS[name.split(",")[0]]
    target = model.build()
    return (lower(target) if model.kinds is None else lower_graph(target, model.kinds(target))).kinds


@cache
def ptx(name: str, capability: tuple[int | str, ...]) -> str:
    """PTX of a kernel; each is compiled once."""
    shared_tables = "global memory" not in name
    if capability == HOPPER:
        kernel = worker_kernel("hopper", kinds_of(name), shared_tables=shared_tables, traced="traced" in name)
        return compile_ptx(kernel.function, capability, threads=kernel.threads)
    if name == "reset":
        return compile_ptx(reset, capability)
    if name == "spin":
        return compile_ptx(kernel_function((spin,)), capability)
    return compile_ptx(kernel_function(kinds_of(name), shared_tables=shared_tables), capability)


def assembled(name: str, capability: tuple[int | str, ...], folder: Path) -> dict[str, int]:
    """What ``ptxas -v`` says of a kernel: bytes of its stack frame and of spills, registers."""
    (folder / "kernel.ptx").write_text(ptx(name, capability))
    architecture = "".join(map(str, capability))
    command = ["ptxas", "-v", f"-arch=sm_{architecture}", "kernel.ptx", "-o", "kernel.cubin"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    sizes = {
        what: int(size) for size, what in re.findall(r"(\d+) bytes (stack frame|spill stores|spill loads)", run.stderr)
    }
    return {**sizes, "registers": int(re.findall(r"Used (\d+) registers", run.stderr)[0])}


needs_ptxas = pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas on PATH")


@pytest.mark.parametrize(
    ("name", "capability"), KERNELS, ids=lambda value: value if isinstance(value, str) else f"sm_{value[0]}{value[1]}"
)
class TestKernels:
    def test_loops_that_wait_acquire(self, name, capability):
        assert bad_polls(ptx(name, capability)) == []

    def test_the_waits_of_the_protocol_are_loops(self, name, capability):
        """Event counters (32 bits) and queue slots (64 bits) are polled inside loops, not before them."""
        waiting = [i.text for loop in loops(ptx(name, capability)) if loop.waits() for i in loop.own]
        found = {size for text in waiting for size in re.findall(r"ld\.acquire\.gpu\.global\.(b\d\d)", text)}
        assert found == (set() if name == "reset" else {"b32", "b64"})

    def test_no_local_memory_and_no_calls(self, name, capability):
        text = ptx(name, capability)
        assert ".local" not in text
        assert not re.findall(r"^\s*(?:@!?%\w+\s+)?call\b.*", text, re.M)

    def test_no_read_only_loads_and_no_doubles(self, name, capability):
        text = ptx(name, capability)
        assert "ld.global.nc" not in text, "what tasks of this launch write must not be read so"
        assert not DOUBLE.findall(text)

    def test_one_entry_that_takes_one_address(self, name, capability):
        text = ptx(name, capability)
        head = text[text.index(".entry") : text.index("{", text.index(".entry"))]
        assert entry_name(text) in head
        assert re.findall(r"\.param \.(\w+)", head) in (["u64"], ["b64"])

    @needs_ptxas
    def test_nothing_spills(self, name, capability, tmp_path):
        found = assembled(name, capability, tmp_path)
        assert found["stack frame"] == found["spill stores"] == found["spill loads"] == 0


@pytest.mark.parametrize("name", HOPPER_KERNELS)
class TestHopperKernels:
    def test_loops_that_wait_acquire(self, name):
        assert bad_polls(ptx(name, HOPPER)) == []

    def test_the_waits_of_the_protocol_are_loops(self, name):
        waiting = [i.text for loop in loops(ptx(name, HOPPER)) if loop.waits() for i in loop.own]
        found = {size for text in waiting for size in re.findall(r"ld\.acquire\.gpu\.global\.(b\d\d)", text)}
        assert found == {"b32", "b64"}

    def test_waits_at_mbarriers_end_by_themselves(self, name):
        """Every loop of tries reads the clock and traps; a single try stands outside such a loop."""
        text = ptx(name, HOPPER)
        tries = [line for line in text.splitlines() if "mbarrier.try_wait" in line]
        bounded = [line for line in tries if re.search(r"WAIT_\d+: .*%clock64.*@more bra WAIT_\d+; trap;", line)]
        single = [line for line in tries if "bra" not in line]
        assert len(bounded) >= 6 and len(bounded) + len(single) == len(tries)

    def test_no_local_memory_no_calls_no_read_only_loads_no_doubles(self, name):
        text = ptx(name, HOPPER)
        assert ".local" not in text and "ld.global.nc" not in text and not DOUBLE.findall(text)
        assert not re.findall(r"^\s*(?:@!?%\w+\s+)?call\b.*", text, re.M)

    def test_barriers_of_the_whole_block_stand_before_the_roles(self, name):
        """Once warps have roles, none may wait for the whole block."""
        text = ptx(name, HOPPER)
        assert ".target sm_90a" in text and ".maxntid 384, 1, 1" in text
        blocks, graph = _graph(text)
        whole = [label for label in graph if any(re.match(r"bar\.sync\s+0$", i.text) for i in blocks[label])]
        roles = {label for label in graph if any("mbarrier.arrive" in i.text for i in blocks[label])}
        assert len(whole) in (1, 2) and roles
        assert not [label for label in whole if any(nx.has_path(graph, role, label) for role in roles)]

    @needs_ptxas
    def test_it_fits_into_registers(self, name, tmp_path):
        found = assembled(name, HOPPER, tmp_path)
        assert found.pop("registers") <= 168 and found.pop("stack frame") <= 200, found
        assert max(found.values()) <= MOST_SPILLED["global memory" not in name], found


view = array_view("int32", 1)


def _plain_spin(address):
    flag = view(address, 1)
    while flag[0] == 0:
        pass


def _plain_spin_that_sleeps(address):
    flag = view(address, 1)
    while flag[0] == 0:
        nanosleep(20)


def _counted_plain_spin_that_sleeps(address):
    flag = view(address, 2)
    polls = 0
    while flag[0] == 0 and polls < 1000:
        polls += 1
        nanosleep(20)
    flag[1] = polls


def _acquire_before_the_loop(address):
    flag = view(address, 2)
    seen = load_acquire_int32(address, 0)
    while seen == 0:
        nanosleep(20)
    flag[1] = 1


def _barrier_spin(address):
    flag = view(address, 1)
    while flag[0] == 0:
        cuda.syncthreads()


def _acquire_spin(address):
    while load_acquire_int32(address, 0) == 0:
        nanosleep(20)


def _search(address):
    values = view(address, 100)
    place = 0
    while place < 99 and values[place] != 0:
        place += 1
    values[99] = place


def _pause(address):
    until = globaltimer() + address
    while globaltimer() < until:
        nanosleep(50)


BAD = [
    _plain_spin,
    _plain_spin_that_sleeps,
    _counted_plain_spin_that_sleeps,
    _acquire_before_the_loop,
    _barrier_spin,
]


class TestTheGateItself:
    @pytest.mark.parametrize("kernel", BAD)
    def test_bad_waits_are_caught(self, kernel):
        """C28: what Numba makes of ``while flag[0] == 0: pass`` tests what was loaded before the loop."""
        assert len(bad_polls(compile_ptx(kernel, (9, 0)))) == 1

    @pytest.mark.parametrize("kernel", [_acquire_spin, _search, _pause])
    def test_others_pass(self, kernel):
        text = compile_ptx(kernel, (9, 0))
        assert len(loops(text)) >= 1 and bad_polls(text) == []
