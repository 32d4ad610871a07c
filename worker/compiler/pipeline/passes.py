"""The passes over Relax that optimize a module before scheduling."""

from typing import NamedTuple

import tvm
from tvm.relax import backend, transform

from bessemer.contract.options import Fusion, OptimizeOptions
from worker.compiler.layout.convolution import block_convolutions
from worker.compiler.layout.linear import pack_linear_weights
from worker.compiler.layout.sharing import share_memory
from worker.compiler.layout.weights import keep_results
from worker.compiler.legalize.registry import legalization_map
from worker.compiler.rewrites.engine import Application
from worker.compiler.rewrites.fold import evaluate_constants, fold_batch_norm
from worker.compiler.rewrites.fold_parameters import fold_parameter_batch_norm
from worker.compiler.rewrites.grouping import lift_constants
from worker.compiler.rewrites.registry import rewrite_book
from worker.compiler.schedules.machine import Machine
from worker.parameters import PREPARE

REWRITE, KERNELS = "rewrite", "kernels"
"""The phases that a request fills."""

_FUSE_OPS = transform.FuseOps()


class Phase(NamedTuple):
    """Passes with one purpose."""

    name: str
    passes: tuple[tvm.transform.Pass, ...]


@tvm.transform.module_pass(opt_level=0, name="RemoveUnreached")
def remove_unreached(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Keep what is reached from ``main``, or from what prepares its parameters."""
    names = {str(variable.name_hint) for variable in module.get_global_vars()}
    return transform.DeadCodeElimination([name for name in ("main", PREPARE) if name in names])(module)


@tvm.transform.module_pass(opt_level=0, name="LegalizeOps")
def legalize_by_rules(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """``LegalizeOps`` with the rules of installed packages and our own before TVM's."""
    return transform.LegalizeOps(legalization_map())(module)


def optimization_phases(machine: Machine) -> tuple[Phase, ...]:
    """The phases in order.

    Args:
        machine: the processor to lay data out for.
    """
    return (
        # Whatever depends on parameters only is computed now.
        Phase(
            "fold",
            (
                evaluate_constants,
                fold_batch_norm,
                fold_parameter_batch_norm,
                transform.DecomposeOpsForInference(),
                evaluate_constants,
                transform.FoldConstant(),
            ),
        ),
        # Equal things look equal, and what nobody reads is gone.
        Phase(
            "canonicalize",
            (
                transform.CanonicalizeBindings(),
                transform.EliminateCommonSubexpr(),
                transform.DeadCodeElimination(["main"]),
            ),
        ),
        # What a request switches on, each under its own name: see ``plan_passes``.
        Phase(REWRITE, ()),
        # What the request leaves to kernel libraries: ``optimize`` fills it in.
        Phase(KERNELS, ()),
        # Regions of the graph get the layouts that their kernels read; weights are packed for them.
        Phase("layout", (block_convolutions(machine), pack_linear_weights(machine), share_memory(machine))),
        # Every operator becomes a call of a TensorIR function. Sorts know what the target offers.
        Phase(
            "legalize",
            (
                legalize_by_rules,
                backend.DispatchSampling(),
                backend.DispatchSortScan(),
                transform.LegalizeOps(),
                transform.FoldConstant(),
            ),
        ),
        # What depends on separate parameters only is computed when they are loaded, by a function of its own.
        Phase("lift", (keep_results, transform.LiftTransformParams())),
        # Elementwise functions join what feeds them, as far as the request lets them.
        Phase(
            "fuse",
            (
                transform.AnnotateTIROpPattern(),
                lift_constants,
                _FUSE_OPS,
                transform.FuseTIR(),
            ),
        ),
        # Functions that only reshape become views, so that nobody schedules them.
        Phase(
            "clean",
            (
                transform.RewriteDataflowReshape(),
                remove_unreached,
            ),
        ),
    )


class Plan(NamedTuple):
    """The phases for one request, and the rewrites among their passes, which tell where they fired."""

    phases: tuple[Phase, ...]
    rewrites: tuple[Application, ...]


def plan_passes(phases: tuple[Phase, ...], options: OptimizeOptions) -> Plan:
    """The phases with the rewrites that a request wants, and with its way of fusing.

    Raises:
        JobError: ``rewrite-unknown``.
    """
    may_group = options.fusion is not Fusion.NONE
    rewrites = tuple(Application(rewrite, may_group) for rewrite in rewrite_book().chosen(options))
    passes = tuple(rewrite.as_pass() for rewrite in rewrites)
    return Plan(tuple(_fitted(phase, passes, options.fusion) for phase in phases), rewrites)


def default_phases(machine: Machine) -> tuple[Phase, ...]:
    """The phases for a request without optimization options."""
    return plan_passes(optimization_phases(machine), OptimizeOptions()).phases


def _fitted(phase: Phase, rewrites: tuple[tvm.transform.Pass, ...], fusion: Fusion) -> Phase:
    if phase.name == REWRITE:
        return phase._replace(passes=rewrites)
    if fusion is Fusion.AUTOMATIC:
        return phase
    return phase._replace(passes=tuple(step for step in phase.passes if step is not _FUSE_OPS))
