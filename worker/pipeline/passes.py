"""The passes over Relax that optimize a module before scheduling."""

from typing import NamedTuple

import tvm
from tvm.relax import backend, transform

from worker.layout.attention import fuse_attention
from worker.layout.convolution import block_convolutions
from worker.layout.linear import pack_linear_weights
from worker.layout.sharing import share_memory
from worker.pipeline.fold import evaluate_constants, fold_batch_norm
from worker.pipeline.legalize import LEGALIZATIONS


class Phase(NamedTuple):
    """Passes with one purpose."""

    name: str
    passes: tuple[tvm.transform.Pass, ...]


OPTIMIZATION: tuple[Phase, ...] = (
    # Whatever depends on parameters only is computed now.
    Phase(
        "fold",
        (
            evaluate_constants,
            fold_batch_norm,
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
    # Regions of the graph get the layouts that their kernels read; weights are packed for them.
    Phase("layout", (fuse_attention, block_convolutions, pack_linear_weights, share_memory)),
    # Every operator becomes a call of a TensorIR function. Sorts know what the target offers.
    Phase(
        "legalize",
        (
            transform.LegalizeOps(LEGALIZATIONS),
            backend.DispatchSampling(),
            backend.DispatchSortScan(),
            transform.LegalizeOps(),
            transform.FoldConstant(),
        ),
    ),
    # Elementwise functions join what feeds them.
    Phase(
        "fuse",
        (
            transform.AnnotateTIROpPattern(),
            transform.FuseOps(),
            transform.FuseTIR(),
        ),
    ),
    # Functions that only reshape become views, so that nobody schedules them.
    Phase(
        "clean",
        (
            transform.RewriteDataflowReshape(),
            transform.DeadCodeElimination(["main"]),
        ),
    ),
)
