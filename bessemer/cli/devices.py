"""``bessemer devices``: list live devices."""

from collections.abc import Iterator

from bessemer.cli.output import JsonOption, UrlOption, connected, print_result, shown_bytes, table
from bessemer.cli.timeline import shown_ago
from bessemer.contract.base import now
from bessemer.contract.device import Device, DeviceList

HEADINGS = ("device", "platform", "processor", "cores", "memory", "libc", "serves", "state", "seen")


def devices(json: JsonOption = False, url: UrlOption = None) -> None:
    """List the live devices that verify and measure your compilations."""
    with connected(url) as client:
        found = client.devices()
        print_result(found, table([*device_rows(found)], HEADINGS, "no devices"), json)


def device_rows(found: DeviceList) -> Iterator[tuple[str, ...]]:
    """The rows of the table."""
    at = now()
    for device in found.items:
        yield (*_facts(device), "busy" if device.busy else "idle", shown_ago(device.seen_at, at))


def _facts(device: Device) -> tuple[str, ...]:
    platform = f"{device.platform}, emulated" if device.emulated else device.platform
    processor = ", ".join((device.processor, *(gpu.name for gpu in device.gpus[:1])))
    memory, serves = shown_bytes(device.memory_bytes), "all tenants" if device.shared else "your tenant"
    return device.name, platform, processor, str(device.cores), memory, device.libc, serves
