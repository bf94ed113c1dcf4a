"""A sysfs tree as the amdgpu driver makes it, for so many GPUs."""

from pathlib import Path

USED = 12 << 20


def plant(sys: Path, count: int) -> Path:
    """Make the tree; returns where it is."""
    for n in range(count):
        card = sys / f"devices/pci0000:00/0000:{0xC1 + n:02x}:00.0"
        (card / "ras").mkdir(parents=True)
        write(card / "vendor", "0x1002")
        write(card / "device", "0x74a1")
        write(card / "product_name", "AMD Instinct MI300X OAM")
        write(card / "unique_id", f"amd-{n}")
        write(card / "mem_info_vram_total", str(192 << 30))
        write(card / "mem_info_vram_used", str(USED))
        write(card / "ras/umc_err_count", "ue: 0\nce: 4")
        link = sys / f"class/drm/card{n}"
        link.mkdir(parents=True)
        (link / "device").symlink_to(card)
        node = sys / f"class/kfd/kfd/topology/nodes/{n + 1}"
        node.mkdir(parents=True)
        write(node / "gpu_id", str(1000 + n))
        write(node / "properties", f"domain 0\nlocation_id {(0xC1 + n) << 8}\nsimd_count 1216")
    return sys


def write(path: Path, text: str) -> None:
    """A file of sysfs."""
    path.write_text(text + "\n")


def use(sys: Path, n: int, pid: int, size: int) -> None:
    """A process with memory on a GPU."""
    folder = sys / f"class/kfd/kfd/proc/{pid}"
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"vram_{1000 + n}", str(size))
