#!/usr/bin/env python3
"""What `swarmline fleet init` writes, checked by the tools of those who read it: sh and bash, systemd-analyze, YAML, the
schemas of Kubernetes, cloud-init and SkyPilot. What is not installed is left out, and said.

usage: check_fleet_files.py SWARMLINE SOURCES
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM, SOURCES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
TARGETS = ("skypilot", "kubernetes", "slurm", "cloud-init", "systemd")
left_out = set()
problems = []


def has(module):
    if importlib.util.find_spec(module):
        return True
    left_out.add(f"Python's {module}")
    return False


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def expect(ok, what):
    if not ok:
        problems.append(what)


def check_script(path):
    code, said = run("bash" if open(path).readline().strip().endswith("bash") else "sh", "-n", path)
    expect(code == 0, f"{path}: {said}")
    expect(os.access(path, os.X_OK), f"{path} can't be run")


def check_unit(path):
    if not shutil.which("systemd-analyze"):
        return left_out.add("systemd-analyze")
    # The program it names need not be here: verify would say so.
    with tempfile.TemporaryDirectory() as folder:
        name = re.sub("@", "@0", os.path.basename(path)) if "@" in path else os.path.basename(path)
        text = re.sub(r"/(usr/local|opt/swarmline)/bin/swarmline", "/bin/true", open(path).read())
        unit = os.path.join(folder, os.path.basename(path))
        open(unit, "w").write(text)
        code, said = run("systemd-analyze", "verify", "--recursive-errors=no", os.path.join(folder, name))
        ours = [line for line in said.splitlines() if "swarmline" in line]
        expect(not ours and (code == 0 or "swarmline" not in said), f"{path}: {said}")


def check_yaml(path):
    if not has("yaml"):
        return
    import yaml
    documents = list(yaml.safe_load_all(open(path)))
    expect(all(isinstance(document, dict) for document in documents), f"{path}: not all of it is mappings")
    if "cloud-init" in path:
        for written in documents[0]["write_files"]:
            if written["path"].endswith(".service"):
                unit = path + ".service"
                open(unit, "w").write(written["content"])
                check_unit(unit)
        if shutil.which("cloud-init"):
            code, said = run("cloud-init", "schema", "--config-file", path)
            expect(code == 0, f"{path}: {said}")
        else:
            left_out.add("cloud-init")
    elif documents and "apiVersion" in documents[0]:
        if has("kubernetes_validate"):
            import kubernetes_validate
            for document in documents:
                kubernetes_validate.validate(document, "1.29", strict=True)
    elif has("sky"):
        import sky
        sky.Task.from_yaml(path)


def main():
    for target in TARGETS:
        for prices in ([], ["--prices", os.path.join(SOURCES, "configs/fleets/t4_and_a100.toml")]):
            with tempfile.TemporaryDirectory() as temp:
                out = os.path.join(temp, "fleet")
                config = os.path.join(SOURCES, "configs/gpt2_small.toml")
                code, said = run(PROGRAM, "fleet", "init", config, "--target", target, "--out", out, *prices)
                expect(code == 0, f"{target}: {said}")
                if target == TARGETS[0]:
                    code, said = run(PROGRAM, "fleet", "init", config, "--target", target, "--out", out)
                    expect(code == 2 and "not empty" in said, f"{target}, a second time: {said}")
                for name in sorted(os.listdir(out)):
                    path = os.path.join(out, name)
                    if name.endswith((".sh", ".sbatch")):
                        check_script(path)
                    elif name.endswith(".service"):
                        check_unit(path)
                    elif name.endswith(".yaml"):
                        check_yaml(path)
    if left_out:
        print("not installed, so not asked: " + ", ".join(sorted(left_out)))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
