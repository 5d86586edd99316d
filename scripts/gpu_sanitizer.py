"""The part of gpu-check that runs compute-sanitizer."""

import concurrent.futures
import os
import re
import shutil

# Which tests a checker slows down to minutes and which it does not: the size beyond four gigabytes is left out. Races are those
# of shared memory, which conversions, sums and digests have none of.
SANITIZED = (("memcheck", "cuda_quantize_test", "*-*MoreThanTwoToTheThirtyOne*"), ("memcheck", "cuda_kernels_test", "*"),
             ("racecheck", "cuda_quantize_test", "*Wire*:*Feedback*:*Norms*"), ("racecheck", "cuda_optimizer_test", "*"),
             ("racecheck", "cuda_topk_test", "*"), ("memcheck", "cuda_optimizer_test", "*"),
             ("memcheck", "cuda_topk_test", "*"), ("memcheck", "cuda_codec_test", "*"),
             ("memcheck", "cuda_gradients_test", "*Anywhere*:*FeedsBack*:*Positions*:*Adds*"),
             ("memcheck", "cuda_model_test", "*CrossEntropy*:*SwiGlu*:*RowsHave*:*Dropout*"),
             ("initcheck", "cuda_codec_test", "*"))
AGAIN_MAX = 3  # tests of a program


def memory_checker():
    return shutil.which("compute-sanitizer") or next((p for p in ("/usr/local/cuda/bin/compute-sanitizer",) if os.path.exists(p)), None)


def again(check, name, text):
    """What failed, or was under way when its program ended, once more by itself: under the memory checker, which names the kernel and
    the address, or at least with each launch waited for."""
    failed = list(dict.fromkeys(re.findall(r"\[  FAILED  \] (\S+)(?= \(|,)", text))) or re.findall(r"\[ RUN      \] (\S+)", text)[-1:]
    if check.gpu is None or check.on_cpu() or not failed:
        return
    tool = memory_checker()
    wrapped = [tool, "--tool", "memcheck", "--error-exitcode", "9", "--print-limit", "20"] if tool else []
    what = f"{name} again"
    done = check.run("again", [*wrapped, check.program(name), f"--gtest_filter={':'.join(failed[:AGAIN_MAX])}"], name=what,
                     env={"CUDA_LAUNCH_BLOCKING": "1"})
    if done is not None:
        check.add("unit", what, "passed" if done[0] == 0 else "failed", verdict(check, done[1]), done[1])


def verdict(check, text):
    summary = re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): .*", text)
    return summary[-1] if summary else check.read.last_failure(text)


def sanitizer(check, _):
    """compute-sanitizer over the tests of our own kernels."""
    tool = memory_checker()
    if tool is None or check.gpu is None:
        check.add("sanitizer", "compute-sanitizer", "skipped", "not installed here" if tool is None else "no GPU here")
        return
    chosen = [row for row in SANITIZED if check.program(row[1]) and not check.lacks_torch(row[1])]

    def run(row):
        kind, name, tests = row
        return check.run("sanitizer", [tool, "--tool", kind, "--error-exitcode", "9", "--print-limit", "20",
                                       check.program(name), f"--gtest_filter={tests}"], name=f"{kind} {name}")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, chosen))
    for (kind, name, _), done in zip(chosen, results):
        if done is None:
            continue
        check.add("sanitizer", f"{kind} {name}", "passed" if done[0] == 0 else "failed", verdict(check, done[1]), done[1])
