#!/usr/bin/env python3
"""Makes tests/fixtures/dyn8_bitsandbytes.bin: what bitsandbytes and hivemind make of one tensor.

Needs bitsandbytes and hivemind (made with 0.50.2 and 1.1.12; scripts/compare-env installs both):
    .deps/compare/bin/python scripts/make_dyn8_fixture.py tests/fixtures/dyn8_bitsandbytes.bin

The file, little-endian: 256 f32 signed codebook, 256 f32 unsigned codebook, u32 n, u32 block, n f32
values, ceil(n / block) f32 absmax and n u8 codes of bitsandbytes' blockwise CPU quantizer, n f32 what it
decodes them to; u32 bytes of a hivemind BLOCKWISE_8BIT message of the same values: i64 number of absmax,
i64 size of codebook, absmax, codebook, codes.
"""

import pathlib
import sys

import numpy as np
import torch
import bitsandbytes.functional as bnb
from hivemind.compression import serialize_torch_tensor
from hivemind.proto.runtime_pb2 import CompressionType

N, BLOCK = 5000, 4096


def main():
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(N, generator=generator)
    values[BLOCK:] *= 10.0 ** (torch.rand(N - BLOCK, generator=generator) * 8 - 4)
    codes, state = bnb.quantize_blockwise(values, blocksize=BLOCK)
    decoded = bnb.dequantize_blockwise(codes, state)
    message = serialize_torch_tensor(values, CompressionType.BLOCKWISE_8BIT)
    parts = [
        bnb.create_dynamic_map(True).numpy().astype("<f4"),
        bnb.create_dynamic_map(False).numpy().astype("<f4"),
        np.array([N, BLOCK], "<u4"),
        values.numpy().astype("<f4"),
        state.absmax.numpy().astype("<f4"),
        codes.numpy().astype("u1"),
        decoded.numpy().astype("<f4"),
        np.array([len(message.buffer)], "<u4"),
        np.frombuffer(message.buffer, "u1"),
    ]
    pathlib.Path(sys.argv[1]).write_bytes(b"".join(part.tobytes() for part in parts))


if __name__ == "__main__":
    main()
