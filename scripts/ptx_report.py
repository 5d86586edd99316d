#!/usr/bin/env python3
"""What the compiler made of the CUDA kernels that take a chunk a team, as a table; needs nvcc and no GPU.

    scripts/ptx_report.py [--architectures 75,80,90] [--cuobjdump PATH] [--check]

registers, stack and spills: of the kernels as they are built (ptxas -v). instructions: machine instructions
for one element of a full, aligned chunk of finite values in arrays, with fp32 scales and block 256 (or the
format's own), counted in the disassembly of a build that has nothing else. They are counted as they stand
there, so a loop counts once; of a branch that the code calls rare() only the test counts, other branches
(a block of zeros, a division's odd operands) count as if taken. --check: exit code 1 if a kernel has a
stack frame or spills, or if a quantize or dequantize kernel takes more instructions than 4 warps a clock
leave at the speed of an H200's memory.

cuobjdump comes with CUDA's tool kit. Without one:

    pip install --target .deps/cuobjdump nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = ("quantize_lin8", "quantize_dyn8", "quantize_h8", "quantize_fp8", "quantize_int4", "pairs")
PER_THREAD = 16  # elements
REPORT_BLOCK = 256
# Instructions an element may take: 4 x 132 warps a clock x 32 lanes x 1.755 GHz / elements a second at 4.3 TB/s.
BUDGET = {"Float32": 35, "Float16": 21, "Bfloat16": 21}
KINDS = {"QuantizeBody": "quantize", "DequantizeBody": "dequantize", "FeedbackBody": "feedback",
         "NormBody": "norm+quantize"}
NAMES = {"Float32": "fp32", "Float16": "fp16", "Bfloat16": "bf16"}


def tool(name, given):
    installed = [pathlib.Path(folder) for folder in sys.path if folder.endswith("-packages")]
    hints = [given, shutil.which(name), *(pathlib.Path(os.environ.get(key, "/usr/local/cuda")) / "bin" / name
                                          for key in ("CUDA_HOME", "CUDA_PATH")),
             *(hint for folder in (ROOT / ".deps/cuobjdump", *installed) for hint in folder.glob(f"nvidia/cu*/bin/{name}")),
             *ROOT.glob(f".deps/compare/lib/python*/site-packages/triton/backends/nvidia/bin/{name}")]
    return next((str(hint) for hint in hints if hint and pathlib.Path(hint).exists()), None)


def compile_source(nvcc, source, architecture, folder, flags):
    """The object file and what ptxas said."""
    out = folder / f"{source}.{architecture}.{'report' if flags else 'plain'}.cubin"
    compiler = shutil.which("clang++-19") or shutil.which("g++")
    done = subprocess.run([nvcc, "-std=c++20", "-O2", "--fmad=false", "-ccbin", compiler, f"-arch=sm_{architecture}",
                           "-cubin", "-Xptxas", "-v", "-DSWARMLINE_WITH_CUDA=1", f"-I{ROOT}", *flags,
                           str(ROOT / f"kernels/cuda/{source}.cu"), "-o", str(out)],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout)
    return out, done.stdout


def described(mangled):
    """(operation, format, type) of a kernel's name."""
    if "PairsBody" in mangled:
        return "add" if "3Sum" in mangled else "lost values", "", "Float32"
    body = re.search(r"\d+(QuantizeBody|DequantizeBody|FeedbackBody|NormBody)I", mangled).group(1)
    if "Dyn8I" in mangled:
        name = "dyn8" if "Dyn8ILb1E" in mangled else "dyn8u"
    elif "Fp8I" in mangled:
        name = "e4m3" if "4E4M3" in mangled else "e5m2"
    else:
        name = re.search(r"\d(Lin8|H8|Int4|H4)E", mangled).group(1).lower()
    kind = re.search(r"(Float32|Float16|Bfloat16)E", mangled)
    kind = kind.group(1) if kind else "Float32"
    is_variant = re.search(r"Lb1EEEEE", mangled) is not None
    operation = KINDS[body]
    if is_variant:
        operation += " stochastic"
    return operation, name, kind


def resources(said):
    """Kernel -> (registers, stack bytes, spilled bytes)."""
    found = {}
    pattern = (r"Compiling entry function '(\S+)'.*?\n.*?\n\s+(\d+) bytes stack frame, (\d+) bytes spill stores, "
               r"(\d+) bytes spill loads\n.*?Used (\d+) registers")
    for name, stack, stores, loads, registers in re.findall(pattern, said):
        found[described(name)] = (int(registers), int(stack), int(stores) + int(loads))
    return found


def instructions(cuobjdump, binary):
    """Kernel -> instructions up to its end; subroutines for rare operands follow it."""
    path = f"{os.environ.get('PATH', '')}{os.pathsep}{pathlib.Path(cuobjdump).parent}"  # nvdisasm is beside it
    text = subprocess.run([cuobjdump, "-sass", str(binary)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env={**os.environ, "PATH": path}, check=True).stdout
    found = {}
    for part in text.split("Function : ")[1:]:
        count = 0
        for line in part.splitlines():
            match = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)
            if not match or match.group(1).startswith("NOP"):
                continue
            count += 1
            if match.group(1) == "EXIT":
                break
        found[described(part.split()[0])] = count / PER_THREAD
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", default="75,80,90")
    parser.add_argument("--nvcc")
    parser.add_argument("--cuobjdump", help="of CUDA 13; comes with its tool kit, with Triton and from PyPI")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    nvcc = tool("nvcc", options.nvcc)
    cuobjdump = tool("cuobjdump", options.cuobjdump)
    if nvcc is None:
        sys.exit("ptx_report: nvcc is neither on PATH nor under /usr/local/cuda; set CUDA_HOME.")
    architectures = options.architectures.split(",")
    used, counts = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for architecture in architectures:
            for source in SOURCES:
                binary, said = compile_source(nvcc, source, architecture, pathlib.Path(folder), [])
                used.update({(architecture, *key): value for key, value in resources(said).items()})
                if cuobjdump is None:
                    continue
                binary, _ = compile_source(nvcc, source, architecture, pathlib.Path(folder),
                                           [f"-DSWARMLINE_PTX_REPORT={REPORT_BLOCK}"])
                counts.update({(architecture, *key): value for key, value in instructions(cuobjdump, binary).items()})
    faults = []
    heads = [f"sm_{a} registers | instr./element" for a in architectures]
    print("| kernel | format | type | " + " | ".join(heads) + " |")
    print("|---|---|---|" + "--:|--:|" * len(architectures))
    for key in sorted({key[1:] for key in used}):
        cells = []
        for architecture in architectures:
            registers, stack, spilled = used[(architecture, *key)]
            count = counts.get((architecture, *key))
            cells.append(f"{registers} | {'' if count is None else f'{count:.1f}'}")
            if stack or spilled:
                faults.append(f"sm_{architecture} {' '.join(key)}: {stack} bytes of stack, {spilled} spilled")
            if key[0] in ("quantize", "dequantize") and count is not None and count > BUDGET[key[2]]:
                faults.append(f"sm_{architecture} {' '.join(key)}: {count:.1f} instructions, more than {BUDGET[key[2]]}")
        print(f"| {key[0]} | {key[1]} | {NAMES[key[2]]} | " + " | ".join(cells) + " |")
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if options.check and faults else 0)


if __name__ == "__main__":
    main()
