"""The command line, ``etproto`` or ``python -m etproto``: options, and errors as one line and an exit status.

Exit status: 0 right; 1 the target is wrong (a check failed, a result differed, a cyclic graph); 2 misuse
(an unknown name, a bad option, a missing file); 3 the executor is not available here.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from etproto.cli import commands
from etproto.cli.target import UsageError
from etproto.errors import EtprotoError, ExecutorUnavailable
from etproto.executors import EXECUTORS
from etproto.schedule import SCHEDULES
from etproto.schedulers import POLICIES

__all__ = ["main", "make_parser"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return int(text)


def _at_least_zero(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer of at least 0, got {text!r}")
    return int(text)


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a finite number of at least 0, got {text!r}")
    return value


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; what it parses has the command's function as `function`."""
    parser = _Parser(prog="etproto", description="Dynamic megakernels: run, check and explain task graphs.")
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(function: Callable[[argparse.Namespace], int], text: str, name: str = "") -> _Parser:
        added = subparsers.add_parser(name or function.__name__, help=text, description=f"{text[0].upper()}{text[1:]}.")
        added.set_defaults(function=function)
        return added

    def target(added: argparse.ArgumentParser) -> None:
        added.add_argument("target", metavar="TARGET", help="a bundled program (see list) or a graph file")
        added.add_argument(
            "--set",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help="give a symbol or a parameter a value; repeatable",
        )

    def scheduling(added: argparse.ArgumentParser) -> None:
        added.add_argument("--schedule", choices=SCHEDULES, default="auto", help="default: auto")
        added.add_argument("--policy", choices=sorted(POLICIES), default="round_robin", help="default: round_robin")
        added.add_argument("--workers", metavar="N", type=_at_least_one, help="default: all of a GPU, else up to 4")
        added.add_argument(
            "--early-push", action="store_true", help="push tasks when their producers have been dispatched"
        )

    run = command(commands.run, "run a program or a graph, and check the result")
    target(run)
    run.add_argument("--executor", choices=("auto", *EXECUTORS), default="auto", help="default: a GPU, else cpu")
    scheduling(run)
    run.add_argument(
        "--seed", metavar="N", type=_at_least_zero, help="of the data, and of the interleaving of the workers"
    )
    run.add_argument("--repeat", metavar="N", type=_at_least_one, default=1, help="runs, each checked; default: 1")
    run.add_argument("--trace", metavar="FILE", help="save the last run's trace, as .json or .npz")
    run.add_argument("--json", action="store_true", help="print one JSON object")
    run.add_argument(
        "--time-scale",
        metavar="X",
        type=_scale,
        default=1.0,
        help="factor on the time of tasks that only take time",
    )
    check = command(commands.check, "find everything that can be known to be wrong before a launch")
    target(check)
    scheduling(check)
    target(command(commands.explain, "show the program, its events, its sizes and the kernel made for it"))
    trace = command(commands.trace, "summarise a saved trace")
    trace.add_argument("file", metavar="IN", help="a trace, .json or .npz")
    trace.add_argument("--chrome", metavar="OUT", help="write it as Chrome/Perfetto JSON")
    command(commands.list_programs, "list the bundled programs with their symbols and parameters", "list")
    demo = command(commands.demo, "run every bundled program small, every way, and check each result")
    demo.add_argument("--trace", metavar="FILE", help="where the trace goes; default: a new temporary folder")
    command(commands.doctor, "say what is installed, which GPU there is, and why one is not used")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments, by default those of this process.

    Returns
    -------
    int
        The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            options = make_parser().parse_args(arguments)
            status = options.function(options)
            sys.stdout.flush()
            return status
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted", 130, arguments)
    except ExecutorUnavailable as error:
        return _fail(str(error), 3, arguments)
    except UsageError as error:
        return _fail(str(error), 2, arguments)
    except EtprotoError as error:
        return _fail(str(error), 1, arguments)
    except OSError as error:
        return _fail(str(error), 2, arguments)


def _fail(text: str, status: int, arguments: list[str]) -> int:
    if "--traceback" in arguments:
        traceback.print_exc()
    print(f"error: {'; '.join(text.splitlines())}", file=sys.stderr)
    return status


def _show_warning(message: Warning | str, category: type[Warning], *place: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
