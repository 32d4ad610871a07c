"""NVIDIA's GPUs: the architecture of each by its name, and which architecture's code runs on which GPU.

Architectures are those of NVIDIA's table "CUDA GPU Compute Capability", https://developer.nvidia.com/cuda-gpus.
"""

import re
from collections.abc import Sequence

from bessemer.contract.target import GPU_ARCHITECTURES

OLDEST_CUDA = "13.0"
"""The version of CUDA whose compilers make the code; an older driver does not load it."""

_MODELS = {
    "sm_75": r"turing|t4g?|t[46]00|t1000|titan-rtx|(quadro-)?rtx-[34568]000|(rtx-)?20[5-8]0|(gtx-)?16[3-6]0",
    "sm_80": r"ampere|a100|a30|a800",
    "sm_86": r"a2|a10g?|a16|a40|(rtx-)?30[5-9]0|rtx-a\d{3,4}|a[2456]000",
    "sm_87": r"orin|agx-orin|orin-nano|orin-nx",
    "sm_89": r"ada|lovelace|l4|l20|l40s?|(rtx-)?40[5-9]0|rtx-\d{4}-ada.*",
    "sm_90": r"hopper|h100|h200|h800|h20|gh200",
    "sm_100": r"blackwell|b100|b200|gb200",
    "sm_103": r"b300|gb300",
    "sm_110": r"thor|agx-thor",
    "sm_120": r"(rtx-)?50[5-9]0|rtx-pro-\d{4}.*",
    "sm_121": r"gb10|dgx-spark",
    "sm_72": r"xavier|agx-xavier|xavier-nx",
    "sm_70": r"volta|v100s?|titan-v",
    "sm_62": r"tx2",
    "sm_61": r"p4|p6|p40|titan-xp?|(gtx-)?10[1-8]0",
    "sm_60": r"pascal|p100",
    "sm_53": r"jetson-nano|tx1",
    "sm_52": r"maxwell|m10|m40|m60|(gtx-)?9[5-8]0",
    "sm_37": r"k80",
    "sm_35": r"kepler|k20|k40",
}
_CODE = re.compile(r"(?:cuda[-_]?)?(?:(?:sm|compute)[-_]?)?([3-9]\d|1[0-3]\d)[af]?")
_BRANDS = re.compile(r"^(cuda|nvidia|tesla|geforce|quadro|jetson)[-/ ]+")
_ENDINGS = re.compile(
    r"[- ]?(pcie|sxm\d?|nvl|ti|super|max-q|laptop|mobile|\d+gb?)(-.*)?$", flags=re.IGNORECASE
)
_OF_NVIDIA = re.compile(r"cuda([-_: ].*)?|nvidia[-/ ].*|(geforce|tesla|quadro|jetson|rtx|gtx)-.*")
_GENERAL_NAMES = frozenset(
    {"gpu", "nvidia", "nvidia-gpu", "nvptx", "nvptx64", "nvvm", "tensorrt", "geforce", "tesla", "cuda-all"}
)
"""Names of NVIDIA GPUs in general."""


def architecture_named(name: str) -> str | None:
    """The architecture that a name of a GPU means, such as ``sm_90`` for ``h100``; None if it names no GPU.

    It may be an architecture that no library can have code for.
    """
    plain = name.strip().lower().replace("_", "-")
    code = _CODE.fullmatch(plain)
    if code is not None and not plain[0].isdigit():
        return f"sm_{code[1]}"
    words = [plain.replace(" ", "-")]
    while (shorter := _BRANDS.sub("", words[-1])) != words[-1]:
        words.append(shorter)
    words.append(_ENDINGS.sub("", words[-1]))
    models = (arch for word in words for arch, pattern in _MODELS.items() if _is_model(pattern, word))
    return next(models, None)


def _is_model(pattern: str, word: str) -> bool:
    joined = re.sub(r"^(rtx|gtx)(?=\d)", r"\1-", word)
    return any(re.fullmatch(pattern, each) for each in (word, joined))


def names_gpu(name: str) -> bool:
    """Whether a name means NVIDIA GPUs, or one of them."""
    plain = name.strip().lower().replace("_", "-")
    if plain in _GENERAL_NAMES or architecture_named(name) is not None:
        return True
    return _OF_NVIDIA.fullmatch(plain) is not None


def number_of(arch: str) -> int | None:
    """An architecture's compute capability as one number: 90 of ``sm_90``; None for another name."""
    found = re.fullmatch(r"sm_(\d{2,3})", arch)
    return None if found is None else int(found[1])


def runs_on(code: Sequence[str], gpu: str) -> bool:
    """Whether a GPU runs a library.

    Machine code runs on GPUs of its major version and the same or a higher minor one. A library with code for
    all architectures also has PTX, which the driver of a newer GPU compiles.

    Args:
        code: the architectures that the library has machine code for.
        gpu: the GPU's architecture.
    """
    own = number_of(gpu)
    if own is None:
        return False
    numbers = [number for arch in code if (number := number_of(arch)) is not None]
    has_ptx = len(numbers) > 1
    return any(number <= own and (has_ptx or number // 10 == own // 10) for number in numbers)


def is_new_enough(cuda: str) -> bool:
    """Whether a driver for this version of CUDA loads the compilers' code."""
    found = re.fullmatch(r"(\d+)\.(\d+)", cuda)
    oldest = tuple(map(int, OLDEST_CUDA.split(".")))
    return found is not None and (int(found[1]), int(found[2])) >= oldest


def lacking_architecture(name: str, arch: str) -> str:
    """Why no library has code for an architecture, and what to do."""
    oldest, number = GPU_ARCHITECTURES[0], number_of(arch)
    known = f"The compiler has {', '.join(GPU_ARCHITECTURES)}."
    of_gpu = "" if arch == name else f" an NVIDIA GPU of the architecture {arch}, which is"
    subject = f"'{name}' is{of_gpu}"
    least = number_of(oldest)
    if number is None or least is None or number < least:
        return f"{subject} older than {oldest}, the first that CUDA 13 compiles for. {known}"
    return (
        f"{subject} not among the compiler's architectures. {known} Write 'cuda': it includes PTX, which the "
        "driver of any newer GPU compiles."
    )
