"""Names of targets, and the refusal of other names."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from bessemer.cli.arguments import read_draft
from bessemer.contract.llvm_processors import AARCH64, APPLE, ARM_32, RISCV64, RISCV_SMALL, X86_32, X86_64
from bessemer.contract.request import CompilationRequest, Submission
from bessemer.contract.target import CudaTarget, ExplicitTarget, PresetTarget
from bessemer.contract.target_names import SUPPORTED, UNSUPPORTED, unknown_part
from bessemer.contract.triple import LINUX_AARCH64, LINUX_RISCV64, MACOS_AARCH64
from bessemer.errors import InvalidArgumentError


def request(target: Any) -> CompilationRequest:
    return CompilationRequest.model_validate({"model": "0" * 64, "target": target})


def refusal(target: Any) -> tuple[str, str]:
    """Type and message of the one error."""
    with pytest.raises(ValidationError) as caught:
        request(target)
    (error,) = caught.value.errors()
    assert error["loc"] == ("target",)
    return error["type"], error["msg"].removeprefix("Value error, ")


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("host", PresetTarget(preset="host")),
        ("znver4", PresetTarget(preset="znver4")),
        ("skylake-avx512", PresetTarget(preset="skylake-avx512")),
        ("cascadelake", ExplicitTarget(mcpu="cascadelake")),
        ("core-avx2", ExplicitTarget(mcpu="core-avx2")),
        ("aarch64", PresetTarget(preset="aarch64")),
        ("cortex-a78", ExplicitTarget(mcpu="cortex-a78", triple=LINUX_AARCH64)),
        ("apple-a17", ExplicitTarget(mcpu="apple-a17", triple=MACOS_AARCH64)),
        ("sifive-u74", ExplicitTarget(mcpu="sifive-u74", triple=LINUX_RISCV64)),
        (PresetTarget(preset="haswell", cores=2), ExplicitTarget(mcpu="haswell", cores=2)),
        (
            {"preset": "apple-m1", "triple": LINUX_AARCH64},
            ExplicitTarget(mcpu="apple-a14", triple=LINUX_AARCH64),
        ),
        (
            {"preset": "riscv64", "features": ["+zba"]},
            ExplicitTarget(
                mcpu="generic-rv64", triple=LINUX_RISCV64, features=("+m", "+a", "+f", "+d", "+c", "+zba")
            ),
        ),
        (
            {"preset": "skylake", "features": ["+avx512f"]},
            ExplicitTarget(mcpu="skylake", features=("+avx512f",)),
        ),
    ],
)
def test_a_name_is_a_preset_or_one_of_llvms_processors(given: Any, target: object) -> None:
    assert request(given).target == target


def test_each_of_llvms_64_bit_names_is_a_target() -> None:
    for name in (*(name for names in X86_64.values() for name in names), *AARCH64, *APPLE, *RISCV64):
        target = request(name).target
        assert name in (getattr(target, "mcpu", None), getattr(target, "preset", None))


def test_a_processor_takes_options_on_the_command_line() -> None:
    options = ["target.features=+avx512vnni", "cores=4"]
    expected = ExplicitTarget(mcpu="skylake-avx512", features=("+avx512vnni",), cores=4)
    assert read_draft("skylake-avx512", (), options).request.target == expected


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("an Apple target without macOS", ("arm64e", "arm64-apple-ios", "aarch64-apple-tvos")),
        ("a target for GPUs without CUDA", ("rocm", "vulkan", "opencl", "metal", "gfx1100", "MI300X")),
        ("a target for GPUs without CUDA", ("apple/m2-gpu", "amdgcn-amd-amdhsa", "webgpu", "spirv64")),
        ("not supported", ("qcom/hexagon-v68", "wasm", "c", "s390x")),
        ("an x86 processor without 64-bit code", ("pentium4", "pentium_4", "i386")),
        ("an Arm target without 64-bit code", ("arm", "armhf", "armv7l", *ARM_32)),
        ("a RISC-V target without 64-bit code or double-precision registers", ("rv32", *RISCV_SMALL)),
        ("an x86 processor without 64-bit code", tuple(X86_32)),
    ],
)
def test_an_unsupported_target_is_refused_with_the_supported_ones(kind: str, names: tuple[str, ...]) -> None:
    for name in names:
        assert refusal(name) == (UNSUPPORTED, f"'{name}' is {kind}. {SUPPORTED}")


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("rocm -mcpu=gfx90a", "'rocm'"),
        ("llvm -mtriple=arm-linux-gnueabihf -mcpu=cortex-a7", "'arm-linux-gnueabihf'"),
        ("llvm -mcpu=cortex-m4", "'cortex-m4'"),
        ({"kind": "rocm", "arch": "gfx90a"}, "'rocm'"),
        ("amd/\ud800", "'amd/?'"),
    ],
)
def test_an_unsupported_part_decides(given: Any, part: str) -> None:
    kind, message = refusal(given)
    assert kind == UNSUPPORTED
    assert message.startswith(f"{part} is ")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("llvm -mcpu=znver4", "write 'znver4'"),
        ("llvm -mcpu=skylake-avx512 -num-cores 4", "write 'skylake-avx512'"),
        ("llvm", "write 'host'"),
        ("native", "did you mean 'host'?"),
        ("Skylake-AVX512", "did you mean 'skylake-avx512'?"),
        ("x86_64", "did you mean 'x86-64'?"),
        ("amd64", "did you mean 'x86-64'?"),
        ("icelake", "did you mean 'icelake-client'?"),
        ("zen4", "did you mean 'znver4'?"),
        ("arm64", "did you mean 'aarch64'?"),
        ("M1", "did you mean 'apple-m1'?"),
        ("apple-m2", "did you mean 'apple-a15'?"),
        ("Graviton3", "did you mean 'neoverse-v1'?"),
        ("rv64gc", "did you mean 'riscv64'?"),
        ("raspberry-pi", "did you mean 'aarch64'?"),
        ("x86-64-v9", "did you mean 'x86-64-v"),
        ("xeon", "unknown target 'xeon'. Bessemer supports"),
        ("", SUPPORTED),
        ("/", SUPPORTED),
        ("\ud800", SUPPORTED),
        ("q" * 100_000, SUPPORTED),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(given: str, hint: str) -> None:
    kind, message = refusal(given)
    assert kind == "value_error"
    assert hint in message
    assert len(message) < 1000


GPU = CudaTarget(kind="cuda", arch="sm_90")
ON_ARM = GPU.model_copy(update={"mcpu": "generic", "triple": LINUX_AARCH64})


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("cuda-sm_90", PresetTarget(preset="cuda-sm_90")),
        ("cuda", PresetTarget(preset="cuda")),
        ({"preset": "cuda-sm_90", "cores": None}, PresetTarget(preset="cuda-sm_90")),
        ({"kind": "cuda", "arch": "sm_90"}, GPU),
        ({"kind": "cuda"}, CudaTarget(kind="cuda")),
        (GPU, GPU),
        ({"preset": "cuda-sm_90", "triple": LINUX_AARCH64}, ON_ARM),
        ({"preset": "cuda-sm_90", "mcpu": "znver4"}, GPU.model_copy(update={"mcpu": "znver4"})),
        ({"kind": "cuda", "arch": "sm_90", "triple": LINUX_AARCH64}, ON_ARM),
    ],
    ids=str,
)
def test_a_gpu_is_a_preset_or_an_architecture(given: Any, target: Any) -> None:
    assert request(given).target == target
    assert unknown_part(target) is None


def test_a_preset_and_its_architecture_are_one_target() -> None:
    with pytest.raises(ValidationError, match="the target 'cuda-sm_90' is given twice"):
        Submission.model_validate({"model": "0" * 64, "target": ["cuda-sm_90", GPU]})


def test_the_command_line_takes_the_processor_beside_a_gpu() -> None:
    assert read_draft("cuda-sm_90", (), [f"target.triple={LINUX_AARCH64}"]).request.target == ON_ARM


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        (("CUDA", "gpu", "nvidia", "nvptx64", "cuda-12", "cuda:0", "nvidia/\ud800", "geforce"), "cuda"),
        (("t4", "NVIDIA T4", "turing", "rtx-2080-ti", "titan-rtx", "gtx-1660"), "cuda-sm_75"),
        (("a100", "a100-sxm4-80gb", "nvidia/nvidia-a100", "A30"), "cuda-sm_80"),
        (("a10", "a10g", "rtx3090", "rtx-a6000", "nvidia/geforce-rtx-3070", "cuda-86"), "cuda-sm_86"),
        (("l4", "L40S", "rtx-4090", "GeForce RTX 4070 Ti SUPER", "rtx-6000-ada"), "cuda-sm_89"),
        (("h100", "h200", "hopper", "sm_90", "sm_90a", "cuda-90", "compute_90", "cuda_sm90"), "cuda-sm_90"),
        (("b200", "gb200", "blackwell", "sm_100a"), "cuda-sm_100"),
        (("rtx-5090", "rtx-pro-6000", "compute_120"), "cuda-sm_120"),
    ],
)
def test_another_name_of_a_gpu_is_answered_with_its_preset(names: tuple[str, ...], meant: str) -> None:
    for name in names:
        kind, message = refusal(name)
        assert kind == "value_error", name
        assert f"; did you mean '{meant}'?" in message, name


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (
            ("sm_70", "v100", "cuda-sm_70", "nvidia/tesla-p100", "k80", "gtx-1080", "nvptx -mcpu=sm_60"),
            "older",
        ),
        (("cuda -arch=sm_35", "volta", "compute_61"), "older than sm_75"),
        (("sm_130", "b300", "jetson-agx-orin", "sm_87", "dgx-spark", "cuda-sm_103"), "Write 'cuda'"),
    ],
)
def test_an_architecture_without_code_is_refused_with_those_that_have_it(
    names: tuple[str, ...], reason: str
) -> None:
    for name in names:
        kind, message = refusal(name)
        assert kind == UNSUPPORTED, name
        assert reason in message, name
        assert "sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120" in message


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"preset": "cuda", "cores": 4}, "`cores` is for processors"),
        (PresetTarget(preset="cuda", cores=4), "`cores` is for processors"),
        ({"kind": "cuda", "features": ["+avx2"]}, "`features` is for processors"),
        ({"preset": "cuda-sm_80", "features": ["+sve"]}, "`features` is for processors"),
        ("cuda -arch=sm_90", "is a TVM target string; write 'cuda-sm_90'"),
        ("nvptx -mcpu=sm_90", "is a TVM target string; write 'cuda-sm_90'"),
        ("cuda -max_threads_per_block=1024", "write 'cuda'. TVM's -arch is `target.arch`"),
    ],
    ids=str,
)
def test_what_no_gpu_has_is_refused(given: Any, part: str) -> None:
    kind, message = refusal(given)
    assert kind == "value_error"
    assert part in message


def test_host_has_its_own_system() -> None:
    kind, message = refusal({"preset": "host", "triple": "x86_64-unknown-linux-musl"})
    assert kind == "value_error"
    assert "name a processor, such as 'x86-64-v3', to change its triple" in message


def test_two_names_for_one_target_are_a_contradiction() -> None:
    with pytest.raises(ValidationError):
        request({"preset": "skylake", "mcpu": "haswell"})


def test_an_empty_name_on_the_command_line_is_not_the_default() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown target ''"):
        read_draft("", (), ())


def test_the_command_line_names_the_code() -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape("[target-unsupported]")):
        read_draft("nvidia/tesla-p100", (), ())
