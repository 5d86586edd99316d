#!/usr/bin/env python3
"""bitsandbytes' and hivemind's 8-bit codecs beside Swarmline's, in one run, on one core: `make compare`.

They take turns: a round measures each of theirs in this process, then ours by `swarmline bench codec`, each with a
memcpy of the same bytes beside it; of all rounds the best counts, since other programs can only slow one down. Theirs is
CPU time, ours elapsed time: a busy machine hurts ours alone. Theirs are the packages as they are shipped, called as
their users call them. What is compared:
  bitsandbytes  quantize_blockwise / dequantize_blockwise, with our kernels: codes and scales, no message
  hivemind      a message that travels (compress / extract), with our wire buffer, which is checksummed as well
Theirs decode into new memory, as they always do, ours into memory that is there. A tensor of 16 MiB is below what the C
library takes from the system anew each time, so that this hardly counts; with 64 MiB it would cost them most of the time.
Prints a table and writes JSON (docs/formats/bench.md).

    .deps/compare/bin/python scripts/compare/codec_compare.py --swarmline build/release/swarmline
"""

import argparse
import ctypes
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "QUANTIZATION_THREADS"):
    os.environ[name] = "1"  # before the libraries below start their threads

import bitsandbytes  # noqa: E402
import bitsandbytes.functional as bnb  # noqa: E402
import hivemind  # noqa: E402
import hivemind.compression.quantization  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor  # noqa: E402
from hivemind.proto import runtime_pb2  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMAT = 1
MIB = 1 << 20
OUR_ROUNDS = 3  # of ours in each round here: they are short
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
BLOCKS = (64, 256, 4096)


class NumpyOfItsTime:
    """numpy for hivemind, which takes int() of arrays of one element; numpy refuses that from 2.4 on."""

    def __getattr__(self, name):
        return getattr(numpy, name)

    @staticmethod
    def frombuffer(buffer, count=-1, **more):
        array = numpy.frombuffer(buffer, count=count, **more)
        return array[0] if count == 1 else array


hivemind.compression.quantization.np = NumpyOfItsTime()


class Theirs:
    """One codec on one tensor. encode() gives what decode() takes."""

    def __init__(self, package, name, dtype, encode, decode, wire_bytes, counterpart, message):
        self.package, self.name, self.dtype = package, name, dtype
        self.encode, self.decode, self.wire_bytes = encode, decode, wire_bytes
        self.counterpart = counterpart  # our codec and block
        self.message = message          # compared with our wire buffer, not with our kernel
        self.encode_seconds = self.decode_seconds = self.copy_seconds = float("inf")


def bitsandbytes_codec(dtype, block):
    def encode(x):
        return bnb.quantize_blockwise(x, blocksize=block)

    def decode(coded):
        codes, state = coded
        return bnb.dequantize_blockwise(codes, state)

    def wire_bytes(coded):
        codes, state = coded
        return codes.numel() + 4 * state.absmax.numel()

    return Theirs("bitsandbytes", f"dyn8/{block}", dtype, encode, decode, wire_bytes, ("dyn8", block), False)


def hivemind_codec(dtype, name, counterpart):
    kind = getattr(runtime_pb2, name)
    return Theirs("hivemind", name, dtype, lambda x: serialize_torch_tensor(x, kind), deserialize_torch_tensor,
                  lambda message: message.ByteSize(), counterpart, True)


def their_codecs():
    codecs = [bitsandbytes_codec(dtype, block) for dtype in DTYPES for block in BLOCKS]
    for dtype in DTYPES:
        codecs.append(hivemind_codec(dtype, "BLOCKWISE_8BIT", ("dyn8", 4096)))
    # The others copy through numpy, which has no bf16.
    codecs.append(hivemind_codec("fp32", "UNIFORM_8BIT", ("lin8", 4096)))
    codecs.append(hivemind_codec("fp32", "QUANTILE_8BIT", ("lin8", 4096)))
    codecs.append(hivemind_codec("fp32", "FLOAT16", ("fp16", 0)))
    return codecs


def seconds_of(work):
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def copy_seconds(source, target):
    size = source.numel() * source.element_size()
    return seconds_of(lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), size))[0]


def relative_l2(x, y):
    x, y = x.double(), y.double()
    return ((x - y).norm() / x.norm()).item()


def measure_theirs(codec, x, target):
    codec.copy_seconds = min(codec.copy_seconds, copy_seconds(x, target))
    seconds, coded = seconds_of(lambda: codec.encode(x))
    codec.encode_seconds = min(codec.encode_seconds, seconds)
    seconds, back = seconds_of(lambda: codec.decode(coded))
    codec.decode_seconds = min(codec.decode_seconds, seconds)
    codec.bytes_per_element = codec.wire_bytes(coded) / x.numel()
    codec.relative_l2 = relative_l2(x, back.reshape(x.shape))


def measure_ours(swarmline, mib):
    """Rows of `swarmline bench codec` by (codec, block, source), and errors on N(0, 1) by (codec, block)."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "ours.json"
        subprocess.run([swarmline, "bench", "codec", "--codecs", "fp16,lin8,dyn8,h8", "--dtypes", ",".join(DTYPES),
                        "--blocks", ",".join(map(str, BLOCKS)), "--mib", str(mib), "--rounds", str(OUR_ROUNDS),
                        "--tensors", "normal", "--json", out], check=True, stdout=subprocess.DEVNULL)
        result = json.loads(out.read_text())
    if result["format"] != FORMAT:
        raise SystemExit(f"{swarmline} writes format {result['format']}; this program reads format {FORMAT}")
    speeds = {(row["codec"], row["block"], row["source"]): row for row in result["speeds"]}
    errors = {(row["codec"], row["block"]): row["relative_l2"] for row in result["errors"]}
    return speeds, errors


OPERATIONS = ("memcpy", "quantize", "dequantize", "encode", "decode")


def keep_best(best, speeds):
    for key, row in speeds.items():
        known = best.setdefault(key, row)
        for operation in OPERATIONS:
            if row[operation] and row[operation]["seconds"] < known[operation]["seconds"]:
                known[operation] = row[operation]


def row(library, name, dtype, tensor_bytes, copy, encode, decode, bytes_per_element, error):
    return {"library": library, "codec": name, "source": dtype,
            "encode_gb_per_second": tensor_bytes / encode / 1e9, "encode_of_memcpy": copy / encode,
            "decode_gb_per_second": tensor_bytes / decode / 1e9, "decode_of_memcpy": copy / decode,
            "bytes_per_element": bytes_per_element, "relative_l2": error}


def our_rows(best, errors, mib):
    rows = {}
    for (codec, block, dtype), speed in best.items():
        if (codec, dtype) == ("fp16", "bf16"):
            continue  # nobody's beside it
        elements = mib * MIB / (4 if dtype == "fp32" else 2)
        name = f"{codec}/{block}" if codec in ("lin8", "dyn8") else codec
        for library, encode, decode in (("swarmline, kernel", "quantize", "dequantize"),
                                        ("swarmline, wire buffer", "encode", "decode")):
            if speed[encode] is None:
                continue
            rows[codec, block, dtype, encode == "encode"] = row(
                library, name, dtype, mib * MIB, speed["memcpy"]["seconds"], speed[encode]["seconds"],
                speed[decode]["seconds"], speed["wire_bytes"] / elements, errors[codec, block])
    return rows


def their_rows(codecs, ours, mib):
    rows = []
    for codec in codecs:
        made = row(codec.package, codec.name, codec.dtype, mib * MIB, codec.copy_seconds, codec.encode_seconds,
                   codec.decode_seconds, codec.bytes_per_element, codec.relative_l2)
        beside = ours[(*codec.counterpart, codec.dtype, codec.message)]
        made["beside"] = f"{beside['library']} {beside['codec']}"
        for operation in ("encode", "decode"):
            key = f"{operation}_gb_per_second"
            made[f"ours_{operation}_times_faster"] = beside[key] / made[key]
        rows.append(made)
    return rows


def table(rows):
    lines = ["| library | codec | from | encode GB/s (of memcpy) | decode GB/s (of memcpy) | bytes/element | rel. L2 on "
             "N(0,1) | ours beside it | encode, decode: times faster |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | --- | ---: |"]
    for r in rows:
        faster = (f"{r['ours_encode_times_faster']:.1f}, {r['ours_decode_times_faster']:.1f}" if "beside" in r else "")
        lines.append(f"| {r['library']} | {r['codec']} | {r['source']} | {r['encode_gb_per_second']:.2f} "
                     f"({r['encode_of_memcpy']:.3f}) | {r['decode_gb_per_second']:.2f} ({r['decode_of_memcpy']:.3f}) | "
                     f"{r['bytes_per_element']:.3f} | {r['relative_l2']:.5f} | {r.get('beside', '')} | {faster} |")
    return "\n".join(lines)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.processor()


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swarmline", type=pathlib.Path, default=ROOT / "build/release/swarmline")
    parser.add_argument("--mib", type=int, default=16, help="of the tensor, as its own type")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench/codec_compare.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)

    tensors = {dtype: torch.randn(options.mib * MIB // torch.empty(0, dtype=kind).element_size()).to(kind)
               for dtype, kind in DTYPES.items()}
    targets = {dtype: torch.zeros_like(x) for dtype, x in tensors.items()}
    codecs, best = their_codecs(), {}
    for number in range(options.rounds):
        for codec in codecs:
            progress(f"round {number + 1} of {options.rounds}: {codec.package} {codec.name} from {codec.dtype}")
            measure_theirs(codec, tensors[codec.dtype], targets[codec.dtype])
        progress(f"round {number + 1} of {options.rounds}: swarmline")
        speeds, errors = measure_ours(options.swarmline, options.mib)
        keep_best(best, speeds)
    progress("")

    ours = our_rows(best, errors, options.mib)
    rows = list(ours.values()) + their_rows(codecs, ours, options.mib)
    result = {"format": FORMAT, "kind": "codec_compare", "wall_seconds": time.time(), "machine": processor(),
              "tensor_mib": options.mib, "rounds": options.rounds,
              "versions": {"bitsandbytes": bitsandbytes.__version__, "hivemind": hivemind.__version__,
                           "torch": torch.__version__},
              "rows": rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['machine']}; {options.mib} MiB, one core; bitsandbytes {bitsandbytes.__version__}, "
          f"hivemind {hivemind.__version__}\n")
    print(table(rows))
    print(f"\nwritten: {options.out}")


if __name__ == "__main__":
    main()
