"""What the checks that compile share: flags, parallel runs, and a memory of what passed."""

import concurrent.futures
import hashlib
import json
import os
import subprocess


def compile_flags(root):
    """The flags that every source needs to be parsed."""
    flags = ["-std=c++20", f"-I{root / 'src'}", f"-I{root / 'include'}", '-DTILEWIRE_VERSION=""']
    return [*flags, "-isystem/usr/local/include/eigen3", "-isystem/usr/include/eigen3"]


def run_all(commands):
    """Runs {key: command} on all cores; yields (key, finished process) as they end."""

    def run(command):
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(run, command): key for key, command in commands.items()}
        for future in concurrent.futures.as_completed(running):
            yield running[future], future.result()


class CompileCache:
    """Remembers the sources that passed, with a digest of all that they include from the project."""

    def __init__(self, root, name, settings):
        self._root = root
        self._path = root / "build" / "lint" / f"{name}.json"
        self._settings = json.dumps(settings)
        try:
            self._passed = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._passed = {}

    def is_fresh(self, source):
        """True when the source passed and nothing changed since."""
        entry = self._passed.get(str(source))
        return entry is not None and entry["digest"] == self._digest(entry["files"])

    def remember(self, source):
        """Notes in build/lint that the source passed as it now is."""
        command = ["g++", "-MM", "-x", "c++", *compile_flags(self._root), str(source)]
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            names = listed.stdout.split(":", 1)[1].replace("\\\n", " ").split()
            self._passed[str(source)] = {"files": names, "digest": self._digest(names)}
            self._save()

    def _save(self):
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._passed), encoding="utf-8")

    def _digest(self, names):
        digest = hashlib.sha256(self._settings.encode())
        for name in names:
            try:
                with open(name, "rb") as file:
                    digest.update(file.read())
            except OSError:
                return None
        return digest.hexdigest()
