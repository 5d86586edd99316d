"""What gpu-check finds on a machine: the card, and the PyTorch whose libraries the programs load."""

import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys

TORCH = "2.11"
CUDA = "130"  # PyTorch's, which the pack's libraries are built for


def first_answer(*asked):
    """The first line of the first of these commands that ends well and says something, or None."""
    for arguments in asked:
        try:
            done = subprocess.run(arguments, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        lines = done.stdout.strip().splitlines()
        if done.returncode == 0 and lines:
            return lines[0]
    return None


def gpu_name():
    """As nvidia-smi has it, or PyTorch where there is no such program (containers)."""
    return first_answer(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                        [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name(0))"])


def capability():
    """(major, minor) of the card, or None where nobody says."""
    said = first_answer(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                        [sys.executable, "-c", "import torch; print(*torch.cuda.get_device_capability(0), sep='.')"])
    found = re.fullmatch(r"(\d+)\.(\d+)", said or "")
    return found and (int(found.group(1)), int(found.group(2)))


def version_in(root):
    """As the package itself says, for it may have been built where it is; importing it would take seconds."""
    try:
        found = re.search(r"""^__version__\b[^=\n]*= *['"](.+)['"]""", (root / "version.py").read_text(), re.MULTILINE)
        return found.group(1) if found else importlib.metadata.version("torch") or "of an unknown version"
    except (OSError, importlib.metadata.PackageNotFoundError):
        return "of an unknown version"


def torch_libraries(device, movable):
    """Version of the PyTorch of this Python, or None, and the folders of its libraries and of CUDA's wheels. Programs that
    can't be moved have their libtorch, and those of the CPU need no CUDA side. LookupError: there is none that fits."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        if not movable:
            return None, []
        raise LookupError(f"this Python has no PyTorch: run it with the Python that PyTorch {TORCH} (cu{CUDA}) is installed for.")
    root = pathlib.Path(spec.origin).parent
    version = version_in(root)
    if not movable:
        return version, []
    if not version.startswith(TORCH + "."):
        raise LookupError(f"this Python has PyTorch {version}; the pack's programs need {TORCH}.")
    if device == "cuda" and not (root / "lib/libtorch_cuda.so").exists():
        raise LookupError(f"the PyTorch in {root} has no CUDA side (lib/libtorch_cuda.so).")
    return version, [root / "lib", *sorted((root.parent / "nvidia").glob("*/lib"))]


def cuda_libraries():
    """Folders of CUDA's libraries, for programs that need no PyTorch: of this Python's wheels, and of a tool kit."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [pathlib.Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    kits = [pathlib.Path("/usr/local/cuda/lib64")]
    return [*(path for wheel in wheels for path in sorted(wheel.glob("*/lib"))), *(path for path in kits if path.is_dir())]


def needed_architecture(architectures, capability):
    """What a pack for these would need for that card, or None where it has it. `architectures` as CMake has them: 90-real
    is machine code, for the cards of that major number that are no older; 90-virtual is PTX, for all that are no older; 90 is
    both. None knows of a pack that doesn't say."""
    if not architectures or capability is None:
        return None
    major, minor = capability
    for name in architectures:
        number, _, kind = name.partition("-")
        if not number.isdigit():
            continue
        at_major, at_minor = divmod(int(number), 10)
        if kind != "virtual" and at_major == major and at_minor <= minor:
            return None
        if kind != "real" and (at_major, at_minor) <= (major, minor):
            return None
    return f"{major}{minor}"
