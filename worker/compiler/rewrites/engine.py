"""Apply a rewrite to a module, and report where it fired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from bessemer.contract.problem import SourcePlace
from bessemer.contract.report import RewriteResult
from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.rewrites.grouping import is_primitive, primitive_of
from worker.compiler.rewrites.matching import Finder, Occurrence
from worker.compiler.rewrites.registry import rewrite_book
from worker.compiler.rewrites.rewrite import AnyRewrite, GraphRewrite, Match, Rewrite


class Application:
    """One rewrite applied to one module, and the places where it fired.

    Args:
        rewrite: the rewrite to apply.
        may_group: whether it may make primitive functions.
    """

    def __init__(self, rewrite: AnyRewrite, may_group: bool = True) -> None:
        self.rewrite = rewrite
        self.fired: tuple[relax.Var, ...] = ()
        self._may_group = may_group

    def as_pass(self) -> tvm.transform.Pass:
        """The rewrite as a pass of its name."""

        def apply(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
            module, self.fired = self.apply(module)
            return module

        return tvm.transform.module_pass(apply, opt_level=0, name=self.rewrite.name)

    def apply(self, module: tvm.IRModule) -> tuple[tvm.IRModule, tuple[relax.Var, ...]]:
        """The rewritten module, and the variables with new values, in order."""
        if isinstance(self.rewrite, GraphRewrite):
            return _checked(self.rewrite.apply(module))
        fired: list[relax.Var] = []
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function) and not is_primitive(function):
                replacer = _Replacer(module, self._may_group)
                replacer.plan(self.rewrite, Finder(function))
                if replacer.replacements:
                    module = replacer.replaced(variable, function)
                    fired += reversed(replacer.replacements)
        return module, tuple(fired)


def _checked(result: object) -> tuple[tvm.IRModule, tuple[relax.Var, ...]]:
    match result:
        case (tvm.IRModule() as module, tuple() as fired):
            return module, fired
    raise TypeError(
        f"it returned {type(result).__name__}, not the module and the variables with new values: (module, ())"
    )


@mutator
class _Replacer(PyExprMutator):
    """Binds the roots of matches to their replacements."""

    def __init__(self, module: tvm.IRModule, may_group: bool) -> None:
        super().__init__(module)
        self._may_group = may_group
        self.replacements: dict[relax.Var, relax.Expr] = {}

    def plan(self, rewrite: Rewrite, finder: Finder) -> None:
        """Choose the matches to replace; of two that overlap, the later one."""
        taken: set[relax.Var] = set()
        for found in finder.find(rewrite.pattern):
            if found.root not in taken:
                match = Match(found.root, found.inside, finder.graph.values, found.captured, self._group)
                replacement = rewrite.rewriter(match)
                if not isinstance(replacement, relax.Expr | None):
                    kind = type(replacement).__name__
                    raise TypeError(f"it returned {kind} for a match, not an expression or None")
                if replacement is not None:
                    self.replacements[found.root] = replacement
                    taken |= _unread(found, finder)

    def replaced(self, variable: Any, function: relax.Function) -> tvm.IRModule:
        """The module with the function rewritten and without unused bindings."""
        rewritten = relax.analysis.remove_all_unused(self.visit_expr(function))
        self.builder_.update_func(variable, rewritten)
        return self.builder_.get()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        replacement = self.replacements.get(binding.var)
        super().visit_var_binding_(
            binding if replacement is None else relax.VarBinding(binding.var, replacement)
        )

    def _group(self, match: Match, name: str) -> relax.Expr | None:
        sizes = map(static_shape, (match.root, *match.inside))
        if not self._may_group or None in sizes:
            return None
        function, arguments = primitive_of(match)
        return relax.Call(self.builder_.add_func(function, name), list(arguments))


def _unread(found: Occurrence, finder: Finder) -> set[relax.Var]:
    """The variables inside a match that nothing else reads."""
    own = {found.root, *found.inside}
    return {one for one in found.inside if own.issuperset(finder.graph.readers.get(one, []))}


MAX_PLACES = 100


def report_rewrite(application: Application, places: Mapping[str, SourcePlace]) -> RewriteResult:
    """How often a rewrite fired, and where.

    Args:
        application: the rewrite, after its pass.
        places: the place in the user's model by variable; a variable without one is reported by its name.
    """
    name = application.rewrite.name
    return RewriteResult(
        name=name,
        source=rewrite_book().sources[name],
        count=len(application.fired),
        places=tuple(_place(variable, places) for variable in application.fired[:MAX_PLACES]),
    )


def _place(variable: relax.Var, places: Mapping[str, SourcePlace]) -> SourcePlace:
    return places.get(str(variable.name)) or SourcePlace(operator=str(variable.name))
