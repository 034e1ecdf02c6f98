"""Every intrinsic in a kernel for sm_90a: its PTX is what its documentation says, and ptxas takes it."""

from __future__ import annotations

import re
from functools import cache
from types import ModuleType

import numpy as np
import pytest
from numba import cuda, float32, uint8

from etproto.kernels.compile import compile_ptx
from etproto.kernels.ptx import (
    barrier,
    bulk,
    convert,
    fragment,
    fragment_global,
    integer,
    memory,
    mma,
    registers,
    shared,
    timer,
    warp,
    wgmma,
)

CAPABILITY = (9, 0, "a")

# Statements of a kernel with `address` and `i` (integers), `x` (a float32), `array` (a shared array); those that
# make no memory access add to `total` or `count`, which are stored at the end. Then what the PTX must hold.
CALLS: dict[ModuleType, dict[str, tuple[str, str]]] = {
    barrier: {
        "mbarrier_init": ("mbarrier_init(i, i)", r"mbarrier\.init\.shared::cta\.b64 \["),
        "mbarrier_init_fence": ("mbarrier_init_fence()", r"fence\.mbarrier_init\.release\.cluster"),
        "mbarrier_arrive": ("mbarrier_arrive(i)", r"mbarrier\.arrive\.shared::cta\.b64 _"),
        "mbarrier_expect": ("mbarrier_expect(i, i)", r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _"),
        "mbarrier_expect_transaction": (
            "mbarrier_expect_transaction(i, i)",
            r"mbarrier\.expect_tx\.relaxed\.cta\.shared::cta\.b64",
        ),
        "mbarrier_complete": ("mbarrier_complete(i, i)", r"mbarrier\.complete_tx\.relaxed\.cta\.shared::cta\.b64"),
        "mbarrier_wait": ("mbarrier_wait(i, 1)", r"mbarrier\.try_wait\.parity[^;]*;[^}]*%clock64[^}]*trap;"),
        "mbarrier_test": ("count += mbarrier_test(i, 1)", r"mbarrier\.try_wait\.parity"),
        "named_barrier": ("named_barrier(i, 64)", r"bar\.sync %r\d+, %r\d+"),
        "named_barrier_arrive": ("named_barrier_arrive(i, 64)", r"bar\.arrive %r\d+, %r\d+"),
    },
    bulk: {
        "tma_load_2d": (
            "tma_load_2d(i, address, i, i, i)",
            r"bulk\.tensor\.2d\.shared::cluster\.global\.mbarrier::complete_tx::bytes \[%r\d+\], \[%rd\d+, {%r\d+, %r",
        ),
        "tma_load_3d": (
            "tma_load_3d(i, address, i, i, i, i)",
            r"bulk\.tensor\.3d\.shared::cluster\.global\.mbarrier::complete_tx::bytes",
        ),
        "tma_load_2d_hint": (
            "tma_load_2d_hint(i, address, i, i, i, address)",
            r"bulk\.tensor\.2d\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.L2::cache_hint",
        ),
        "tma_load_2d_multicast": (
            "tma_load_2d_multicast(i, address, i, i, i, i)",
            r"bulk\.tensor\.2d\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.multicast::cluster",
        ),
        "tma_store_2d": ("tma_store_2d(address, i, i, i)", r"bulk\.tensor\.2d\.global\.shared::cta\.bulk_group"),
        "tma_store_3d": ("tma_store_3d(address, i, i, i, i)", r"bulk\.tensor\.3d\.global\.shared::cta\.bulk_group"),
        "tma_reduce_add_2d": (
            "tma_reduce_add_2d(address, i, i, i)",
            r"cp\.reduce\.async\.bulk\.tensor\.2d\.global\.shared::cta\.add\.bulk_group",
        ),
        "bulk_load": (
            "bulk_load(i, address, i, i)",
            r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes \[",
        ),
        "bulk_load_hint": (
            "bulk_load_hint(i, address, i, i, address)",
            r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.L2::cache_hint",
        ),
        "bulk_store": ("bulk_store(address, i, i)", r"cp\.async\.bulk\.global\.shared::cta\.bulk_group"),
        "bulk_commit": ("bulk_commit()", r"cp\.async\.bulk\.commit_group"),
        "bulk_wait_0": ("bulk_wait_0()", r"cp\.async\.bulk\.wait_group 0"),
        "bulk_wait_read_0": ("bulk_wait_read_0()", r"cp\.async\.bulk\.wait_group\.read 0"),
        "bulk_wait_read_1": ("bulk_wait_read_1()", r"cp\.async\.bulk\.wait_group\.read 1"),
        "proxy_fence": ("proxy_fence()", r"fence\.proxy\.async;"),
        "proxy_fence_shared": ("proxy_fence_shared()", r"fence\.proxy\.async\.shared::cta"),
        "prefetch_tensor_map": ("prefetch_tensor_map(address)", r"prefetch\.tensormap \["),
        "policy_evict_first": ("count += policy_evict_first()", r"createpolicy\.fractional\.L2::evict_first\.b64"),
        "policy_evict_last": ("count += policy_evict_last()", r"createpolicy\.fractional\.L2::evict_last\.b64"),
        "cluster_rank": ("count += cluster_rank()", r"%cluster_ctarank"),
        "cluster_barrier": (
            "cluster_barrier()",
            r"barrier\.cluster\.arrive\.release\.aligned; barrier\.cluster\.wait\.acquire\.aligned",
        ),
    },
    convert: {
        "bfloat16_to_float32": ("total += bfloat16_to_float32(i)", r"shl\.b32 t, %r\d+, 16"),
        "float32_to_bfloat16": ("count += float32_to_bfloat16(x)", r"cvt\.rn\.bf16\.f32"),
        "float16_to_float32": ("total += float16_to_float32(i)", r"cvt\.f32\.f16"),
        "float32_to_float16": ("count += float32_to_float16(x)", r"cvt\.rn\.f16\.f32"),
        "pack_bfloat16": ("count += pack_bfloat16(x, x + x)", r"cvt\.rn\.bf16x2\.f32"),
        "unpack_low_bfloat16": ("total += unpack_low_bfloat16(i + 1)", r"shl\.b32 t"),
        "unpack_high_bfloat16": ("total += unpack_high_bfloat16(i)", r"and\.b32 t, %r\d+, 0xffff0000"),
        "load_bfloat16": ("total += load_bfloat16(address, i)", r"ld\.global\.b16"),
        "store_bfloat16": ("store_bfloat16(address, i, x)", r"st\.global\.b16"),
    },
    mma: {
        "ldmatrix_x4": ("count += ldmatrix_x4(i)[3]", r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16"),
        "ldmatrix_x2": ("count += ldmatrix_x2(i)[1]", r"ldmatrix\.sync\.aligned\.m8n8\.x2\.shared\.b16"),
        "stmatrix_x4": ("stmatrix_x4(i, i, i, i, i)", r"stmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16"),
    },
    shared: {
        "shared_address": ("count += shared_address(array)", r"cvta\.to\.shared\.u64"),
        "load_shared_int32": ("count += load_shared_int32(i)", r"ld\.shared\.b32"),
        "load_shared_int64": ("count += load_shared_int64(i)", r"ld\.shared\.b64"),
        "load_shared_float32": ("total += load_shared_float32(i)", r"ld\.shared\.f32"),
        "load_shared_vector": ("count += load_shared_vector(i)[2]", r"ld\.shared\.v4\.b32"),
        "store_shared_int32": ("store_shared_int32(i, i)", r"st\.shared\.b32"),
        "store_shared_int64": ("store_shared_int64(i, address)", r"st\.shared\.b64"),
        "store_shared_float32": ("store_shared_float32(i, x)", r"st\.shared\.f32"),
        "store_shared_vector": ("store_shared_vector(i, i, i, i, i)", r"st\.shared\.v4\.b32"),
        "load_global_vector": ("count += load_global_vector(address)[1]", r"ld\.global\.v4\.b32 {%r"),
        "store_global_vector": ("store_global_vector(address, i, i, i, i)", r"st\.global\.v4\.b32"),
        "copy_vector": ("copy_vector(i, address)", r"ld\.global\.v4\.b32 {a[^}]*}[^;]*; st\.shared\.v4\.b32"),
    },
    warp: {
        "lane": ("count += lane()", r"%laneid"),
        "warp_barrier": ("warp_barrier()", r"bar\.warp\.sync 0xffffffff"),
        "shuffle_down_float32": ("total += shuffle_down_float32(x, i)", r"shfl\.sync\.down\.b32"),
        "shuffle_xor_float32": ("total += shuffle_xor_float32(x, i)", r"shfl\.sync\.bfly\.b32"),
        "shuffle_index_int32": ("count += shuffle_index_int32(i, i)", r"shfl\.sync\.idx\.b32"),
    },
    wgmma: {
        "wgmma_fence": ("wgmma_fence()", r"wgmma\.fence\.sync\.aligned"),
        "wgmma_commit": ("wgmma_commit()", r"wgmma\.commit_group\.sync\.aligned"),
    },
}
HELPERS = {"require_columns"}  # run on the host
FACTORIES = {
    mma: {"mma_m16n8k16"},
    registers: {"increase_registers", "decrease_registers"},
    wgmma: {"wgmma", "wgmma_wait"},
    fragment: {"fragment_map", "fragment_rotate", "fragment_store", "fragment_zero", "fragment_zip"},
    fragment_global: {"fragment_add_global", "fragment_store_global"},
}
MODULES = (*CALLS, registers, fragment, fragment_global, integer, memory, timer)


@cache
def compiled(module: ModuleType) -> str:
    """PTX of a kernel that calls every intrinsic of a module."""
    statements = "\n    ".join(statement for statement, _ in CALLS[module].values())
    source = f"""
def kernel(address):
    array = cuda.shared.array(0, uint8)
    i = cuda.threadIdx.x
    x = np.float32(i)
    total = np.float32(0)
    count = address * 0
    {statements}
    store_shared_float32(0, total)
    store_shared_int64(8, count)
"""
    names = {**vars(shared), **vars(module), "cuda": cuda, "np": np, "uint8": uint8}
    exec(source, names)
    return compile_ptx(names["kernel"], CAPABILITY)


@pytest.mark.parametrize("module", CALLS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_compiles_to_its_instruction(module, assemble):
    ptx = compiled(module)
    assert ".target sm_90a" in ptx
    missing = [name for name, (_, instruction) in CALLS[module].items() if not re.search(instruction, ptx)]
    assert not missing
    assemble(ptx)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_is_listed_and_says_its_instruction(module):
    """The first words in double quotes of a docstring are the mnemonic, and in the PTX; architectures are named."""
    functions = {name for name in module.__all__ if callable(getattr(module, name))} - HELPERS
    if module in CALLS or module in FACTORIES:
        assert functions == set(CALLS.get(module, ())) | FACTORIES.get(module, set())
    for name in functions:
        function = getattr(module, name)
        quoted = re.findall(r"``([^`]+)``", function.__doc__)
        assert quoted, f"{name}: no PTX in its docstring"
        if name not in FACTORIES.get(module, ()) and hasattr(function, "__ptx__"):
            text = function.__ptx__[0]
            assert all(word in text for word in re.split(r"[. ]", quoted[0])), f"{name}: {quoted[0]} is not in {text}"
        if module not in (integer, memory, timer):
            assert re.search(r"sm_\d", module.__doc__ + function.__doc__), f"{name}: no architecture"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_warps_product_and_moved_registers(dtype, assemble):
    multiply = mma.mma_m16n8k16(dtype)
    more, fewer = registers.increase_registers(232), registers.decrease_registers(40)

    def kernel(address):
        c = cuda.local.array(4, float32)
        for element in range(4):
            c[element] = 0
        if cuda.threadIdx.x < 128:
            more()
            for step in range(address & 7):
                a = mma.ldmatrix_x4(64 * step)
                b = mma.ldmatrix_x2(64 * step + 32)
                multiply(c, a[0], a[1], a[2], a[3], b[0], b[1])
            shared.store_shared_float32(0, c[0] + c[3])
        else:
            fewer()

    ptx = compile_ptx(kernel, CAPABILITY, threads=256)
    name = "bf16" if dtype == "bfloat16" else "f16"
    a, b = (re.search(rf"ldmatrix\S*x{count}\.shared\.b16 ({{[^}}]*}})", ptx).group(1) for count in (4, 2))
    c = re.search(rf"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.{name}\.{name}\.f32 ({{[^}}]*}})", ptx).group(1)
    assert f"{c}, {a}, {b}, {c};" in ptx and len(set(re.findall(r"%f\d+", c))) == 4
    assert "setmaxnreg.inc.sync.aligned.u32 232" in ptx and "setmaxnreg.dec.sync.aligned.u32 40" in ptx
    said = assemble(ptx)
    assert "ignored" not in said
    assert not re.search(r"\.local\b", ptx) and "0 bytes stack frame" in said
