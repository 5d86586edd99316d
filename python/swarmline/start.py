"""Starts the program, which finds libtorch in the PyTorch that is installed; Python does not import it."""

import importlib.metadata
import importlib.util
import os
import pathlib
import sys

TORCH_NEEDED = "2.11"  # as pyproject.toml says
EXIT_USER_MISTAKE = 2  # of the program's exit codes


def fail(sentence):
    print(f"swarmline: {sentence}", file=sys.stderr)
    raise SystemExit(EXIT_USER_MISTAKE)


def folders_of(package):
    spec = importlib.util.find_spec(package)
    return [pathlib.Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def check_version():
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return  # from a source tree or by hand: its library's name is all that can be checked
    if not (found + ".").startswith(TORCH_NEEDED + "."):
        fail(f"found PyTorch {found}, expected {TORCH_NEEDED}, whose libraries this swarmline is linked with; "
             f"run pip install 'torch=={TORCH_NEEDED}.*'")


def torch_libraries():
    """The folder with libtorch_cpu.so."""
    for folder in folders_of("torch"):
        if (folder / "lib" / "libtorch_cpu.so").exists():
            check_version()
            return folder / "lib"
    fail(f"found no PyTorch in {sys.prefix}, expected version {TORCH_NEEDED}; run pip install 'torch=={TORCH_NEEDED}.*'")


def missed_libraries(program, torch_lib):
    """Folders that neither the program's RUNPATH nor libtorch's own leads to."""
    missed = []
    by_runpath = program.parent.parent.parent / "torch" / "lib"
    if not (by_runpath.exists() and by_runpath.samefile(torch_lib)):
        missed.append(torch_lib)
    by_torch = torch_lib.parent.parent / "nvidia"
    if not by_torch.exists():
        missed += [lib for folder in folders_of("nvidia") for lib in folder.glob("*/lib")]
    return missed


def main():
    program = pathlib.Path(__file__).resolve().parent / "bin" / "swarmline"
    missed = missed_libraries(program, torch_libraries())
    if missed:
        before = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
        os.environ["LD_LIBRARY_PATH"] = ":".join([*map(str, missed), *before])
    os.execv(program, [str(program), *sys.argv[1:]])
