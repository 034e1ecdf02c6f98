"""The one definition of every array that host and device share: field numbers, record sizes, status words.

A lowered program is one int64 array, ``words``: a header, then sections of fixed-size records. Everything
that the device evaluates per task (extents, edge maps, needs, triggers, operands) is a record here, so a
graph table and a symbolic formula, one rank or several, one pass or a loop, run in the same kernel. Encoder,
device code and cpu executor import these numbers.

A word that depends on a symbol is resolved from the ``scalars`` array by the reset kernel before each launch:
rebinding stores a few scalars and rebuilds nothing.
"""

from __future__ import annotations

# -- header: where each section starts (word offsets), and how many records it has ---------------------------
HEADER_GRIDS = 0
HEADER_GRID_COUNT = 1
HEADER_EDGES = 2
HEADER_DIMENSIONS = 3
HEADER_EVENTS = 4
HEADER_EVENT_COUNT = 5
HEADER_TRIGGERS = 6
HEADER_OPERANDS = 7
HEADER_TABLE_OPERANDS = 8  # section of one word a kind: first operand record of that kind in the table grid
HEADER_TASK_TABLE = 9  # buffer number of the int32 task table, -1 if no grid is a table
HEADER_CELLS = 10  # event cells at the bound: counters = completed[cells], dispatched[cells], ready[tasks]
HEADER_TASKS = 11  # task ids at the bound
HEADER_RANKS = 12
HEADER_BUFFERS = 13
HEADER_WORDS = 16

# -- task grids ----------------------------------------------------------------------------------------------
GRID_KIND = 0
GRID_DIMENSIONS = 1
GRID_SOURCE = 2  # SOURCE_FORMULA or SOURCE_TABLE
GRID_FIRST = 3  # first task id
GRID_BOUND = 4  # tasks at the bound: ids FIRST .. FIRST + BOUND
GRID_EXTENT = 5  # 4 words; a run-time extent 0 is read through GRID_COUNT_BUFFER
GRID_COUNT_BUFFER = 9  # buffer that holds extent 0 (or the row pointer of a ragged grid); -1 when static
GRID_COUNT_INDEX = 10  # element of that buffer
GRID_RAGGED = 11  # 1: dimensions 0 and 1 are (row, position) with position in pointer[row]:pointer[row + 1]
GRID_WAIT_FIRST = 12  # edge records
GRID_WAIT_COUNT = 13
GRID_GATE_COUNT = 14  # leading wait edges to pass before extents and maps of this grid may be evaluated
GRID_NOTIFY_FIRST = 15
GRID_NOTIFY_COUNT = 16
GRID_OPERANDS = 17  # first operand record (formula grids)
GRID_TABLE_ROW = 18  # first row in the task table (table grids)
GRID_WAIT_CELLS = 19  # wait cells of each task: 0, 1, or 2 = count them per task with a ready counter
GRID_EPOCH = 20  # epoch step of the grid's tasks (1 outside loops)
GRID_POOL = 21  # rows reserved for tasks created at run time
GRID_RANK = 22
GRID_CONSTANT_GATES = 23  # leading gates that name one fixed event: passed before a run-time extent is read
GRID_WORDS = 24

SOURCE_FORMULA = 0
SOURCE_TABLE = 1

# -- edges: one wait or notify of a grid ---------------------------------------------------------------------
EDGE_EVENT = 0  # event tensor
EDGE_DIMENSIONS = 1
EDGE_FIRST_DIMENSION = 2
EDGE_TRIGGERS = 3  # wait edge: 1 if meeting the event counts towards the task's readiness
EDGE_WORDS = 4

# An index is ((coordinate . COEFFICIENT + CONSTANT) // DIVISOR) % MODULUS, then optionally one load from a
# buffer.
INDEX_COEFFICIENT = 0  # 4 words
INDEX_CONSTANT = 4
INDEX_DIVISOR = 5
INDEX_MODULUS = 6  # 0: none
INDEX_BUFFER = 7  # -1: none
INDEX_WORDS = 8

# A dimension of an edge map: which values of one event coordinate a task touches.
DIMENSION_FORM = 0
DIMENSION_LOW = 1  # index record
DIMENSION_HIGH = 9  # index record
DIMENSION_GATHER = 17  # buffer whose elements low .. high are the event coordinates (FORM_GATHER)
DIMENSION_EXTENT = 18
DIMENSION_STRIDE = 19
DIMENSION_WORDS = 20

FORM_POINT = 0  # the one value low
FORM_RANGE = 1  # low .. high - 1, clipped to the extent
FORM_GATHER = 2  # gather[low .. high - 1]

# -- event tensors -------------------------------------------------------------------------------------------
EVENT_BASE = 0  # first cell
EVENT_CELLS = 1  # cells as bound
EVENT_DIMENSIONS = 2
EVENT_EXTENT = 3  # 4 words
EVENT_STRIDE = 7  # 4 words
EVENT_NEED_FORM = 11
EVENT_NEED = 12  # the need (NEED_SCALAR) or the buffer that holds one int32 a cell
EVENT_SCOPE = 13  # SCOPE_GPU or SCOPE_SYSTEM
EVENT_RANK = 14
EVENT_ANY_OF = 15  # 1: a wait is satisfied by the first notification
EVENT_TRIGGER_FIRST = 16
EVENT_TRIGGER_COUNT = 17
EVENT_EARLY = 18  # 1: its tasks may be pushed when its notifiers have been dispatched
EVENT_WORDS = 20

NEED_SCALAR = 0
NEED_TABLE = 1  # static, one a cell
NEED_RUNTIME = 2  # written by this launch, one a cell

SCOPE_GPU = 0
SCOPE_SYSTEM = 1

# -- triggers: tasks that become ready when a cell of an event tensor meets its need -------------------------
TRIGGER_GRID = 0
TRIGGER_FORM = 1
TRIGGER_LOW = 2  # index record over the event coordinate (TRIGGER_RANGE)
TRIGGER_HIGH = 10  # index record
TRIGGER_SCALE = 18  # tasks per unit of low and high
TRIGGER_BOX = 19  # one box record a dimension of the grid (TRIGGER_BOX_FORM)
TRIGGER_EVENT = 39  # event tensor whose cells that need nothing become met now (TRIGGER_ZERO_CELLS)
TRIGGER_WORDS = 40

TRIGGER_RANGE = 0  # tasks low * scale .. high * scale of the grid
TRIGGER_BOX_FORM = 1  # a box of coordinates of the grid
TRIGGER_GATHER = 2  # tasks buffer[low .. high - 1]; the buffer number is TRIGGER_EVENT
# When cell TRIGGER_LOW of the event tensor is met, the run-time needs of TRIGGER_EVENT are known: cells that
# need 0 trigger TRIGGER_GRID.
TRIGGER_ZERO_CELLS = 3

# A box record: coordinates (e * SCALE + LOW) // DIVISOR up to (e * SCALE + HIGH) // DIVISOR, e the event
# coordinate DIMENSION.
BOX_DIMENSION = 0  # -1: the whole extent
BOX_SCALE = 1
BOX_LOW = 2
BOX_HIGH = 3
BOX_DIVISOR = 4
BOX_WORDS = 5

# -- operands of a grid's tile kind --------------------------------------------------------------------------
OPERAND_BUFFER = 0  # buffer number, or the value of a scalar operand
OPERAND_EXTENT = 1  # 4 words
OPERAND_MAP = 5  # number of the operand's first tensor map; those of one operand follow each other
OPERAND_WORDS = 6

# -- rows of the task table (int32) --------------------------------------------------------------------------
TASK_KIND = 0
TASK_GRID = 1
TASK_COORDINATE = 2  # 4
TASK_EPOCH = 6
TASK_ARGUMENT = 7
TASK_WORDS = 8

# -- control block (int64): one cache line for each word that is polled or contended -------------------------
LINE = 16
CONTROL_STATUS = 0
CONTROL_LIVE = 1 * LINE  # tasks created and not finished
CONTROL_EPOCH = 2 * LINE
CONTROL_FINISHED = 3 * LINE  # tasks run
CONTROL_ERROR = 4 * LINE  # 5 words: worker, task, event, value, limit of whoever set the status first
CONTROL_QUEUES = 5 * LINE  # then 2 lines a queue: head, tail
QUEUE_GRID = 0  # fields of a row of LAUNCH_QUEUES
QUEUE_FIRST_SLOT = 1
QUEUE_CAPACITY_BITS = 2  # capacities are powers of two
QUEUE_FIELDS = 3
QUEUE_HEAD = 0
QUEUE_TAIL = LINE
QUEUE_WORDS = 2 * LINE

STATUS_RUNNING = 0
STATUS_FINISHED = 1
STATUS_NO_PROGRESS = 2
STATUS_QUEUE_FULL = 3
STATUS_EVENT_RANGE = 4  # a run-time edge map named a cell outside its event tensor
STATUS_EXTENT_RANGE = 5  # a run-time extent exceeds its bound
STATUS_TASK_RANGE = 6  # a run-time trigger named tasks outside its grid

# -- queue slots (int64): pass << 32 | task ------------------------------------------------------------------
SLOT_SHIFT = 32
SLOT_MASK = 0xFFFFFFFF
SLOT_EMPTY = 0xFFFFFFFF  # low half of a slot that the pass in its high half may fill

# -- what each worker is doing (int64[workers, 4]), for the watchdog and its report --------------------------
STATE_FINISHED = 0
STATE_TASK = 1
STATE_PHASE = 2
STATE_EVENT = 3
STATE_WORDS = 4

PHASE_IDLE = 0
PHASE_WAIT = 1
PHASE_BODY = 2
PHASE_NOTIFY = 3
PHASE_POP = 4
PHASE_DONE = 5

# -- trace (int64): records[worker, capacity, 8], see Trace.from_device --------------------------------------
TRACE_WORDS = 8
TRACE_HEADER_WORDS = 5
SPAN_TASK = 0
SPAN_WAIT = 1
SPAN_POP = 2
SPAN_PUSH = 3

# -- launch block (int64): the kernels' only argument, addresses and sizes of everything above ---------------
LAUNCH_WORDS = 0  # address
LAUNCH_WORD_COUNT = 1
LAUNCH_POINTERS = 2  # address of int64[ranks * buffers]
LAUNCH_POINTER_COUNT = 3
LAUNCH_COUNTERS = 4  # address of int32[2 * cells + tasks]
LAUNCH_COUNTER_COUNT = 5
LAUNCH_CONTROL = 6  # address
LAUNCH_CONTROL_COUNT = 7
LAUNCH_SLOTS = 8  # address of the queues' slots, one queue after the other
LAUNCH_SLOT_COUNT = 9
LAUNCH_QUEUES = 10  # address of int64[queues, 3]: grid (-1: several), first slot, log2 of capacity
LAUNCH_QUEUE_COUNT = 11
LAUNCH_GRID_QUEUE = 12  # address of int32[grids]
LAUNCH_WORKER_POINTER = 13  # address of int64[workers + 1]
LAUNCH_WORKER_TASK = 14  # address of int32[...]
LAUNCH_ENTRIES = 15  # address of int64[entries, 4]
LAUNCH_INITIAL = 16  # address of int64[rows, 3], see Scheduled.initial_queue
LAUNCH_INITIAL_COUNT = 17
LAUNCH_PATCHES = 18  # address of int32[patches, 2]: word, scalar
LAUNCH_PATCH_COUNT = 19
LAUNCH_SCALARS = 20  # address of int64[...]
LAUNCH_STATES = 21  # address of int64[workers, 4]
LAUNCH_TRACE = 22  # address of int64[workers, capacity, 8]; 0 when tracing is off
LAUNCH_TRACE_CAPACITY = 23
LAUNCH_TRACE_COUNT = 24  # address of int64[workers]
LAUNCH_TRACE_HEADERS = 25  # address of int64[workers, 5]
LAUNCH_WATCHDOG = 26  # ns without progress after which a run ends itself
LAUNCH_EARLY = 27  # 1: push tasks when their producers have been dispatched, where EVENT_EARLY allows
LAUNCH_DELAY = 28  # largest random delay before a notify, ns (tests of late producers); 0: none
LAUNCH_SEED = 29
LAUNCH_WORKERS = 30
LAUNCH_ENTRY_COUNT = 31
LAUNCH_TENSOR_MAPS = 32  # address of the tensor maps, TENSOR_MAP_BYTES each
LAUNCH_COUNT = 33

TENSOR_MAP_BYTES = 128

# -- descriptors of tasks fetched ahead, in the shared memory of a worker with roles (int64) ------------------
DESCRIPTOR_STATE = 0  # DESCRIPTOR_RUN, DESCRIPTOR_SKIP or DESCRIPTOR_END
DESCRIPTOR_TASK = 1
DESCRIPTOR_GRID = 2  # word of the grid's record
DESCRIPTOR_KIND = 3
DESCRIPTOR_OPERANDS = 4
DESCRIPTOR_ARGUMENT = 5
DESCRIPTOR_COORDINATE = 6  # 4
DESCRIPTOR_MAP = 10  # 4: what the edge maps are evaluated at
DESCRIPTOR_WAIT_FIRST = 14  # first wait edge that is not a gate
DESCRIPTOR_WAIT_CELL = 15  # the one cell to wait for, CELLS_NONE or CELLS_SEVERAL
DESCRIPTOR_WAIT_NEED = 16
DESCRIPTOR_NOTIFY_CELL = 17  # the one cell to notify, where nothing is triggered; CELLS_NONE or CELLS_SEVERAL
DESCRIPTOR_START = 18  # clock when the body began, where the run is traced
DESCRIPTOR_WORDS = 20

DESCRIPTOR_RUN = 1
DESCRIPTOR_SKIP = 0  # the task does not exist in this run, or the run has failed
DESCRIPTOR_END = -1
CELLS_NONE = -1
CELLS_SEVERAL = -2

# -- scheduling entries (see etproto.scheduled) --------------------------------------------------------------
ENTRY_WORDS = 4

__all__ = [name for name in globals() if name.isupper()]
