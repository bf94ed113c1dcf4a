"""AMD's GPUs as the amdgpu driver shows them in sysfs; no library.

`/sys/class/drm/cardN/device` has the vendor, the memory and, on boards with RAS, counts of memory errors;
`/sys/class/kfd/kfd/proc/PID/vram_ID` says which process has how much. Order is that of PCI addresses.
"""

from pathlib import Path

from moorage.devices.models import short_model
from moorage.devices.port import Device, Health, NoDriver, Reading, Use, worst

VENDOR = "0x1002"
_MODELS = {"0x738c": "MI100", "0x7408": "MI250X", "0x740f": "MI210", "0x74a0": "MI300A", "0x74a1": "MI300X"}
"""PCI device ids of boards that give no product name."""


class AmdDevices:
    """Reads sysfs at each look; keeps nothing open.

    Args:
        sys: where sysfs is.
    """

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys

    def read(self) -> tuple[Reading, ...]:
        """Every GPU that the amdgpu driver has."""
        found = sorted({card.resolve() for card in self._sys.glob("class/drm/card*/device") if _is_ours(card)})
        if not found:
            raise NoDriver("there is no GPU of AMD's driver on this machine")
        nodes = self._nodes()
        return tuple(self._reading(index, card, nodes) for index, card in enumerate(found))

    def close(self) -> None:
        """Nothing is open."""

    def _reading(self, index: int, card: Path, nodes: dict[int, str]) -> Reading:
        name = _text(card / "product_name") or _MODELS.get(_text(card / "device"), f"GPU {_text(card / 'device')}")
        device = Device(
            index=index,
            uuid=_text(card / "unique_id"),
            vendor="amd",
            model=short_model(name),
            name=name,
            memory_bytes=_number(card / "mem_info_vram_total") or 0,
        )
        health, fault = worst(_findings(card))
        node = nodes.get(_location(card.name) or -1)
        uses = self._uses(node) if node is not None else None
        return Reading(device, health, fault, _number(card / "mem_info_vram_used"), uses)

    def _nodes(self) -> dict[int, str]:
        """PCI location → id under which the compute driver knows a GPU."""
        out: dict[int, str] = {}
        for node in self._sys.glob("class/kfd/kfd/topology/nodes/*"):
            known = dict(line.split(maxsplit=1) for line in _text(node / "properties").splitlines() if " " in line)
            gpu = _text(node / "gpu_id")
            if gpu not in ("", "0") and "location_id" in known:
                out[int(known.get("domain", "0")) << 16 | int(known["location_id"])] = gpu
        return out

    def _uses(self, node: str) -> tuple[Use, ...]:
        found = ((path.parent.name, _number(path)) for path in self._sys.glob(f"class/kfd/kfd/proc/*/vram_{node}"))
        return tuple(Use(int(number), used) for number, used in sorted(found) if number.isdigit() and used)


def _is_ours(card: Path) -> bool:
    return _text(card / "vendor") == VENDOR and (card / "mem_info_vram_total").exists()


def _findings(card: Path) -> list[tuple[Health, str]]:
    found: list[tuple[Health, str]] = []
    for counts in sorted(card.glob("ras/*_err_count")):
        for line in _text(counts).splitlines():
            kind, _, number = line.partition(":")
            if kind.strip() == "ue" and number.strip().isdigit() and int(number) > 0:
                block = counts.name.removesuffix("_err_count")
                found.append((Health.AT_RISK, f"{int(number)} uncorrected errors in {block}"))
    return found


def _location(address: str) -> int | None:
    """`0000:c1:00.0` → domain, bus, device and function in one number, as the compute driver writes it."""
    try:
        domain, bus, rest = address.split(":")
        slot, function = rest.split(".")
        return int(domain, 16) << 16 | int(bus, 16) << 8 | int(slot, 16) << 3 | int(function)
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # this board, or this version of the driver, does not say


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None
