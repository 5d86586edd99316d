#!/usr/bin/env python3
"""How fast texts become tokens: swarmline data prepare beside PyPI's tokenizers, in turns, on the same cores.

    .deps/compare/bin/python bench/tokenizer/tokenizer_speed.py --swarmline build/ci/swarmline [--text FILE]

Both read the same file, cut at its paragraphs into documents, and write their tokens as uint16. Each round times one
after the other; printed is the best of each, and the median of the rounds' ratios. Without --text: the pages and
sources of this repository.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20


def own_text():
    files = sorted(path for suffix in ("*.md", "*.cc", "*.h", "*.py") for path in ROOT.glob(f"**/{suffix}")
                   if not {"build", ".deps", ".git"} & set(path.relative_to(ROOT).parts))
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


def documents_of(text, size=20_000):
    """Of about `size` characters, whole paragraphs."""
    documents, document = [], ""
    for paragraph in text.split("\n\n"):
        document += paragraph + "\n\n"
        if len(document) >= size:
            documents.append(document)
            document = ""
    return documents + ([document] if document else [])


def prepare(options, source, folder):
    command = [options.swarmline, "data", "prepare", source, "--out", folder, "--tokenizer", options.tokenizer, "--threads",
               str(options.threads)]
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def theirs(options, source, out):
    """In a process of its own, as the other; its start and reading the tokenizer count for both."""
    program = (
        "import json, array, sys\n"
        "from tokenizers import Tokenizer\n"
        "tokenizer = Tokenizer.from_file(sys.argv[1])\n"
        "end = tokenizer.token_to_id('<|endoftext|>')\n"
        "documents = [json.loads(line)['text'] for line in open(sys.argv[2], encoding='utf-8')]\n"
        "out = open(sys.argv[3], 'wb')\n"
        "for at in range(0, len(documents), 256):\n"
        "    for encoding in tokenizer.encode_batch(documents[at:at + 256], add_special_tokens=False):\n"
        "        out.write(array.array('H', encoding.ids + [end]).tobytes())\n")
    environment = dict(os.environ, RAYON_NUM_THREADS=str(options.threads), TOKENIZERS_PARALLELISM="true")
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", program, options.tokenizer, source, out], check=True, env=environment)
    return time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swarmline", default=str(ROOT / "build/ci/swarmline"))
    parser.add_argument("--tokenizer", default=str(ROOT / "tests/fixtures/tokenizer/gpt2.json"))
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8") if options.text else own_text()
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/texts.jsonl"
        with open(source, "w", encoding="utf-8") as file:
            for document in documents_of(text):
                file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
        mib = len(text.encode("utf-8")) / MIB
        times = []
        for number in range(options.rounds):
            ours = prepare(options, source, f"{folder}/out{number}")
            other = theirs(options, source, f"{folder}/theirs.bin")
            times.append((ours, other))
            print(f"round {number}: prepare {mib / ours:.1f} MiB/s, tokenizers {mib / other:.1f} MiB/s, ratio {other / ours:.2f}")
        shards = sorted(pathlib.Path(f"{folder}/out0").glob("tokens-*.bin"))
        same = b"".join(shard.read_bytes() for shard in shards) == pathlib.Path(f"{folder}/theirs.bin").read_bytes()
        print(f"{mib:.0f} MiB on {options.threads} threads: prepare {mib / min(t[0] for t in times):.1f} MiB/s, tokenizers "
              f"{mib / min(t[1] for t in times):.1f} MiB/s, median ratio {statistics.median(t[1] / t[0] for t in times):.2f}; "
              f"tokens {'the same' if same else 'DIFFER'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
