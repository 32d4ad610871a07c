"""Attention by tensor cores, in one kernel::

    for block = (batch and head, tile of queries), warp of 16 * r queries:
        copy the queries and the first tile of keys and values                 # global -> shared memory
        load the warp's queries                                                # ldmatrix
        highest = -inf; total = 0; result = 0                                  # registers
        for tile of keys that the queries see:
            wait for its copies; barrier
            start to copy the next tile
            scores = queries * keys                                            # mma
            weights = f(scores); top = highest; highest = max(highest, weights)
            powers = exp(weights - highest)
            total = total * exp(top - highest) + sum of powers;  result *= exp(top - highest)
            result += powers * values                                          # mma
        output = result / total                                                # through shared memory

Of 16 queries by 8 keys, a thread has two neighbors in two rows. So four threads share a query, and the sums
of one product are already laid out as a factor of the next one (two fragments of 8 keys are one of 16 steps).
Scores and powers thus stay in registers. ``f`` is computed in float32, powers are rounded once.

A fragment of tf32 has half as many steps, and a thread would hold the wrong neighbors of powers. As the order
of a sum's terms is free, the steps of a fragment are its keys in another order: 0, 2, 4, 6, 1, 3, 5, 7.

Edges: queries, keys, depths and features past the last are zeros in shared memory. A tile masks its keys
past the last, and those after a query, only if it has any. A warp without queries only copies.

Sources: Dao, "FlashAttention-2", 2023, sections 3.1 and 3.3; PTX ISA, "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import product
from math import ceil, gcd, inf
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.script import tirx as T

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Places
from worker.compiler.schedules.families.attention.blocks import AttentionBlocks
from worker.compiler.schedules.gpu.attention.plan import ROWS, STAGES, AttentionPlan, has_masks
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.contraction import Factor, Group, aligned_run
from worker.compiler.schedules.gpu.products.staging import Fragments, store_fragments
from worker.compiler.schedules.gpu.products.tensor_cores import elements, load_left, load_right, multiply_of
from worker.compiler.schedules.gpu.products.threads import INT, WARP, number
from worker.compiler.schedules.gpu.products.tiles import Copies, Tile, make_tile, wide
from worker.compiler.schedules.gpu.products.units import Element, Warp
from worker.compiler.schedules.gpu.threads import shuffled

Expression = Any

_COLUMNS = 8
"""The keys, or features, of a fragment."""
_QUAD = (1, 2)
"""The distances between the threads that share a query."""
_FLOAT = "float32"
_LOG2_E = 1.4426950408889634

_POWER = """
__forceinline__ __device__ float power_of_two(float exponent) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}
"""
_PAIRS = {
    "float16": """
__forceinline__ __device__ unsigned pair_of_float16(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return *(unsigned *)&pair;
}
""",
    "bfloat16": """
__forceinline__ __device__ unsigned pair_of_bfloat16(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *(unsigned *)&pair;
}
""",
}


class TensorCoreAttention:
    """Writes the kernel."""

    def __init__(self, blocks: AttentionBlocks, plan: AttentionPlan, gpu: Gpu) -> None:
        self.blocks, self.plan = blocks, plan
        self._multiply = multiply_of(blocks.dtype, gpu)
        self._batch = Group(blocks.axes)
        self._query = self._tile(blocks.query_number, blocks.row, blocks.step, plan.queries, 0, gpu)
        self._key = self._tile(blocks.key_number, blocks.key, blocks.step, plan.keys, self._query.size, gpu)
        start = self._query.size + self._key.size
        self._value = self._tile(blocks.value_number, blocks.feature, blocks.key, plan.width, start, gpu)
        self._shared = gt.shared(plan.shared_bytes, blocks.dtype)
        self._buffers = {
            id(tile): gt.view(self._shared, blocks.dtype, tile.name)
            for tile in (self._query, self._key, self._value)
        }
        rows = 2 * plan.fragments
        self._scores = nest.registers((plan.fragments * plan.keys // 2,), _FLOAT, "scores")
        self._result = nest.registers((plan.fragments * plan.width // 2,), _FLOAT, "result")
        self._queries = nest.registers((plan.fragments * plan.depth * plan.bits // 64,), "uint32", "queries")
        self._highest = nest.registers((rows,), _FLOAT, "highest")
        self._total = nest.registers((rows,), _FLOAT, "total")

    def _tile(self, value: Any, outer: Any, depth: Any, size: int, start: int, gpu: Gpu) -> Tile:
        blocks, plan = self.blocks, self.plan
        factor = Factor(value, Group((outer,)), Group((depth,)), self._batch, blocks.dtype)
        name = "queries" if outer is blocks.row else "keys" if outer is blocks.key else "values"
        return make_tile(
            factor,
            size,
            depth=plan.keys if depth is blocks.key else plan.depth,
            stages=1 if outer is blocks.row else STAGES,
            threads=plan.threads,
            name=f"{name}_tile",
            start=start,
            can_copy_async=gpu.has_async_copies,
            is_rounded=blocks.dtype == _FLOAT,
        )

    def statement(self) -> tirx.Stmt:
        """The kernel."""
        blocks, plan = self.blocks, self.plan
        groups = ceil(blocks.row.extent / plan.queries)

        def block(index: Any) -> tirx.Stmt:
            batch, group = tirx.floordiv(index, groups), tirx.floormod(index, groups)
            # Queries that see most keys first.
            group = group if blocks.causal is None else groups - 1 - group
            places = self._batch.places(wide(batch))
            return gt.bound(
                "threadIdx.x", plan.threads, lambda thread: self._of_thread(places, group, thread)
            )

        return gt.bound("blockIdx.x", blocks.shape.batches * groups, block)

    def _of_thread(self, places: Places, group: Any, thread: Any) -> tirx.Stmt:
        plan = self.plan
        first = group * plan.queries
        in_block = tirx.floordiv(thread, WARP)
        warp = Warp(in_block, tirx.floormod(thread, WARP), in_block * (plan.fragments * ROWS), number(0))
        buffers = self._buffers
        query = Copies(self._query, buffers[id(self._query)], thread, places, first)
        value = Copies(self._value, buffers[id(self._value)], thread, places, number(0))
        keys = Copies(self._key, buffers[id(self._key)], thread, places, first)
        tiles = self._tiles(first)

        def fetch(tile: Any, slot: Any) -> list[tirx.Stmt]:
            start = tile * plan.keys
            key = keys.at(start)
            return [
                key.start(number(0), slot) if self._key.is_async else key.read(number(0)),
                value.start(start, slot) if self._value.is_async else value.read(start),
            ]

        def write(slot: Any) -> list[tirx.Stmt]:
            return [copies.write(slot) for copies in (keys, value) if not copies.tile.is_async]

        def step(tile: Any) -> tirx.Stmt:
            slot, ahead = tirx.floormod(tile, STAGES), tile + 1
            other = tirx.floormod(ahead, STAGES)
            is_any = ahead < tiles
            written = write(other)
            return nest.sequence(
                *wait,
                *(copies.round(slot) for copies in (keys, value) if _is_rounded_later(copies)),
                gt.barrier(),
                gt.when(is_any, nest.sequence(*fetch(ahead, other))),
                *commit,
                self._where_queries(first, warp, self._of_tile(places, first, tile * plan.keys, slot, warp)),
                *([gt.when(is_any, nest.sequence(*written))] if written else []),
            )

        has_copies = any(tile.is_async for tile in (self._query, self._key, self._value))
        commit = [gt.commit_copies()] if has_copies else []
        wait = [gt.wait_for_copies(0)] if has_copies else []
        read_queries = (
            [query.start(number(0), number(0))]
            if self._query.is_async
            else [query.read(number(0)), query.write(number(0))]
        )
        registers = (self._result, self._queries, self._highest, self._total)
        return nest.sequence(
            nest.declare(self._shared),
            *(gt.declare_view(buffer, self._shared) for buffer in buffers.values()),
            *map(nest.declare, registers),
            *query.allocations(),
            *keys.allocations(),
            *value.allocations(),
            *read_queries,
            *commit,
            *fetch(number(0), number(0)),
            *commit,
            *write(number(0)),
            gt.cleared(self._result),
            gt.cleared(self._total),
            gt.unrolled(2 * plan.fragments, lambda row: nest.store(self._highest, _float(-inf), row)),
            *([gt.wait_for_copies(1)] if has_copies else []),
            *([query.round(number(0))] if _is_rounded_later(query) else []),
            gt.barrier(),
            *self._load_queries(warp),
            gt.serial(tiles, step),
            *wait,
            self._finish(places, first, warp),
        )

    def _tiles(self, first: Any) -> Any:
        """The tiles of keys that the last query of a block sees."""
        blocks, plan = self.blocks, self.plan
        tiles = ceil(blocks.key.extent / plan.keys)
        if blocks.causal is None or tiles == 1:
            return number(tiles)
        end = first + (plan.queries + blocks.causal)
        seen = tirx.floordiv(end + (plan.keys - 1), plan.keys)
        return tirx.Max(tirx.Min(seen, number(tiles)), number(0))

    def _where_queries(self, first: Any, warp: Warp, statement: tirx.Stmt) -> tirx.Stmt:
        """A statement that only warps with queries run."""
        extent, plan = self.blocks.row.extent, self.plan
        if -extent % plan.queries < plan.fragments * ROWS:
            return statement
        return gt.when(first + warp.row < extent, statement)

    def _load_queries(self, warp: Warp) -> list[tirx.Stmt]:
        plan, buffer = self.plan, self._buffers[id(self._query)]
        steps = plan.depth // plan.steps
        return [
            load_left(
                self._query,
                buffer,
                elements(self._queries, (fragment * steps + step) * 4, 4),
                number(0),
                warp.row + fragment * ROWS,
                step,
                warp.lane,
            )
            for fragment, step in product(range(plan.fragments), range(steps))
        ]

    def _of_tile(self, places: Places, first: Any, start: Any, slot: Any, warp: Warp) -> tirx.Stmt:
        plan = self.plan
        rows = [(fragment, half) for fragment in range(plan.fragments) for half in range(2)]
        return nest.sequence(
            nest.declare(self._scores),
            gt.cleared(self._scores),
            self._products_with_keys(slot, warp),
            *(self._weighted(places, first, start, warp, *row) for row in rows),
            *self._masked(first, start, warp),
            *(self._powers(*row) for row in rows),
            self._products_with_values(slot, warp),
        )

    def _products_with_keys(self, slot: Any, warp: Warp) -> tirx.Stmt:
        plan, steps = self.plan, self.plan.depth // self.plan.steps
        right = nest.registers((4,), "uint32", "key_fragments")
        statements = [nest.declare(right)]
        for step, pair in product(range(steps), range(plan.keys // 16)):
            statements.append(
                load_right(
                    self._key,
                    self._buffers[id(self._key)],
                    elements(right, 0, 4),
                    slot,
                    number(pair * 16),
                    step,
                    warp.lane,
                )
            )
            statements += [
                self._multiply(
                    elements(self._scores, ((fragment * plan.keys // 8) + pair * 2 + column) * 4, 4),
                    elements(self._queries, (fragment * steps + step) * 4, 4),
                    elements(right, 2 * column, 2),
                )
                for fragment, column in product(range(plan.fragments), range(2))
            ]
        return nest.sequence(*statements)

    def _products_with_values(self, slot: Any, warp: Warp) -> tirx.Stmt:
        plan = self.plan
        right = nest.registers((4,), "uint32", "value_fragments")
        left = nest.registers((4 * plan.fragments,), "uint32", "shares")
        statements = [nest.declare(right), nest.declare(left)]
        for step in range(plan.keys // plan.steps):
            statements += [
                nest.store(left, self._share(fragment, step, at), number(fragment * 4 + at))
                for fragment, at in product(range(plan.fragments), range(4))
            ]
            for pair in range(plan.width // 16):
                statements.append(self._load_values(elements(right, 0, 4), slot, pair, step, warp.lane))
                statements += [
                    self._multiply(
                        elements(self._result, ((fragment * plan.width // 8) + pair * 2 + column) * 4, 4),
                        elements(left, fragment * 4, 4),
                        elements(right, 2 * column, 2),
                    )
                    for fragment, column in product(range(plan.fragments), range(2))
                ]
        return nest.sequence(*statements)

    def _share(self, fragment: int, step: int, at: int) -> Any:
        """A register of the powers as the left factor of the values, without moving them between threads."""
        first = fragment * self.plan.keys // 8
        if self.blocks.dtype == _FLOAT:
            power = self._scores[number((first + step) * 4 + at % 2 * 2 + at // 2)]
            return tirx.reinterpret("uint32", gt.round_to_tf32(power))
        place = (first + 2 * step + at // 2) * 4 + at % 2 * 2
        return self._pair(self._scores[number(place)], self._scores[number(place + 1)])

    def _load_values(self, into: list[Any], slot: Any, pair: int, step: int, lane: Any) -> tirx.Stmt:
        """The right factor of two fragments of features."""
        tile, buffer = self._value, self._buffers[id(self._value)]
        if self.blocks.dtype != _FLOAT:
            return load_right(tile, buffer, into, slot, number(pair * 16), step, lane)

        def one(at: int) -> tirx.Stmt:
            feature = pair * 16 + at // 2 * 8 + tirx.floordiv(lane, 4)
            key = step * 8 + tirx.floormod(lane, 4) * 2 + at % 2
            row, column = (feature, key) if tile.along_depth else (key, feature)
            chunk, inside = tirx.floordiv(column, tile.lanes), tirx.floormod(column, tile.lanes)
            value = gt.word_at(buffer[tile.place(slot, row, chunk) + inside])
            return nest.store(into[at].source, value, *into[at].indices)

        return nest.sequence(*map(one, range(4)))

    def _pair(self, low: Any, high: Any) -> Any:
        """Two numbers of half precision in one register."""
        dtype = self.blocks.dtype
        return T.cuda.func_call(
            f"pair_of_{dtype}", low, high, source_code=_PAIRS[dtype], return_type="uint32"
        )

    def _each_score(self, fragment: int, half: int, body: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        """A statement for each score of a row, given the score's register and its key in the tile."""
        keys = self.plan.keys // _COLUMNS

        def pair(column: Any) -> tirx.Stmt:
            return nest.sequence(
                *(
                    body((fragment * keys + column) * 4 + (half * 2 + one), column * _COLUMNS + one)
                    for one in range(2)
                )
            )

        return gt.unrolled_by_compiler(keys, pair)

    def _row(self, warp: Warp, fragment: int, half: int) -> Any:
        """A thread's row in the block's tile of queries."""
        return warp.row + (fragment * ROWS + half * 8) + tirx.floordiv(warp.lane, 4)

    def _key_of(self, start: Any, column: Any, warp: Warp) -> Any:
        return start + column + tirx.floormod(warp.lane, 4) * 2

    @cached_property
    def _weight(self) -> Expression:
        """The argument of the softmax, without the causal mask if the loops can apply it."""
        weight = self.blocks.weight_number
        return weight.true_value if self._masks_causally else weight

    @property
    def _masks_causally(self) -> bool:
        weight = self.blocks.weight_number
        return (
            self.blocks.causal is not None
            and isinstance(weight, tirx.Select)
            and isinstance(weight.false_value, tirx.FloatImm)
            and float(weight.false_value.value) == -inf
            and not nest.loads_of(weight.condition)
        )

    @property
    def _is_masked(self) -> bool:
        """Whether scores can be huge, as a mask's numbers are."""
        return has_masks(self.blocks, self._weight)

    def _weighted(
        self, places: Places, first: Any, start: Any, warp: Warp, fragment: int, half: int
    ) -> tirx.Stmt:
        blocks, plan = self.blocks, self.plan
        query = first + self._row(warp, fragment, half)
        if blocks.row.extent % plan.queries:
            query = tirx.Min(query, number(blocks.row.extent - 1))

        def weigh(at: Any, column: Any) -> tirx.Stmt:
            key = self._key_of(start, column, warp)
            if blocks.key.extent % plan.keys:
                key = tirx.Min(key, number(blocks.key.extent - 1))
            here = {**places, blocks.row.var: wide(query), blocks.key.var: wide(key)}
            term = nest.substitute(self._weight, here)
            return nest.store(self._scores, in_single(term, blocks.scores, self._scores[at]), at)

        return self._each_score(fragment, half, weigh)

    def _masked(self, first: Any, start: Any, warp: Warp) -> list[tirx.Stmt]:
        """Minus infinity for keys past the last, and for keys after the queries."""
        blocks, plan, masks = self.blocks, self.plan, list[tirx.Stmt]()
        rows = [(fragment, half) for fragment in range(plan.fragments) for half in range(2)]

        def hidden(is_seen: Callable[[int, int, Any], Any]) -> tirx.Stmt:
            def hide(row: tuple[int, int]) -> tirx.Stmt:
                def one(at: Any, column: Any) -> tirx.Stmt:
                    seen = is_seen(*row, self._key_of(start, column, warp))
                    value = tirx.Select(seen, self._scores[at], _float(-inf))
                    return nest.store(self._scores, value, at)

                return self._each_score(*row, one)

            return nest.sequence(*map(hide, rows))

        if blocks.key.extent % plan.keys:
            behind = start + plan.keys > blocks.key.extent
            masks.append(gt.when(behind, hidden(lambda _f, _h, key: key < blocks.key.extent)))
        if self._masks_causally:
            offset = blocks.causal or 0
            behind = start + (plan.keys - 1) > first + warp.row + offset

            def is_seen(fragment: int, half: int, key: Any) -> Any:
                return key <= first + self._row(warp, fragment, half) + offset

            masks.append(gt.when(behind, hidden(is_seen)))
        return masks

    def _powers(self, fragment: int, half: int) -> tirx.Stmt:
        """The softmax of a thread's part of one query's weights."""
        plan, zero = self.plan, number(0)
        row = number(fragment * 2 + half)
        top, shift, scale, total = (
            nest.registers((1,), _FLOAT, name) for name in ("top", "shift", "scale", "sum")
        )
        scores, highest = self._scores, self._highest
        factor = 1.0 if self._is_masked else _LOG2_E

        def power(value: Any) -> Any:
            """``exp(value - highest)``, by one multiplication where no product can overflow."""
            if self._is_masked:
                return _power_of_two((value - shift[zero]) * _float(_LOG2_E))
            return _power_of_two(value * _float(_LOG2_E) - shift[zero])

        def raise_(at: Any, _column: Any) -> tirx.Stmt:
            return nest.sequence(
                nest.store(scores, power(scores[at]), at),
                nest.store(total, total[zero] + scores[at], zero),
            )

        def rescale(column: Any) -> tirx.Stmt:
            places = [(fragment * plan.width // 8 + column) * 4 + (half * 2 + one) for one in range(2)]
            return nest.sequence(
                *(nest.store(self._result, self._result[at] * scale[zero], at) for at in places)
            )

        return nest.sequence(
            *map(nest.declare, (top, shift, scale, total)),
            nest.store(top, highest[row], zero),
            self._each_score(
                fragment, half, lambda at, _: nest.store(top, tirx.Max(top[zero], scores[at]), zero)
            ),
            *(
                nest.store(top, tirx.Max(top[zero], shuffled(top[zero], distance)), zero)
                for distance in _QUAD
            ),
            nest.store(
                shift,
                tirx.Select(top[zero] == _float(-inf), _float(0), top[zero] * _float(factor)),
                zero,
            ),
            nest.store(scale, power(highest[row]), zero),
            nest.store(highest, top[zero], row),
            nest.store(total, self._total[row] * scale[zero], zero),
            self._each_score(fragment, half, raise_),
            nest.store(self._total, total[zero], row),
            gt.unrolled_by_compiler(plan.width // _COLUMNS, rescale),
        )

    def _finish(self, places: Places, first: Any, warp: Warp) -> tirx.Stmt:
        """Divide by the sums of powers, and store."""
        blocks, plan, total = self.blocks, self.plan, self._total
        statements: list[tirx.Stmt] = []
        for row in range(2 * plan.fragments):
            at = number(row)
            statements += [
                nest.store(total, total[at] + shuffled(total[at], distance), at) for distance in _QUAD
            ]
            share = _float(1) / total[at]
            if blocks.safe:
                share = tirx.Select(total[at] == _float(0), _float(0), share)
            statements.append(nest.store(total, share, at))

            def divide(column: Any, row: int = row) -> tirx.Stmt:
                own = [(row // 2 * plan.width // 8 + column) * 4 + (row % 2 * 2 + one) for one in range(2)]
                return nest.sequence(
                    *(nest.store(self._result, self._result[one] * total[number(row)], one) for one in own)
                )

            statements.append(gt.unrolled_by_compiler(plan.width // _COLUMNS, divide))

        def store(row: Any, column: Any, vector: int, value: Element) -> tirx.Stmt:
            query, conditions = first + row, []
            if blocks.row.extent % plan.queries:
                conditions.append(query < blocks.row.extent)
            if blocks.feature.extent % plan.width:
                conditions.append(column < blocks.feature.extent)

            def one(along: Any) -> tirx.Stmt:
                feature = wide(column) + wide(along)
                element = value(along)
                element = element if blocks.dtype == _FLOAT else tirx.Cast(blocks.dtype, element)
                return blocks.store(element, places, wide(query), feature)

            return gt.when_all(conditions, nest.vectorized(vector, one, INT))

        fragments = Fragments(self._result, plan.fragments, plan.width, lambda at: warp.row + at * ROWS)
        return nest.sequence(*statements, store_fragments(fragments, self._shared, warp, self._vector, store))

    @property
    def _vector(self) -> int:
        """The features that a thread can store at once."""
        blocks = self.blocks
        final = blocks.output
        every = (*blocks.axes, blocks.row, blocks.feature)
        bits = nest.bits_of(blocks.dtype)
        width = gcd(16 * 8 // bits, blocks.feature.extent)
        width = gcd(width, aligned_run(final.buffer[tuple(final.indices)], (blocks.feature,), every))
        return width & -width


def _is_rounded_later(copies: Copies) -> bool:
    """Whether a thread must still round what it copied without registers."""
    return copies.tile.is_rounded and copies.tile.is_async


def in_single(value: Expression, scores: Any, score: Expression) -> Expression:
    """An expression in float32, with ``score`` for the load of a score."""

    def single(part: Expression) -> Expression:
        return in_single(part, scores, score)

    if isinstance(value, TensorLoad) and value.source.same_as(scores):
        return score
    if isinstance(value, tirx.FloatImm):
        return _float(float(value.value))
    if isinstance(value, tirx.Add | tirx.Sub | tirx.Mul | tirx.Div | tirx.Max | tirx.Min):
        return type(value)(single(value.a), single(value.b))
    if isinstance(value, tirx.Select):
        return tirx.Select(value.condition, single(value.true_value), single(value.false_value))
    if isinstance(value, Call) and getattr(value.op, "name", "").endswith(".tanh"):
        return tirx.tanh(single(value.args[0]))
    own = score if scores.dtype == _FLOAT else tirx.Cast(scores.dtype, score)
    replaced = nest.replace_loads(value, scores, nest.always(own))
    return replaced if nest.dtype_of(value) == _FLOAT else tirx.Cast(_FLOAT, replaced)


def _power_of_two(exponent: Expression) -> Expression:
    return T.cuda.func_call("power_of_two", exponent, source_code=_POWER, return_type=_FLOAT)


def _float(value: float) -> tirx.FloatImm:
    return tirx.FloatImm(_FLOAT, value)
