"""What a user installs beside a worker: an operator with a rule, and an extension of each other kind."""

from pathlib import Path

import torch
from tvm import relax, s_tir, te
from tvm.relax.dpl import is_op, wildcard
from tvm.s_tir.meta_schedule.search_strategy import ReplayTrace

from worker.compiler.kernels.kernel import Kernel
from worker.compiler.legalize.registry import Legalization
from worker.compiler.rewrites.rewrite import Match, Rewrite
from worker.compiler.spaces.space import Space
from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.rule import Rule
from worker.compiler.tuning.strategies import Strategy


@torch.library.custom_op("sample::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def as_relax(emit: Emitter, x: relax.Expr) -> relax.Expr:
    return relax.op.multiply(x, relax.const(3, emit.dtype))


ANY = wildcard()


def only(match: Match) -> relax.Expr:
    return match[ANY]


def hyperbolic_tangent(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *index: te.tanh(x(*index)), name="sample_tanh")

    return builder.call_te(compute, call.args[0], primfunc_name_hint="sample_tanh")


def divide_rows(schedule: s_tir.Schedule) -> None:
    rows, *_ = schedule.get_loops(schedule.get_sblock("sample_tanh"))
    outer, _ = schedule.split(rows, schedule.sample_perfect_tile(rows, n=2, max_innermost_factor=4))
    schedule.parallel(outer)


RULES = (Rule("sample.triple.default", as_relax),)
REWRITES = (
    Rewrite(
        "sample_negations",
        "two negations are none",
        is_op("relax.negative")(is_op("relax.negative")(ANY)),
        only,
    ),
)
LEGALIZATIONS = (Legalization("relax.tanh", hyperbolic_tangent),)
KERNELS = (
    Kernel("tanh", "sample", ("tanh",), "sample_tanh", Path(__file__).parent, "tanh.o", lambda _: True),
)
SPACES = (Space("sample-rows", divide_rows, "functions with a block 'sample_tanh'"),)
FUNCTIONS = {"sample.identity": lambda x, out: None}
STRATEGIES = (Strategy("sample", ReplayTrace, "replays traces"),)
