"""The part of gpu-check that runs compute-sanitizer."""

import concurrent.futures
import os
import re
import shutil

# Which tests a memory checker slows down to minutes and which it does not: the sizes beyond a gigabyte are left out.
SANITIZED = (("memcheck", "cuda_quantize_test", "*-*Huge*:*Large*"), ("memcheck", "cuda_optimizer_test", "*"),
             ("memcheck", "cuda_topk_test", "*"), ("memcheck", "cuda_codec_test", "*"),
             ("memcheck", "cuda_gradients_test", "*Anywhere*:*FeedsBack*:*Positions*:*Adds*"),
             ("racecheck", "cuda_kernels_test", "*"), ("initcheck", "cuda_codec_test", "*"))


def sanitizer(check, _):
    """compute-sanitizer over the tests of our own kernels."""
    tool = shutil.which("compute-sanitizer") or next((p for p in ("/usr/local/cuda/bin/compute-sanitizer",) if os.path.exists(p)), None)
    if tool is None or check.gpu is None:
        check.add("sanitizer", "compute-sanitizer", "skipped", "not installed here" if tool is None else "no GPU here")
        return
    chosen = [row for row in SANITIZED if check.program(row[1])]

    def run(row):
        kind, name, tests = row
        return check.run("sanitizer", [tool, "--tool", kind, "--error-exitcode", "9", "--print-limit", "20",
                                       check.program(name), f"--gtest_filter={tests}"], name=f"{kind} {name}")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, chosen))
    for (kind, name, _), done in zip(chosen, results):
        if done is None:
            continue
        summary = re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): .*", done[1])
        check.add("sanitizer", f"{kind} {name}", "passed" if done[0] == 0 else "failed",
                  summary[-1] if summary else check.read.last_failure(done[1]), done[1])
