"""What the fleet, which is the live workers and devices, can do for a target."""

from collections.abc import Container, Iterable

from pydantic import Field

from bessemer.contract.base import Document, GrowingEnum
from bessemer.contract.capability import Capability, Needs, lacks, needs_of
from bessemer.contract.queue import QueueName
from bessemer.contract.service import Worker
from bessemer.contract.target import Preset, PresetTarget


class Means(GrowingEnum):
    """How the fleet does a part of a compilation."""

    NATIVE = "native"
    DEVICE = "device"
    EMULATION = "emulation"
    NONE = "none"


class Support(Document):
    """How the live workers and devices can build, verify and measure libraries for a target."""

    build: Means = Field(
        description="`native`: a live worker's compiler generates its code. `none`: none does, so a "
        "compilation waits in the queue."
    )
    verify: Means = Field(
        description="How libraries are compared with the model. `native`: on a worker's processor or GPU. "
        "`device`: on a registered device. `emulation`: by qemu on a worker. `none`: not at all, so that "
        "only a compilation with `verification` `none` leaves the queue."
    )
    measure: Means = Field(
        description="How libraries are timed: `native` or `device`, as above. `none`: not at all, since "
        "times under emulation say nothing about the hardware."
    )


class OfferedPreset(Preset):
    """A preset, and what the fleet can do for it."""

    fleet: Support | None = Field(
        default=None, description="How it can be built, verified and measured now; null from older servers."
    )


class TargetList(Document):
    """The targets that a request can name, with or without a live worker for them."""

    items: tuple[OfferedPreset, ...] = Field(description="The presets.")
    processors: dict[str, tuple[str, ...]] = Field(
        default={},
        description="LLVM's processor names, by their x86-64 level or their architecture. Each is a valid "
        "target name.",
    )


def support(needs: Needs | None, workers: Iterable[Worker], on_devices: Container[str] = ()) -> Support:
    """What the fleet can do for a target's needs, by the best way that it has.

    Args:
        needs: the target's; None if any worker can run its code.
        workers: the live workers.
        on_devices: the platforms that live devices run.
    """
    compilers = [
        worker.capability
        for worker in workers
        if QueueName.COMPILE in worker.queues and _knows(worker.capability, needs)
    ]
    runners = [each for each in compilers if not lacks(each, needs)]
    if runners and needs is not None and needs.gpus:
        return Support(build=Means.NATIVE, verify=Means.NATIVE, measure=Means.NATIVE)
    if any(_is_own(each, needs) for each in runners):
        return Support(build=Means.NATIVE, verify=Means.NATIVE, measure=Means.NATIVE)
    if compilers and needs is not None and needs.platform in on_devices:
        return Support(build=Means.NATIVE, verify=Means.DEVICE, measure=Means.DEVICE)
    same_processor = any(_architecture(needs) == each.architecture for each in runners)
    emulation = Means.NATIVE if same_processor else Means.EMULATION
    return Support(
        build=Means.NATIVE if compilers else Means.NONE,
        verify=emulation if runners else Means.NONE,
        measure=Means.NONE,
    )


def offered(
    presets: Iterable[Preset], workers: Iterable[Worker], on_devices: Container[str] = ()
) -> tuple[OfferedPreset, ...]:
    """Presets with what the fleet can do for them; see ``support``."""
    live = tuple(workers)
    found = ((preset, needs_of(PresetTarget(preset=preset.name))) for preset in presets)
    return tuple(
        OfferedPreset(**dict(preset), fleet=support(needs, live, on_devices)) for preset, needs in found
    )


def _architecture(needs: Needs | None) -> str:
    return "" if needs is None else needs.platform.partition("-")[0]


def _is_own(capability: Capability, needs: Needs | None) -> bool:
    """Whether the worker's own processor and C library run the code; older workers name no architecture."""
    return needs is None or capability.architecture in ("", needs.platform)


def _knows(capability: Capability, needs: Needs | None) -> bool:
    """Whether the worker's compiler generates code for the architecture, and for the GPUs."""
    if needs is not None and needs.gpus:
        return set(needs.gpus) <= set(capability.gpu_architectures)
    known = (capability.architecture, *capability.foreign)
    return _is_own(capability, needs) or _architecture(needs) in known
