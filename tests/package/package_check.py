#!/usr/bin/env python3
"""The packages of `make package`, each tried as a stranger would, in a clean root: the wheel in a new virtual
environment with PyTorch, the tarball and the image on a Debian that has nothing but its base system.

usage: package_check.py PACKAGES      exit code 77: there are none
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

import installed

PACKAGES = Path(sys.argv.pop() if len(sys.argv) > 1 else "build/package").resolve()
SOURCE = Path(__file__).resolve().parents[2]
CLEAN_ROOT = SOURCE / ".deps/bookworm"
WHEEL_BYTES_MAX = 25_000_000
RUN_SECONDS_MAX = 600  # then something hangs
STEPS = 2
EXAMPLE = ("launch", "--example", "quickstart", "--set", f"run.steps={STEPS}")


def the_package(pattern):
    found = sorted(PACKAGES.glob(pattern))
    return found[-1] if found else None


WHEEL = the_package("swarmline-*-manylinux_*.whl")
TARBALL = the_package("swarmline-*-linux-x86_64.tar.gz")
IMAGE = the_package("swarmline-*-image.tar.gz")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=RUN_SECONDS_MAX, **options)


def elf_files(folder):
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


class Trains(unittest.TestCase):
    def check_binaries(self, folder):
        for path in elf_files(folder):
            with self.subTest(path=path.name):
                for entry in installed.runpaths(path):
                    self.assertTrue(entry.startswith("$ORIGIN"), entry)
                self.assertLessEqual(max(installed.versions(path, "GLIBC"), default=(0,)), installed.GLIBC_MOST)
                self.assertLessEqual(max(installed.versions(path, "GLIBCXX"), default=(0,)), installed.GLIBCXX_MOST)

    def check_training(self, what, *command, **options):
        """Runs the quickstart for a few steps, and prints how long the first one was waited for."""
        begun = time.monotonic()
        first = None
        with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, **options) as process:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if first is None and line.startswith("step 1/"):
                    first = time.monotonic() - begun
        output = "".join(lines)
        self.assertEqual(process.returncode, 0, output)
        self.assertIn(f"finished {STEPS} steps", output)
        self.assertIsNotNone(first, output)
        print(f"{what}: {first:.1f} s from the command to the first step, {time.monotonic() - begun:.1f} s in all", flush=True)
        return output


@unittest.skipUnless(WHEEL, "no wheel was made")
class Wheel(Trains):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(dir=PACKAGES, prefix="check.")
        cls.addClassCleanup(cls.temp.cleanup)
        cls.folder = Path(cls.temp.name)
        cls.environment = {"PATH": "/usr/bin:/bin", "HOME": cls.temp.name, "LC_ALL": "C.UTF-8",
                           **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))}}
        wheels = os.environ.get("SWARMLINE_WHEELS")
        cls.venv = cls.new_venv("with-torch")
        # What the CPU side of PyTorch needs, and no gigabytes of CUDA.
        cls.pip(cls.venv, "install", "--no-deps", "--require-hashes", "--requirement", SOURCE / "scripts/torch-cpu.txt",
                *(["--no-index", "--find-links", wheels] if wheels else []))
        begun = time.monotonic()
        cls.pip(cls.venv, "install", "--no-deps", "--no-index", WHEEL)
        print(f"wheel: {WHEEL.stat().st_size / 1e6:.1f} MB, installed in {time.monotonic() - begun:.1f} s", flush=True)

    @classmethod
    def new_venv(cls, name):
        done = run(sys.executable, "-m", "venv", cls.folder / name)
        assert done.returncode == 0, done.stderr
        return cls.folder / name

    @classmethod
    def pip(cls, venv, *arguments):
        done = run(venv / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments, env=cls.environment)
        assert done.returncode == 0, done.stdout + done.stderr

    def swarmline(self, venv, *arguments):
        return run(venv / "bin/swarmline", *arguments, env=self.environment, cwd=self.folder)

    def test_it_says_what_it_is(self):
        self.assertLessEqual(WHEEL.stat().st_size, WHEEL_BYTES_MAX)
        self.assertTrue(WHEEL.name.endswith("-py3-none-manylinux_2_35_x86_64.whl"), WHEEL.name)
        with zipfile.ZipFile(WHEEL) as wheel:
            metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            self.assertIn("Requires-Dist: torch==2.11.*", wheel.read(metadata).decode())
            self.assertFalse([name for name in wheel.namelist() if re.search(r"/lib(torch|c10|cu|nv)[^/]*\.so", name)])

    def test_its_binaries_fit_its_tag(self):
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(WHEEL) as wheel:
                wheel.extractall(folder)
            self.check_binaries(folder)
            program = Path(folder) / "swarmline/bin/swarmline"
            self.assertIn("$ORIGIN/../../torch/lib", installed.runpaths(program))
            self.assertLessEqual(installed.needed(program), installed.DECLARED)

    def test_it_trains(self):
        output = self.check_training("wheel", self.venv / "bin/swarmline", *EXAMPLE, "--name", "wheel", env=self.environment, cwd=self.folder)
        self.assertNotIn("error", output)
        module = run(self.venv / "bin/python", "-m", "swarmline", "version", env=self.environment)
        self.assertEqual(module.stdout, self.swarmline(self.venv, "version").stdout)

    def test_it_does_not_import_torch(self):
        code = "import os, sys, swarmline.start as start; os.execv = lambda *a: print('torch' in sys.modules, os.environ.get('LD_LIBRARY_PATH')); start.main()"
        done = run(self.venv / "bin/python", "-c", code, env=self.environment)
        self.assertEqual(done.stdout.split(), ["False", "None"], done.stderr)

    def test_torch_may_be_elsewhere(self):
        venv = self.new_venv("torch-elsewhere")
        self.pip(venv, "install", "--no-deps", "--no-index", WHEEL)
        elsewhere = next((self.venv / "lib").glob("python3*/site-packages"))
        (next((venv / "lib").glob("python3*/site-packages")) / "elsewhere.pth").write_text(f"{elsewhere}\n")
        done = self.swarmline(venv, "version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("libtorch 2.11", done.stdout)

    def test_without_torch_or_with_another_it_says_what_to_install(self):
        venv = self.new_venv("without-torch")
        self.pip(venv, "install", "--no-deps", "--no-index", WHEEL)
        done = self.swarmline(venv, "version")
        self.assertEqual(done.returncode, 2)
        self.assertIn("found no PyTorch in", done.stderr)
        self.assertIn("pip install 'torch==2.11.*'", done.stderr)
        site = next((venv / "lib").glob("python3*/site-packages"))
        (site / "torch/lib").mkdir(parents=True)
        (site / "torch/lib/libtorch_cpu.so").touch()
        (site / "torch-2.15.0.dist-info").mkdir()
        (site / "torch-2.15.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n")
        done = self.swarmline(venv, "version")
        self.assertEqual(done.returncode, 2)
        self.assertIn("found PyTorch 2.15.0, expected 2.11", done.stderr)


@unittest.skipUnless(TARBALL, "no tarball was made")
@unittest.skipUnless(CLEAN_ROOT.exists() and os.geteuid() == 0, "needs root, and the clean Debian of scripts/package")
class Tarball(Trains):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(dir=PACKAGES, prefix="check.")
        cls.addClassCleanup(cls.temp.cleanup)
        cls.root = Path(cls.temp.name) / "root"
        shutil.copytree(CLEAN_ROOT, cls.root, symlinks=True, ignore=lambda folder, names: names if Path(folder).name in ("dev", "proc", "sys") else [])
        (cls.root / "dev/null").touch()  # a plain file does
        begun = time.monotonic()
        with tarfile.open(TARBALL) as tarball:
            tarball.extractall(cls.root / "srv", filter="fully_trusted")
        cls.tree = next((cls.root / "srv").iterdir())
        size = sum(path.stat().st_size for path in cls.tree.rglob("*") if path.is_file())
        print(f"tarball: {TARBALL.stat().st_size / 1e6:.0f} MB, {size / 1e6:.0f} MB unpacked in {time.monotonic() - begun:.1f} s", flush=True)

    def inside(self, *command):
        """In a mount namespace, so that /proc goes with the command."""
        enter = 'mount -t proc proc "$0/proc" && root=$0 && exec chroot "$root" "$@"'
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, self.root, *command]

    def test_its_binaries_fit_older_systems(self):
        self.check_binaries(self.tree)
        self.assertLessEqual(installed.needed(self.tree / "bin/swarmline"), installed.DECLARED)
        self.assertTrue(any((self.tree / "share/swarmline/licenses").iterdir()))

    def test_it_trains_on_a_bare_system(self):
        self.assertFalse(list((self.root / "usr/include").glob("c++/*")))
        for name in ("libprotobuf.so.32", "libspdlog.so.1.10"):
            self.assertFalse(list((self.root / "usr/lib").rglob(name)), name)
        moved = self.root / "home/some where"
        moved.parent.mkdir(exist_ok=True)
        self.tree.rename(moved)
        self.addCleanup(moved.rename, self.tree)
        output = self.check_training("tarball", *self.inside("/bin/sh", "-c", 'cd /tmp && exec "$0" "$@"', "/home/some where/bin/swarmline", *EXAMPLE))
        self.assertIn("it takes /home/some where/share/swarmline/text/swarmline.txt", output)


@unittest.skipUnless(IMAGE, "no image was made")
@unittest.skipUnless(shutil.which("buildah") and os.geteuid() == 0, "needs root and buildah")
class Image(Trains):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(dir=PACKAGES, prefix="check.")
        cls.addClassCleanup(cls.temp.cleanup)
        cls.storage = ["--root", f"{cls.temp.name}/storage", "--runroot", f"{cls.temp.name}/run", "--storage-driver", "vfs"]
        plain = Path(cls.temp.name) / "image.tar"  # docker load and podman load take it compressed
        with gzip.open(IMAGE) as packed, open(plain, "wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        for name in ("check", "peer"):
            done = run("buildah", *cls.storage, "from", "--name", name, f"docker-archive:{plain}")
            assert done.returncode == 0, done.stderr
            cls.addClassCleanup(run, "buildah", *cls.storage, "rm", name)
        print(f"image: {IMAGE.stat().st_size / 1e6:.0f} MB", flush=True)

    def settings(self):
        return json.loads(run("buildah", *self.storage, "inspect", "check").stdout)["OCIv1"]["config"]

    def start(self, container, *arguments):
        """As an engine starts the container: the entry point with these arguments. What it writes goes to a file."""
        output = tempfile.TemporaryFile("w+")
        self.addCleanup(output.close)
        process = subprocess.Popen(["buildah", *self.storage, "run", "--isolation", "chroot", container, "--", *self.settings()["Entrypoint"], *arguments],
                                   stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(process.kill)
        return process, output

    @staticmethod
    def written(output):
        output.seek(0)
        return output.read()

    def test_a_container_joins_by_one_line(self):
        share = "/opt/swarmline/share/swarmline"
        coordinator, said = self.start(
            "check", "coordinator", f"{share}/configs/quickstart.toml", "--listen", "127.0.0.1:0", "--set", f'data.files=["{share}/text/swarmline.txt"]',
            "--set", "run.name=joined", "--set", f"run.steps={STEPS}", "--set", "pipeline.stages=2", "--set", "pipeline.peers=1")
        end = time.monotonic() + RUN_SECONDS_MAX
        while not (join := re.search(r"swarmline peer --join '([^']+)'", self.written(said))):
            self.assertIsNone(coordinator.poll(), self.written(said))
            self.assertLess(time.monotonic(), end, self.written(said))
            time.sleep(0.2)
        peers = [self.start("peer", "peer", "--join", join[1], "--data-root", f"{share}/text", "--name", name) for name in ("one", "other")]
        for process, output in ((coordinator, said), *peers):
            self.assertEqual(process.wait(RUN_SECONDS_MAX), 0, self.written(output) + self.written(said))
        self.assertIn(f"finished {STEPS} steps", self.written(said))

    def test_it_starts_the_program_as_no_root(self):
        found = self.settings()
        self.assertEqual(found["Entrypoint"], ["/opt/swarmline/bin/swarmline"])
        self.assertEqual(found["User"], "swarmline")
        self.assertEqual(found["WorkingDir"], "/work")
        self.assertIn("org.opencontainers.image.version", found["Labels"])

    def test_it_trains(self):
        self.check_training("image", "buildah", *self.storage, "run", "--isolation", "chroot", "check", "--", "/opt/swarmline/bin/swarmline", *EXAMPLE)
        who = run("buildah", *self.storage, "run", "--isolation", "chroot", "check", "--", "id", "--user")
        self.assertEqual(who.stdout.strip(), "1000", who.stderr)


if __name__ == "__main__":
    if not (WHEEL or TARBALL or IMAGE):
        print(f"skipped: there are no packages in {PACKAGES}; make package makes them")
        sys.exit(77)
    unittest.main(verbosity=2)
