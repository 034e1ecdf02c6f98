"""The loader thread of the hopper worker: copies into the ring of stages, ahead of the tasks that need them."""

from __future__ import annotations

from etproto import layout as L
from etproto.kernels.ptx.barrier import mbarrier_arrive, mbarrier_test, mbarrier_wait
from etproto.kernels.ptx.bulk import proxy_fence
from etproto.kernels.ptx.inline import device_function
from etproto.kernels.roles import next_stage, stage_address

__all__ = ["await_stages", "load_stages", "load_stages_ahead"]


@device_function
def load_stages(descriptors, ring, block, barrier, parity, at, stage, phase, stages, ahead, load, arguments):
    """Loader thread: a task's copies, into the stages from (stage, phase) on, with the functions of its kind.

    Copies that wait for nothing start as soon as stages are free; the others once the task is ready. Returns
    (stage, phase, going): going is False when the task was skipped after all, which only a failed run does.
    """
    count = stages(*arguments)
    late_stage = stage  # where the copies that wait for events go on
    step = count * 0
    late = count * 0
    ready = False
    going = True
    while late < count and going:
        if step < count and step - late < ring.stages and (step == late or not ready):
            if mbarrier_test(ring.empty + 8 * stage, phase ^ 1) == 1:
                ahead(stage_address(ring, stage), ring.full + 8 * stage, step, *arguments)
                step += 1
                stage, phase = next_stage(ring, stage, phase)
        if not ready:
            ready = mbarrier_test(block.ready + barrier, parity) == 1
            if ready:
                going = descriptors[at + L.DESCRIPTOR_STATE] == L.DESCRIPTOR_RUN
                proxy_fence()  # what other tasks wrote by ordinary stores is read by bulk copies now
        elif late < step:
            load(stage_address(ring, late_stage), ring.full + 8 * late_stage, late, *arguments)
            mbarrier_arrive(ring.full + 8 * late_stage)
            late_stage, _phase = next_stage(ring, late_stage, phase)
            late += 1
    while late < step:  # skipped: nothing more will come for these stages
        mbarrier_arrive(ring.full + 8 * late_stage)
        late_stage, _phase = next_stage(ring, late_stage, phase)
        late += 1
    return stage, phase, going


@device_function
def load_stages_ahead(descriptors, ring, block, barrier, parity, at, stage, phase, stages, ahead, arguments):
    """As `load_stages`, for a kind whose copies all wait for nothing: they may be done before the task is ready."""
    count = stages(*arguments)
    step = count * 0
    ready = False
    going = True
    while step < count and going:
        if mbarrier_test(ring.empty + 8 * stage, phase ^ 1) == 1:
            ahead(stage_address(ring, stage), ring.full + 8 * stage, step, *arguments)
            mbarrier_arrive(ring.full + 8 * stage)
            step += 1
            stage, phase = next_stage(ring, stage, phase)
        elif not ready:
            ready = mbarrier_test(block.ready + barrier, parity) == 1
            if ready:
                going = descriptors[at + L.DESCRIPTOR_STATE] == L.DESCRIPTOR_RUN
    return stage, phase, going


@device_function
def await_stages(ring, stage, phase):
    """Loader thread, at the end: wait for the copies into all stages, the last of which is before (stage, phase).

    A failed run leaves copies that nobody waits for, and shared memory must not be given up under them.
    """
    for _ in range(ring.stages):
        stage -= 1
        if stage < 0:
            stage = ring.stages - 1
            phase = phase ^ 1
        mbarrier_wait(ring.full + 8 * stage, phase)
