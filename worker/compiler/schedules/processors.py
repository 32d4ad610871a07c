"""Processors, and the machine model that cost models use.

A ``Processor`` says what one core computes and loads in a cycle and what its caches hold; a ``Machine`` adds
the number of threads. Figures are those of full vectors of ``vector_bits``. A core that splits a vector
between its units, or loads one in two halves, starts fewer of them in a cycle. If models of a family differ,
the smaller cache counts: a tile that fits it fits the others too. Tiles were measured on Zen 3, Zen 4 and a
Xeon, with AVX-512 and with AVX2, Winograd's on Zen 4 and the Xeon; the other rows follow the vendors'
documents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from worker.compiler.schedules.dot_instructions import DOT_FEATURES, DotInstruction, find_dot

if TYPE_CHECKING:
    import tvm

WORK_PER_THREAD = 8_192
"""The fewest operations for each thread. Starting a task and waiting for it takes half a microsecond."""
CYCLES_PER_THREAD = 5_000
"""The same threshold in cycles, for products and attention, whose plans count these."""
MULTIPLY_ADDS_PER_THREAD = 2_048
"""The same threshold in multiply-adds of vectors, for convolutions and pools."""
_MOST_STARTED = 4
"""More threads need no more work in total, since they start at once. This was measured with two threads."""

NEAR_BYTES_PER_CYCLE = 28.0
"""Bytes per cycle from L2: the value that best explains the times of 900 tiles on a Xeon by
``make bench-tiles``."""
FAR_BYTES_PER_CYCLE = 2.5
"""Bytes per cycle from beyond L2: 1.1 to 3.2 for weights of 256 and 512 channels on a shared Xeon at 3 GHz,
by ``make bench-convolutions``."""
TILE_FEATURES = frozenset({"amx-tile", "amx-bf16"})
"""LLVM's features of Intel's tile registers, see ``tiles``."""
CACHE_LINE = 64
"""Bytes that the processor reads from memory at once."""
READ_AHEAD = 1024
"""How far to prefetch, in bytes. The processor's own prefetcher starts anew at each panel and stops at each
page. On an AVX-512 Xeon with two threads, reading the weights of a decoder of 110 million parameters takes
14.7 ms without prefetches and 12.6 ms with them; four times as far is slower. On Zen 4, one row times 2.8 MB
of weights takes 18 µs without prefetches and 23 µs with them; four rows times 9.4 MB take 136 and 249 µs."""
LARGE_WEIGHTS = 0.25
"""Weights of more than this share of L2 are prefetched: other functions have used the cache since."""

_INTEL = "Intel 64 and IA-32 Architectures Optimization Reference Manual, 248966; uops.info"
_AMD_ZEN = "Software Optimization Guide for AMD Family 17h Processors, 55723"
_AMD_ZEN3 = "Software Optimization Guide for AMD Family 19h Processors, 56665"
_AMD_ZEN4 = (
    "Software Optimization Guide for the AMD Zen4 Microarchitecture, 57647; far bytes fitted on ResNet-18, "
    "loops on 18 convolutions of ResNet-50"
)
_AMD_ZEN5 = "Software Optimization Guide for the AMD Zen5 Microarchitecture, 58455"
_ARM = "Arm {} Software Optimization Guide"
_IN_ORDER = "ncnn, docs/developer-guide/arm-a53-a55-dual-issue.md; Arm Cortex-A55 Software Optimization Guide"
_FUJITSU = "Fujitsu A64FX Microarchitecture Manual"
_APPLE = "Dougall Johnson, Apple M1 Firestorm microarchitecture overview"
_COMMON = "what the processors of this level have in common"


@dataclass(frozen=True)
class Processor:
    """One core.

    Attributes:
        vector_bits: width of a vector register that code is generated for. Arm's own cores with SVE run as
            fast with NEON's 128 bits on all their units.
        registers: vector registers by name, less two for products where these are added by instructions of
            their own.
        fma_ports: vector multiply-adds that start in a cycle.
        fma_latency: cycles from one multiply-add to the next that adds to its result.
        loads_per_cycle: vectors, or broadcast elements, that are loaded in a cycle.
        l1_kib: first-level data cache.
        l1_ways: associativity of the first-level data cache.
        hides_loops: whether a loop's own instructions issue beside the multiply-adds of a convolution.
        read_ahead_bytes: how far ahead kernels prefetch weights that they read once; 0 if the core's own
            prefetcher is faster.
        has_halves: whether half a vector register is a register too.
        l2_kib: second-level cache, or a core's part of one that cores share.
        source: the document that describes the core.
        lane_factors: whether a multiply-add can take its second factor from a lane of a vector. LLVM then
            loads adjacent factors together and keeps them in registers until all are used.
        scalable: whether ``vector_bits`` is the length of SVE's vectors.
        far_bytes_per_cycle: bytes that the core reads in a cycle from beyond L2.
    """

    vector_bits: int
    registers: int
    fma_ports: float
    fma_latency: int
    loads_per_cycle: float
    l1_kib: int
    l2_kib: int
    source: str
    lane_factors: bool = False
    scalable: bool = False
    far_bytes_per_cycle: float = FAR_BYTES_PER_CYCLE
    l1_ways: int = 8
    hides_loops: bool = False
    read_ahead_bytes: int = READ_AHEAD
    has_halves: bool = False


SSE = Processor(128, 14, 1, 4, 2, 32, 256, f"{_COMMON}; no FMA, one product and one sum per cycle")
AVX = Processor(256, 14, 1, 4, 1, 32, 256, f"{_COMMON}; no FMA, loads of 128 bits")
AVX2 = Processor(256, 16, 2, 4, 1.5, 32, 256, f"{_COMMON}; loads measured by make bench-tiles on Zen 3")
AVX512 = Processor(512, 32, 2, 4, 2, 32, 512, _COMMON, has_halves=True)
NEON = Processor(128, 32, 2, 4, 2, 32, 256, _COMMON, lane_factors=True, l1_ways=4)
RVV = Processor(128, 31, 1, 4, 1, 32, 256, f"{_COMMON}; v0 holds masks")
RVV_256 = replace(RVV, vector_bits=256)
RVV_512 = replace(RVV, vector_bits=512)
SCALAR = Processor(128, 8, 0.25, 4, 0.25, 32, 128, f"{_COMMON}; a vector takes four registers")

_HASWELL = Processor(256, 16, 2, 5, 2, 32, 256, _INTEL)
_SKYLAKE = Processor(256, 16, 2, 4, 2, 32, 256, _INTEL)
_ALDER_LAKE = Processor(256, 16, 2, 4, 3, 48, 1280, _INTEL, l1_ways=12)
_GRACEMONT = Processor(256, 16, 1, 6, 1, 32, 512, _INTEL)
_SKYLAKE_X = Processor(512, 32, 2, 4, 2, 32, 1024, _INTEL, has_halves=True)
_ICE_LAKE_CLIENT = Processor(512, 32, 1, 4, 2, 48, 512, _INTEL, l1_ways=12, has_halves=True)
_ICE_LAKE_SERVER = Processor(512, 32, 2, 4, 2, 48, 1280, _INTEL, l1_ways=12, has_halves=True)
_SAPPHIRE_RAPIDS = Processor(
    512, 32, 2, 4, 1.5, 48, 2048, f"{_INTEL}; loads measured by make bench-tiles", l1_ways=12, has_halves=True
)
_ZEN1 = Processor(256, 16, 1, 5, 1, 32, 512, _AMD_ZEN)
_ZEN2 = Processor(256, 16, 2, 5, 2, 32, 512, _AMD_ZEN)
_ZEN3 = Processor(256, 16, 2, 4, 1.5, 32, 512, f"{_AMD_ZEN3}; loads measured by make bench-tiles")
_ZEN4 = Processor(
    512,
    32,
    1,
    4,
    1,
    32,
    1024,
    _AMD_ZEN4,
    far_bytes_per_cycle=4,
    hides_loops=True,
    read_ahead_bytes=0,
    has_halves=True,
)
_ZEN5 = Processor(512, 32, 2, 4, 2, 48, 1024, _AMD_ZEN5, l1_ways=12, has_halves=True)
_NEOVERSE_N1 = Processor(128, 32, 2, 4, 2, 64, 512, _ARM.format("Neoverse N1"), lane_factors=True, l1_ways=4)
_NEOVERSE_V1 = Processor(128, 32, 4, 4, 3, 64, 1024, _ARM.format("Neoverse V1"), lane_factors=True, l1_ways=4)
_NEOVERSE_N2 = Processor(128, 32, 2, 4, 3, 64, 512, _ARM.format("Neoverse N2"), lane_factors=True, l1_ways=4)
_NEOVERSE_V2 = Processor(128, 32, 4, 4, 3, 64, 1024, _ARM.format("Neoverse V2"), lane_factors=True, l1_ways=4)
_CORTEX_IN_ORDER = Processor(128, 32, 1, 4, 0.5, 32, 128, _IN_ORDER, lane_factors=True, l1_ways=4)
_CORTEX_A72 = Processor(128, 32, 2, 4, 1, 32, 512, _ARM.format("Cortex-A72"), lane_factors=True, l1_ways=2)
_CORTEX_A76 = Processor(128, 32, 2, 4, 2, 64, 256, _ARM.format("Cortex-A76"), lane_factors=True, l1_ways=4)
_CORTEX_X1 = Processor(128, 32, 4, 4, 3, 64, 512, _ARM.format("Cortex-X1"), lane_factors=True, l1_ways=4)
_A64FX = Processor(512, 32, 2, 9, 2, 64, 512, _FUJITSU, scalable=True, l1_ways=4)
_APPLE_WIDE = Processor(128, 32, 4, 4, 3, 128, 3072, _APPLE, lane_factors=True)

_ALIKE: dict[Processor, str] = {
    _HASWELL: "haswell core-avx2 core_4th_gen_avx broadwell core_5th_gen_avx",
    _SKYLAKE: "skylake",
    _ALDER_LAKE: "alderlake raptorlake meteorlake arrowlake arrowlake-s lunarlake pantherlake novalake",
    _GRACEMONT: "gracemont sierraforest grandridge clearwaterforest",
    _SKYLAKE_X: "skylake-avx512 skylake_avx512 skx cascadelake cooperlake cannonlake",
    _ICE_LAKE_CLIENT: "icelake-client icelake_client tigerlake rocketlake",
    _ICE_LAKE_SERVER: "icelake-server icelake_server",
    _SAPPHIRE_RAPIDS: "sapphirerapids emeraldrapids graniterapids graniterapids-d diamondrapids",
    _ZEN1: "znver1",
    _ZEN2: "znver2",
    _ZEN3: "znver3",
    _ZEN4: "znver4",
    _ZEN5: "znver5",
    _NEOVERSE_N1: "neoverse-n1 neoverse-e1 ampere1 ampere1a ampere1b",
    _NEOVERSE_V1: "neoverse-v1 neoverse-512tvb",
    _NEOVERSE_N2: "neoverse-n2 neoverse-n3",
    _NEOVERSE_V2: "neoverse-v2 neoverse-v3 neoverse-v3ae grace",
    _CORTEX_IN_ORDER: "cortex-a34 cortex-a35 cortex-a53 cortex-a55 cortex-a510 cortex-a520",
    _CORTEX_A72: "cortex-a57 cortex-a72 cortex-a73 cortex-a75",
    _CORTEX_A76: "cortex-a76 cortex-a76ae cortex-a77 cortex-a78 cortex-a78c cortex-a710 cortex-a715",
    _CORTEX_X1: "cortex-x1 cortex-x1c cortex-x2 cortex-x3 cortex-x4 cortex-x925",
    _A64FX: "a64fx",
    _APPLE_WIDE: "apple-m1 apple-m2 apple-m3 apple-m4 apple-m5 apple-a14 apple-a15 apple-a16 apple-a17",
}
PROCESSORS: dict[str, Processor] = {
    name: processor for processor, names in _ALIKE.items() for name in names.split()
}
"""Processors by LLVM's name."""

LEVELS = {
    "x86-64-v2": SSE,
    "x86-64-v3": AVX2,
    "x86-64-v4": AVX512,
    "aarch64": NEON,
    "riscv64": SCALAR,
    "riscv64-v": RVV,
}
"""Processors by the presets that stand for many."""

_FEATURES = (
    ("avx512f", AVX512),
    ("fma", AVX2),
    ("avx", AVX),
    ("sse2", SSE),
    ("neon", NEON),
    ("zvl512b", RVV_512),
    ("zvl256b", RVV_256),
    ("zve32f", RVV),
    ("f", SCALAR),
)
"""The common processor of a level by the feature that shows it, the widest first."""


def processor_of(mcpu: str, features: frozenset[str]) -> Processor:
    """The processor of a name, or the common one of its level for an unknown name.

    Args:
        mcpu: LLVM's name.
        features: LLVM's features that code may use; they may lack some that ``mcpu`` implies.
    """
    level = next((processor for feature, processor in _FEATURES if feature in features), SSE)
    known = PROCESSORS.get(mcpu)
    if known is not None and known.scalable:
        return known if "sve" in features else level
    if known is None or known.vector_bits == level.vector_bits:
        return known or level
    return replace(level, read_ahead_bytes=known.read_ahead_bytes)


_SCRATCH_REGISTERS = 2
_MAX_ROWS = 8
_MAX_VECTORS = 8
_PARTIAL_USE = 0.6
"""LLVM splits a vector that is not full into several loads and stores."""

MIN_USE = 0.5
"""LLVM vectorizes loops whose tiles would fill a smaller share of a vector."""


_SUM_BITS = 32


@dataclass(frozen=True)
class Machine:
    """One core's ``Processor``, with caches in bytes, and the number of threads.

    ``dot_features`` are LLVM's features whose instructions ``dot_instructions`` lists. ``has_tiles`` is set
    if the processor has tile registers (``tiles``) that the system may grant.
    """

    vector_bits: int
    registers: int
    threads: int
    fma_ports: float = 2
    fma_latency: int = 4
    loads_per_cycle: float = 2
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    lane_factors: bool = False
    dot_features: frozenset[str] = frozenset()
    scalable: bool = False
    near_bytes_per_cycle: float = NEAR_BYTES_PER_CYCLE
    far_bytes_per_cycle: float = FAR_BYTES_PER_CYCLE
    l1_ways: int = 8
    hides_loops: bool = False
    read_ahead_bytes: int = READ_AHEAD
    has_halves: bool = False
    has_tiles: bool = False

    def lanes(self, bits: int) -> int:
        """Elements of ``bits`` bits in one vector."""
        return max(1, self.vector_bits // bits)

    def find_dot(self, left: str, right: str, sums: str) -> DotInstruction | None:
        """The instruction for products of these dtypes; None if there is none that fills vectors."""
        found = find_dot(self.dot_features, left, right, sums)
        return None if found is None or self.lanes(_SUM_BITS) % found.columns else found


@dataclass(frozen=True)
class Tile:
    """A register tile: ``rows`` times ``vectors`` vectors of ``lanes`` elements."""

    rows: int
    vectors: int
    lanes: int


def machine_of(target: tvm.target.Target) -> Machine:
    """The machine of a target."""
    from tvm.target import codegen

    features = frozenset(str(feature) for feature in codegen.llvm_get_cpu_features(target))
    machine = machine_from(
        str(target.attrs.get("mcpu", "")), features, threads=int(target.attrs.get("num-cores", 1))
    )
    is_linux = "linux" in str(target.attrs.get("mtriple", "linux"))
    return replace(machine, has_tiles=is_linux and features >= TILE_FEATURES)


def current_machine() -> Machine:
    """The machine that a rule writes a function for.

    TVM passes a rule of legalization the builder and the call only, and a translation rule gets as little, so
    this is the one place that reads the ambient target. The stages translate and optimize enter it.
    """
    import tvm

    return machine_of(tvm.target.Target.current())


def machine_from(mcpu: str, features: frozenset[str], threads: int) -> Machine:
    """The machine of a processor, by LLVM's name and features."""
    processor = processor_of(mcpu, features)
    return Machine(
        vector_bits=processor.vector_bits,
        registers=processor.registers,
        threads=threads,
        fma_ports=processor.fma_ports,
        fma_latency=processor.fma_latency,
        loads_per_cycle=processor.loads_per_cycle,
        l1_bytes=processor.l1_kib * 1024,
        l2_bytes=processor.l2_kib * 1024,
        lane_factors=processor.lane_factors,
        dot_features=features & DOT_FEATURES,
        scalable=processor.scalable,
        far_bytes_per_cycle=processor.far_bytes_per_cycle,
        l1_ways=processor.l1_ways,
        hides_loops=processor.hides_loops,
        read_ahead_bytes=processor.read_ahead_bytes,
        has_halves=processor.has_halves,
    )


def threads_pay(threads: int, work: float, least: float) -> bool:
    """Whether there is enough work for threads; ``least`` is what each must get."""
    return threads > 1 and work >= least_work(threads, least)


def least_work(threads: int, least: float) -> float:
    """The least work for which threads pay; see ``threads_pay``."""
    return min(threads, _MOST_STARTED) * least


def choose_tile(columns: int, rows: int, bits: int, machine: Machine) -> Tile | None:
    """The register tile with the most multiply-adds per load, whose sides divide the loops.

    Args:
        columns: extent of the loop to vectorize.
        rows: extent of the loop to unroll; 1 without one.
        bits: width of an element.
        machine: the processor.

    Returns:
        The tile; None if no divisor of ``columns`` fills at least half a vector.
    """
    lanes = machine.lanes(bits)
    tiles = [
        Tile(rows=height, vectors=vectors, lanes=width)
        for height in divisors(rows, _MAX_ROWS)
        for width in divisors(columns, lanes)
        for vectors in divisors(columns // width, _MAX_VECTORS)
        if width / lanes >= MIN_USE and _registers(height, vectors) <= machine.registers
    ]
    return max(tiles, key=lambda tile: _merit(tile, lanes), default=None)


def _registers(rows: int, vectors: int) -> int:
    """Sums, the vectors that several rows share, and the broadcast factor."""
    shared = vectors if rows > 1 else 0
    return rows * vectors + shared + _SCRATCH_REGISTERS


def divisors(number: int, limit: int) -> tuple[int, ...]:
    """The divisors of ``number`` up to ``limit``, ascending."""
    return tuple(candidate for candidate in range(1, min(number, limit) + 1) if number % candidate == 0)


def _merit(tile: Tile, lanes: int) -> tuple[float, float]:
    """Multiply-adds per load, weighted by the use of vectors; ties go to the larger tile."""
    use = 1.0 if tile.lanes == lanes else _PARTIAL_USE * tile.lanes / lanes
    elements = tile.rows * tile.vectors
    return (use * elements / (tile.rows + tile.vectors), elements)
