"""How long lowering takes: a million tasks from arrays, and a networkx graph of 200,000 edges.

Run as ``python -m benchmarks.lowering``; prints seconds and the peak of resident memory. The loops over edges
are compiled by Numba on the first use on a machine and kept on disk; a small graph is lowered first, and its
seconds are printed apart.
"""

from __future__ import annotations

import resource
import time

import networkx as nx
import numpy as np

from etproto.generators import layered_random
from etproto.graph import TaskGraph
from etproto.lowering_graph import lower_graph


def million_tasks() -> float:
    """1,000,000 tasks in 1,000 layers, two random predecessors each, from arrays to a lowered program:
    seconds.
    """
    made = layered_random(1000, 1000, predecessors=2, seed=0)
    source, target, count = made.edge_source.copy(), made.edge_target.copy(), made.count
    start = time.perf_counter()
    lowered = lower_graph(TaskGraph.from_arrays(source, target, count), timed=False)
    seconds = time.perf_counter() - start
    if lowered.tasks != 1_000_000:
        raise ValueError(f"expected 1,000,000 tasks, got {lowered.tasks}")
    return seconds


def networkx_graph() -> float:
    """A networkx graph of 200,000 edges to a lowered program: seconds."""
    rng = np.random.default_rng(0)
    target = rng.integers(1, 100_000, 250_000)
    source = (rng.random(250_000) * target).astype(int)
    edges = list(dict.fromkeys(zip(source.tolist(), target.tolist(), strict=True)))[:200_000]
    graph = nx.DiGraph()
    graph.add_nodes_from(range(100_000))
    graph.add_edges_from(edges)
    start = time.perf_counter()
    lowered = lower_graph(TaskGraph.from_networkx(graph), timed=False)
    seconds = time.perf_counter() - start
    if lowered.tasks != 100_000:
        raise ValueError(f"expected 100,000 tasks, got {lowered.tasks}")
    return seconds


def main() -> None:
    """Measure both and print them."""
    start = time.perf_counter()
    lower_graph(layered_random(4, 4, seed=0), timed=False)
    print(f"first use (compiling, or loading what was compiled): {time.perf_counter() - start:.2f} s")
    print(f"1,000,000 tasks, 2 predecessors each, from arrays: {million_tasks():.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"peak resident memory: {peak:.2f} GiB")
    print(f"networkx graph of 200,000 edges: {networkx_graph():.2f} s")


if __name__ == "__main__":
    main()
