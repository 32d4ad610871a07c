"""The passes over Relax that optimize a module before scheduling."""

from typing import NamedTuple

import tvm
from tvm.relax import backend, transform

from bessemer.contract.options import Fusion, OptimizeOptions
from worker.compiler.layout.blocked.block_convolutions import block_convolutions
from worker.compiler.layout.memory.share_memory import share_memory
from worker.compiler.layout.pack_linear import pack_linear_weights
from worker.compiler.layout.separate_parameters import keep_results
from worker.compiler.legalize.registry import legalization_map
from worker.compiler.rewrites.engine import Application
from worker.compiler.rewrites.fold import evaluate_constants, fold_batch_norm
from worker.compiler.rewrites.fold_parameters import fold_parameter_batch_norm
from worker.compiler.rewrites.grouping import lift_constants
from worker.compiler.rewrites.registry import rewrite_book
from worker.parameters import PREPARE

REWRITE, KERNELS = "rewrite", "kernels"
"""The phases whose passes depend on the request."""

_FUSE_OPS = transform.FuseOps()


class Phase(NamedTuple):
    """Named passes with one purpose."""

    name: str
    passes: tuple[tvm.transform.Pass, ...]


@tvm.transform.module_pass(opt_level=0, name="RemoveUnreached")
def remove_unreached(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Keep the functions that ``main``, or the preparation of its parameters, reaches."""
    names = {str(variable.name_hint) for variable in module.get_global_vars()}
    return transform.DeadCodeElimination([name for name in ("main", PREPARE) if name in names])(module)


@tvm.transform.module_pass(opt_level=0, name="LegalizeOps")
def legalize_by_rules(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Run ``LegalizeOps`` with the rules of installed packages first, then ours, then TVM's."""
    return transform.LegalizeOps(legalization_map())(module)


OPTIMIZATION: tuple[Phase, ...] = (
    # Compute what depends on constants only, and fold batch norms.
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
    # Give equal expressions one variable, and drop unused ones.
    Phase(
        "canonicalize",
        (
            transform.CanonicalizeBindings(),
            transform.EliminateCommonSubexpr(),
            transform.DeadCodeElimination(["main"]),
        ),
    ),
    # ``plan_passes`` puts the request's rewrites here, each under its own name.
    Phase(REWRITE, ()),
    # ``optimize`` puts calls of kernel libraries here.
    Phase(KERNELS, ()),
    # Choose the layouts that kernels read, and pack weights for them.
    Phase("layout", (block_convolutions, pack_linear_weights, share_memory)),
    # Turn every operator into a call of a TensorIR function; sorts as the target offers them.
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
    # Move what depends on separate parameters only to a function that runs when they are loaded.
    Phase("lift", (keep_results, transform.LiftTransformParams())),
    # Fuse elementwise functions with their producers, as far as the request allows.
    Phase(
        "fuse",
        (
            transform.AnnotateTIROpPattern(),
            lift_constants,
            _FUSE_OPS,
            transform.FuseTIR(),
        ),
    ),
    # Turn functions that only reshape into views, which need no schedule.
    Phase(
        "clean",
        (
            transform.RewriteDataflowReshape(),
            remove_unreached,
        ),
    ),
)


class Plan(NamedTuple):
    """The phases for one request, and the rewrites among their passes."""

    phases: tuple[Phase, ...]
    rewrites: tuple[Application, ...]


def plan_passes(phases: tuple[Phase, ...], options: OptimizeOptions) -> Plan:
    """Add a request's rewrites and its way of fusing to the phases.

    Raises:
        JobError: ``rewrite-unknown``.
    """
    may_group = options.fusion is not Fusion.NONE
    rewrites = tuple(Application(rewrite, may_group) for rewrite in rewrite_book().chosen(options))
    passes = tuple(rewrite.as_pass() for rewrite in rewrites)
    return Plan(tuple(_fitted(phase, passes, options.fusion) for phase in phases), rewrites)


def default_phases() -> tuple[Phase, ...]:
    """The phases for a request with default options."""
    return plan_passes(OPTIMIZATION, OptimizeOptions()).phases


def _fitted(phase: Phase, rewrites: tuple[tvm.transform.Pass, ...], fusion: Fusion) -> Phase:
    if phase.name == REWRITE:
        return phase._replace(passes=rewrites)
    if fusion is Fusion.AUTOMATIC:
        return phase
    return phase._replace(passes=tuple(step for step in phase.passes if step is not _FUSE_OPS))
