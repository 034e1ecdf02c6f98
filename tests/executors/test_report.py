"""What `raise_for_status` makes of what a run leaves, without knowing which tasks ran, as on a device."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from etproto import layout as L
from etproto.errors import NoProgressError, ProgramError, RunError
from etproto.executors import cpu, report
from etproto.executors.tensors import check_tensors
from etproto.lowering import lower
from etproto.models import MODELS
from etproto.schedule import schedule


@pytest.fixture
def ended(monkeypatch):
    """``ended(n, kind)``: (scheduled, control, counters, states, tensors) of a right run, as it left them."""

    def run(n: int, kind: str):
        found = {}
        monkeypatch.setattr(cpu, "raise_for_status", lambda *arrays, ran: found.update(arrays=arrays))
        instance = MODELS["splitk"].build(n=n)
        tensors = MODELS["splitk"].make_tensors(instance, np.random.default_rng(0))
        cpu.run(schedule(lower(instance), kind, workers=2), tensors)
        return [found["arrays"][0], *(array.copy() for array in found["arrays"][1:4]), tensors]

    return run


@pytest.mark.parametrize("kind", ["static", "dynamic", "mixed"])
def test_a_right_run_is_accepted(ended, kind):
    report.raise_for_status(*ended(3, kind))


def aborted(arrays, status, *words):
    arrays[1][L.CONTROL_STATUS] = status
    arrays[1][L.CONTROL_ERROR : L.CONTROL_ERROR + 5] = words
    return arrays


def test_no_progress_is_worked_out_from_counters(ended):
    """Two of four notifications: who has them is not known, so all notifiers are named."""
    arrays = ended(2, "static")
    first = int(arrays[0].lowered.grid_first[1])
    aborted(arrays, L.STATUS_NO_PROGRESS, 1, first + 1, 1, 8, int(2e9))
    arrays[2][1] = 2
    arrays[3][1] = [3, first + 1, L.PHASE_DONE, -1]
    with pytest.raises(NoProgressError) as caught:
        report.raise_for_status(*arrays)
    text = str(caught.value)
    assert text.startswith("splitk(n=2): no task finished for 2 s, ")
    assert "worker 1: final[1] waits for E[1], 2/4 notified; its notifiers are partial[1, 0], partial" in text
    arrays[2][1] = 0
    arrays[3][0, L.STATE_TASK] = 5
    with pytest.raises(NoProgressError, match=r"E\[1\], 0/4 notified, not by partial\[1, 0\], .*partial\[1, 3\]"):
        report.raise_for_status(*arrays)


def test_a_list_that_was_not_finished(ended):
    arrays = ended(2, "static")
    arrays[3][1, L.STATE_PHASE] = L.PHASE_BODY
    with pytest.raises(RunError, match="1 of 2 workers did not come to the end of their lists, the first is worker 1"):
        report.raise_for_status(*arrays)


@pytest.mark.parametrize(
    "change, text",
    [(-2, "2 of 10 tasks never ran"), (1, "11 tasks ran, but there are 10: some ran more than once")],
)
def test_tasks_are_counted(ended, change, text):
    arrays = ended(2, "static")
    arrays[3][0, L.STATE_FINISHED] += change
    with pytest.raises(RunError, match=text):
        report.raise_for_status(*arrays)


def test_tickets_are_counted(ended):
    arrays = ended(2, "dynamic")
    arrays[1][L.CONTROL_QUEUES + L.QUEUE_TAIL] += 1
    with pytest.raises(RunError, match="queue 0: 11 tasks were pushed and 12 tickets taken, expected 10 and 12"):
        report.raise_for_status(*arrays)


@pytest.mark.parametrize(
    "status, words, text",
    [
        (
            L.STATUS_QUEUE_FULL,
            (0, 7, 2, 9, 8),
            r"queue 2 is full: 9 tasks are in it with partial\[1, 3\], .* is 8",
        ),
        (
            L.STATUS_EXTENT_RANGE,
            (0, -1, 1, 70, 64),
            "grid final: a run-time extent gives 70 tasks, .* bound 64",
        ),
        (
            L.STATUS_TASK_RANGE,
            (0, 99, 1, 99, 8),
            r"E\[1\] triggers task 99 of grid partial, whose tasks are 0 to 7",
        ),
        (
            L.STATUS_EVENT_RANGE,
            (0, 6, 0, 0, 0),
            r"partial\[1, 2\] names a cell outside E, whose extents are \(2,\)",
        ),
        (77, (1, 2, 3, 4, 5), r"unknown status 77, error words \[1, 2, 3, 4, 5\]"),
    ],
)
def test_status_words_become_names_and_numbers(ended, status, words, text):
    with pytest.raises(RunError, match=text):
        report.raise_for_status(*aborted(ended(2, "static"), status, *words))


@dataclasses.dataclass
class OnDevice:
    """As much of a device array as is looked at."""

    array: np.ndarray

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__array_interface__, "version": 3}


def test_arrays_on_a_device(ended):
    scheduled, *_, tensors = ended(2, "static")
    placed = {name: OnDevice(array) for name, array in tensors.items()}
    check_tensors(scheduled.lowered, placed, on_device=True)
    check_tensors(scheduled.lowered, placed)
    with pytest.raises(ProgramError, match="tensor A: expected an array on the device .*, got numpy.ndarray"):
        check_tensors(scheduled.lowered, tensors, on_device=True)
    with pytest.raises(ProgramError, match="tensor A: expected a NumPy array"):
        check_tensors(scheduled.lowered, placed, on_device=False)
    placed["C"] = OnDevice(tensors["C"].astype(np.float64))
    with pytest.raises(ProgramError, match="tensor C: expected dtype float32, got float64"):
        check_tensors(scheduled.lowered, placed)
    placed["C"] = OnDevice(np.asfortranarray(tensors["C"]))
    with pytest.raises(ProgramError, match="tensor C: expected a C-contiguous array"):
        check_tensors(scheduled.lowered, placed)
