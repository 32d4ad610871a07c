"""The job's child: confines itself, reports which layers hold, and only then opens the upload.

It never returns into the zygote: it exits with ``os._exit``.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from bessemer.contract.problem import ErrorCode
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.stage import Stage
from worker.candidates.process import use_threads
from worker.errors import failure_of, without_server_details
from worker.job.folder import JobFolder
from worker.measure.turns import GrantedTurns, Turns
from worker.protocol.answers import read_answer
from worker.protocol.devices import AskedDevices, Devices
from worker.protocol.messages import (
    Confined,
    EarlyBundleMade,
    Failed,
    Message,
    TurnEnded,
    TurnRequested,
)
from worker.protocol.objects import AskedObjects, CachedObjects
from worker.protocol.order import (
    AmendWork,
    CheckWork,
    CompileObjectWork,
    CompileWork,
    EarlyBundleTaken,
    InspectWork,
    InvokeWork,
    ProbeWork,
    StartJob,
)
from worker.protocol.records import AskedRecords, Records
from worker.protocol.sender import JobPipes, Sender
from worker.sandbox.confine import confine

_LOWER_PRIORITY = 5


class Waits(NamedTuple):
    """What a job waits for: its turns to measure here, devices, tuning records, objects, early bundles."""

    turns: Turns
    devices: Devices
    records: Records
    objects: CachedObjects
    publish: Callable[[EarlyBundleMade], EarlyBundleTaken]


def main(order: StartJob, pipes: JobPipes, host_mcpu: str, started: float) -> NoReturn:
    """Run one job in this freshly forked process, and exit.

    Args:
        order: the job.
        pipes: the job's ends of its FIFOs.
        host_mcpu: LLVM's name of the processor.
        started: ``time.monotonic()`` when the order arrived.
    """
    status = 1
    try:
        _reset_signals()
        _redirect(JobFolder(Path(order.folder)).log)
        faulthandler.enable(all_threads=False)
        status = _run(order, pipes, Sender(pipes.messages, started), host_mcpu)
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(status)


def failed_by(error: BaseException, stage: Stage | None) -> Failed:
    """The message for an exception that ended the job."""
    failure = failure_of(ErrorCode.CHILD_CRASHED, error)
    detail = without_server_details(failure.detail)
    return Failed(code=failure.code, detail=detail, stage=stage, places=failure.places)


def _run(order: StartJob, pipes: JobPipes, sender: Sender, host_mcpu: str) -> int:
    if order.cgroup is not None:
        Path(order.cgroup).write_text("0")
    if isinstance(order.work, CompileObjectWork):
        os.nice(_LOWER_PRIORITY)  # jobs of users come first; the confinement forbids it later
    sandbox = confine(Path(order.folder), order.confinement, pipes)
    sender.send(Confined(sandbox=sandbox, seconds=sender.elapsed_seconds()))
    if order.confinement.mode is SandboxMode.REQUIRED and not sandbox.complete:
        sender.send(_refusal(sandbox))
        return 0
    try:
        folder = JobFolder(Path(order.folder))
        waits = Waits(
            _turns(sender, pipes),
            AskedDevices(sender.send, pipes.grants),
            AskedRecords(sender.send, pipes.grants),
            AskedObjects(sender.send, pipes.grants, folder.object_of, folder.functions),
            partial(_publish, sender, pipes),
        )
        result = _work(order, sandbox, sender, host_mcpu, waits)
        if result is not None:
            sender.send(result)
    except BaseException as error:
        failed = failed_by(error, sender.stage)
        traceback.print_exc()
        _flush()
        sender.send(failed)
    return 0


def _publish(sender: Sender, pipes: JobPipes, made: EarlyBundleMade) -> EarlyBundleTaken:
    sender.send(made)
    return EarlyBundleTaken.model_validate_json(read_answer(pipes.grants))


def _turns(sender: Sender, pipes: JobPipes) -> Turns:
    return GrantedTurns(
        request=lambda: sender.send(TurnRequested()),
        end=lambda: sender.send(TurnEnded()),
        grants=pipes.grants,
    )


def _work(
    order: StartJob, sandbox: SandboxStatus, sender: Sender, host_mcpu: str, waits: Waits
) -> Message | None:
    folder = JobFolder(Path(order.folder))
    os.chdir(folder.scratch)
    match order.work:
        case ProbeWork():
            return None
        case InspectWork():
            return _inspect(folder, order.cores)
        case CompileWork() as work:
            return _compile(work, order.cores, folder, sandbox, sender, host_mcpu, waits)
        case CheckWork() as work:
            return _check(work, folder, sender, waits.turns)
        case AmendWork() as work:
            return _amend(work, folder, sender)
        case InvokeWork() as work:
            return _invoke(work, folder)
        case CompileObjectWork():
            return _compile_object(folder)


def _inspect(folder: JobFolder, cores: int) -> Message:
    from worker.compiler.frontend.load import inspect_model
    from worker.protocol.messages import Inspected

    use_threads(cores)
    return Inspected(inspection=inspect_model(folder.model))


def _compile(
    work: CompileWork,
    cores: int,
    folder: JobFolder,
    sandbox: SandboxStatus,
    sender: Sender,
    host_mcpu: str,
    waits: Waits,
) -> Message:
    from worker.job.compilation import compile_model

    return compile_model(work, cores, folder, sandbox, sender, host_mcpu, *waits)


def _check(work: CheckWork, folder: JobFolder, sender: Sender, turns: Turns) -> Message:
    from worker.job.bundle_check import check_bundle

    return check_bundle(work, folder, sender, turns)


def _amend(work: AmendWork, folder: JobFolder, sender: Sender) -> Message:
    from worker.job.device_report import amend_bundle

    return amend_bundle(work, folder, sender)


def _invoke(work: InvokeWork, folder: JobFolder) -> Message:
    from worker.job.invocation import invoke_library

    return invoke_library(work, folder)


def _compile_object(folder: JobFolder) -> Message:
    from worker.compiler.codegen.function_text import write_object_of
    from worker.protocol.messages import OBJECT, ObjectCompiled

    write_object_of(folder.model.read_bytes(), folder.output / OBJECT)
    return ObjectCompiled()


def _refusal(sandbox: SandboxStatus) -> Failed:
    lost = [f"{status.layer.value} ({status.note})" for status in sandbox.layers if not status.holds]
    detail = f"these layers do not hold: {', '.join(lost)}"
    return Failed(code=ErrorCode.SANDBOX_INCOMPLETE, detail=detail)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
