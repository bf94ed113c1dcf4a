"""A program for the restart benchmarks that does nothing but write down when it began to run, then waits.

Its first instruction asks the monotonic clock; then it appends (seconds, nanoseconds, pid) as three 64-bit numbers to a
file and pauses. It is an ELF file made here byte by byte, static and without any library, so that what is measured is
who starts it and not what it loads. Machines other than x86-64 need a C compiler.
"""

import platform
import shutil
import struct
import subprocess
from pathlib import Path

RECORD = struct.Struct("=qqq")
BASE, HEADERS = 0x400000, 64 + 56

C_SOURCE = """
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long row[3] = {t.tv_sec, t.tv_nsec, getpid()};
    int file = open("%s", O_WRONLY | O_CREAT | O_APPEND, 0600);
    write(file, row, sizeof row);
    for (;;) pause();
}
"""


def make(path: Path, stamps: Path) -> Path:
    """The program at `path`, writing to `stamps`."""
    if platform.machine() == "x86_64":
        path.write_bytes(_elf(bytes(stamps)))
        path.chmod(0o700)
        return path
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("this benchmark needs a C compiler (cc) on machines other than x86-64")
    source = path.with_suffix(".c")
    source.write_text(C_SOURCE % stamps)
    subprocess.run([compiler, "-O2", "-static", "-o", str(path), str(source)], check=True)
    return path


def read(stamps: Path) -> list[tuple[int, int]]:
    """(monotonic nanoseconds, pid) of each start so far."""
    raw = stamps.read_bytes() if stamps.exists() else b""
    whole = len(raw) // RECORD.size * RECORD.size
    return [(seconds * 10**9 + nanos, pid) for seconds, nanos, pid in RECORD.iter_unpack(raw[:whole])]


def _elf(stamps: bytes) -> bytes:
    before = bytes.fromhex(
        "4883ec20"  # sub rsp, 32
        "b8e4000000bf010000004889e60f05"  # clock_gettime(CLOCK_MONOTONIC, rsp)
        "b8270000000f054889442410"  # [rsp + 16] = getpid()
        "b802000000488d3d"  # open(the path behind the code, …
    )
    after = bytes.fromhex(
        "be41040000ba800100000f05"  # … O_WRONLY | O_CREAT | O_APPEND, 0600)
        "89c7b8010000004889e6ba180000000f05"  # write(it, rsp, 24)
        "b8220000000f05ebf7"  # pause(), for ever
    )
    code = before + struct.pack("<i", len(after)) + after + stamps + b"\0"
    size = HEADERS + len(code)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, BASE + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 0x1000)
    return ident + head + segment + code
