"""What LLVM emits for the innermost loops of products: multiply-adds, and nothing on the stack.

A first convolution with a pool behind it has the taps of its window as straight code instead.
"""

import re

import pytest
from platform_samples import built_for, innermost_loops, preset, straight_code

from bessemer.contract.triple import LINUX_AARCH64
from worker.compiler.values import StageContext

PRODUCTS = {"perceptron": "fused_linear", "convolutions": "fused_conv2d", "encoder": "fused_linear|attention"}
LEAST_MULTIPLY_ADDS = 16
LEAST_SHARE = 0.35
SHARES = {"riscv64-v": 0.34}
"""Vector loads of RISC-V take no offset, so each has an addition before it."""
SPILLED = {"cortex-a53": 3, "cortex-a76": 14}
"""Instructions on the stack where LLVM's model of a processor loads ahead: of 174, and of 199."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("aarch64", "aarch64", "convolutions"),
        ("aarch64", "aarch64", "encoder"),
        ("cortex-a53", "aarch64", "convolutions"),
        ("cortex-a72", "aarch64", "perceptron"),
        ("cortex-a76", "aarch64", "convolutions"),
        ("neoverse-n1", "aarch64", "perceptron"),
        ("neoverse-v1", "aarch64", "convolutions"),
        ("neoverse-v2", "aarch64", "perceptron"),
        ("apple-m1", "aarch64", "convolutions"),
        ("riscv64-v", "riscv64", "perceptron"),
        ("riscv64-v", "riscv64", "convolutions"),
        ("riscv64-v", "riscv64", "encoder"),
        ("riscv64", "riscv64 scalar", "perceptron"),
        ("riscv64", "riscv64 scalar", "convolutions"),
        ("x86-64-v3", "x86_64", "convolutions"),
        ("znver5", "x86_64", "perceptron"),
    ],
)
def test_products_multiply_and_add_in_registers(
    name: str, kind: str, model: str, context: StageContext
) -> None:
    target = preset(name, LINUX_AARCH64 if name == "apple-m1" else None)
    built_for(target, model, context, inspect={"assembly": True}, verification="none")

    sources = "".join(path.read_text() for path in (context.scratch / "objects").glob("kernels*.s"))
    functions = re.split(r"^(?=_?[A-Za-z]\w*:)", sources, flags=re.MULTILINE)
    products = [text for text in functions if re.match(rf"_?({PRODUCTS[model]})\w*_compute_:", text)]
    assert products
    for text in products:
        found = (*innermost_loops(text, kind), *(straight_code(text, kind) if "max_pool" in text else ()))
        loops = [loop for loop in found if loop.multiply_adds >= LEAST_MULTIPLY_ADDS]
        assert loops, text.split(":")[0]
        best = max(loops, key=lambda loop: loop.multiply_adds / loop.instructions)
        least = SHARES.get(name, LEAST_SHARE)
        assert best.multiply_adds >= least * best.instructions, text.split(":")[0]
        assert best.stack <= SPILLED.get(name, 0), text.split(":")[0]
