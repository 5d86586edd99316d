"""What a program that was installed may link, and how it is looked at."""

import re
import subprocess
from pathlib import Path

# docs/install.md names the packages. Every Linux with glibc has the last row.
DECLARED = {
    "libtorch_cpu", "libc10",
    "libcrypto", "libfmt", "libhwy", "libpcre2-8", "libprometheus-cpp-core", "libprotobuf", "libspdlog", "libsqlite3",
    "libssl", "libutf8proc", "libxxhash", "libz", "libzstd",
    "libc", "libgcc_s", "libm", "libstdc++", "ld-linux-x86-64",
}
GLIBC_MOST = (2, 35)  # of Ubuntu 22.04, and of the wheel's tag
GLIBCXX_MOST = (3, 4, 30)  # of GCC 12: Debian 12, Ubuntu 22.04


def dynamic(program, tag):
    shown = subprocess.run(["readelf", "--dynamic", "--wide", program], check=True, capture_output=True, text=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", shown)


def runpaths(program):
    return [path for paths in dynamic(program, "RUNPATH") + dynamic(program, "RPATH") for path in paths.split(":")]


def needed(program):
    """Names without versions. auditwheel puts a hash behind them."""
    return {re.sub(r"(-[0-9a-f]{8})?\.so.*", "", name) for name in dynamic(program, "NEEDED")}


def versions(binary, of):
    """Of GLIBC or GLIBCXX: the versions whose symbols it needs."""
    shown = subprocess.run(["readelf", "--version-info", "--wide", binary], check=True, capture_output=True, text=True).stdout
    return {tuple(map(int, found.split("."))) for found in re.findall(rf"\b{of}_([0-9.]+)", shown)}


def loaded(program, environment):
    """Name to path of all that the loader finds; a path is None where it finds nothing."""
    shown = subprocess.run(["ldd", program], check=True, capture_output=True, text=True, env=environment).stdout
    found = re.findall(r"^\s*(\S+) => (?:(/.*) \(0x|not found)", shown, re.M)
    return {name: Path(path).resolve() if path else None for name, path in found}
