"""Finds Pulumi's CLI with its Python language host, or gets them, and prints the folder to put on PATH.

    export PATH="$(python3 tools/setup/get_pulumi.py --cache DIR):$PATH"

In this order: what is on PATH, if recent enough; what an earlier run put into DIR;
the official release of the pinned version, with its checksum;
a build from the Go module in tools/pulumi, pinned by its go.sum, with our own language host (tools/langhost)
beside it. Another such run at the same time is waited for.
``--announce`` does nothing: it prints what would be got, and nothing where all is there.

Standard library only and no import of ours: it runs before anything is installed.
Stdout holds the folder alone; what is done is told on stderr. Exit status 1: no Pulumi, and why.

Environment: KIMI_INFRA_CACHE, the default of DIR; KIMI_INFRA_PULUMI_RELEASES, the address of a mirror of the
release's files.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import http.client
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "tools" / "pulumi"
LAY = ROOT / "tools" / "langhost" / "lay.py"
CLI, HOST = "pulumi", "pulumi-language-python"

RELEASES = "https://get.pulumi.com/releases/sdk"
CHECKSUMS = "https://github.com/pulumi/pulumi/releases/download/v{version}"
MIRROR = "KIMI_INFRA_PULUMI_RELEASES"
PINNED_SUMS = MODULE / "checksums.txt"
"""Where present: checksums in the form of the published file, to be trusted before it."""

PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
GO_NEEDED = (1, 21)
"""The first Go that fetches the toolchain which a go.mod asks for."""

ANSWER_SECONDS = 15.0
"""For a server to accept a connection, and to send the next bytes."""
TOLD_EVERY = 10.0
"""Seconds between two lines of progress."""
ATTEMPTS = 4
PAUSE = 1.0
"""Seconds before the second attempt; each further one waits twice as long."""
BLOCK = 1 << 18  # bytes
TOO_FAR = 416
"""HTTP status: what we have is no beginning of what there is."""
SERVER_ERRORS = 500
"""HTTP statuses from here on may pass."""


class UnavailableError(Exception):
    """This way leads nowhere on this machine; the next one may."""


class RefusedError(Exception):
    """What came is not what was published: nothing is installed, no other way is tried."""


@dataclass(frozen=True)
class Pins:
    """Versions, each read from the file that pins it."""

    release: str
    """What is got: the Go module's version, which is the CLI's."""
    minimum: str
    """The oldest CLI that will do: the version of the Python SDK, which it must understand."""


@dataclass(frozen=True)
class Place:
    """Where the pinned version is kept."""

    cache: Path
    release: str

    @property
    def folder(self) -> Path:
        """All of one version; appears whole or not at all."""
        return self.cache / f"pulumi-{self.release}"

    @property
    def programs(self) -> Path:
        """The folder for PATH."""
        return self.folder / "bin"


def say(text: str) -> None:
    """Tell what is done."""
    print(text, file=sys.stderr, flush=True)


def number(version: str) -> tuple[int, ...]:
    """A version for comparison; what follows a dash or plus is left out."""
    return tuple(int(part) for part in re.split(r"[-+]", version.strip().lstrip("v"))[0].split("."))


def pins() -> Pins:
    """Read the pinned versions.

    Raises:
        UnavailableError: a file does not pin what it should.
    """
    module = find(MODULE / "go.mod", r"^\s*github\.com/pulumi/pulumi/pkg/v3 v([\d.]+)")
    return Pins(release=module, minimum=find(ROOT / "pyproject.toml", r'^\s*"pulumi==([\d.]+)"'))


def find(path: Path, pattern: str) -> str:
    """The one group of a pattern in a file."""
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise UnavailableError(f"{path}: does not pin pulumi")
    return found.group(1)


def version_of(program: Path) -> str | None:
    """The version that a pulumi prints; None if it does not run."""
    asked, env = [str(program), "version"], {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        told = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return told.strip().lstrip("v") if re.fullmatch(r"v?\d+\.\d+\.\d+\S*\s*", told) else None


def on_path(minimum: str, place: Place) -> Path | None:
    """The folder of the pulumi on PATH, if it will do."""
    found = shutil.which(CLI)
    if found is None or Path(found).resolve() == (place.programs / CLI).resolve():
        return None
    version = version_of(Path(found))
    # The engine looks for the language host on PATH and beside itself.
    beside = os.pathsep.join([str(Path(found).resolve().parent), os.environ.get("PATH", "")])
    if version is None or number(version) < number(minimum):
        say(f"{found} is {version or 'of an unknown version'}; {minimum} or later is needed.")
    elif shutil.which(HOST, path=beside) is None:
        say(f"{found} has no {HOST} beside it.")
    else:
        return Path(found).parent
    return None


def is_kept(place: Place) -> bool:
    """Say whether an earlier run has got the pinned version."""
    return os.access(place.programs / CLI, os.X_OK)


def announcement(pinned: Pins, place: Place) -> str:
    """What a run would get; empty where all is there."""
    if is_kept(place) or on_path(pinned.minimum, place) is not None:
        return ""
    return (
        f"No pulumi {pinned.minimum} or later with its Python language host on PATH: "
        f"the official release {pinned.release} is put into {place.folder}; where it cannot be had, "
        "it is built from its Go module: about 6 minutes on two cores, and 3 GB in Go's own caches."
    )


def archive_name(release: str) -> str:
    """The release's file for this machine.

    Raises:
        UnavailableError: there is none.
    """
    machines = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}
    systems = {"Linux": "linux", "Darwin": "darwin"}
    system, machine = platform.system(), platform.machine()
    if system not in systems or machine not in machines:
        raise UnavailableError(f"no release for {system} on {machine}")
    return f"pulumi-v{release}-{systems[system]}-{machines[machine]}.tar.gz"


def from_release(place: Place, new: Path) -> None:
    """Put the official release into a new folder.

    Raises:
        UnavailableError: it cannot be had.
        RefusedError: it is not what was published.
    """
    name = archive_name(place.release)
    mirror = os.environ.get(MIRROR, "").rstrip("/")
    downloads = place.cache / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    wanted = checksum(name, mirror or CHECKSUMS.format(version=place.release), downloads, place.release)
    archive = downloads / name
    url = f"{mirror or RELEASES}/{name}"
    resumed = archive.exists()
    say(f"Download {url}")
    download(url, archive)
    if resumed and digest(archive) != wanted:  # an earlier run's beginning may have been of another file
        archive.unlink()
        download(url, archive)
    try:
        require(archive, wanted, url)
        unpack(archive, new / "bin")
    finally:
        archive.unlink()


def checksum(name: str, base: str, downloads: Path, release: str) -> str:
    """The published SHA-256 of one of the release's files.

    Raises:
        UnavailableError: it cannot be had, and what cannot be checked is not installed.
    """
    if PINNED_SUMS.exists():
        return sum_of(name, PINNED_SUMS.read_text(encoding="utf-8"), str(PINNED_SUMS))
    url = f"{base}/pulumi-{release}-checksums.txt"
    file = downloads / f"pulumi-{release}-checksums.txt"
    file.unlink(missing_ok=True)
    download(url, file)
    try:
        return sum_of(name, file.read_text(encoding="utf-8", errors="replace"), url)
    finally:
        file.unlink()


def sum_of(name: str, text: str, where: str) -> str:
    """One file's line of a list of SHA-256 sums."""
    found = re.search(rf"^([0-9a-fA-F]{{64}})\s+\*?{re.escape(name)}$", text, re.MULTILINE)
    if found is None:
        raise UnavailableError(f"{where} has no SHA-256 of {name}; what cannot be checked is not installed")
    return found.group(1).lower()


def digest(path: Path) -> str:
    """A file's SHA-256."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def require(archive: Path, wanted: str, url: str) -> None:
    """Refuse a file whose checksum is not the published one."""
    got = digest(archive)
    if got != wanted:
        raise RefusedError(
            f"{url}: wrong checksum, so nothing was installed: published is {wanted}, got {got}; "
            f"something on the way changes the file: look at proxies and {MIRROR}, then run again"
        )


def unpack(archive: Path, folder: Path) -> None:
    """Take the programs out of a release; its one folder's plain files are all of them."""
    folder.mkdir(parents=True)
    with tarfile.open(archive, "r:gz") as packed:
        for member in packed:
            parts = Path(member.name).parts
            content = packed.extractfile(member) if member.isreg() else None
            if content is not None and len(parts) == 2 and parts[0] == "pulumi":
                target = folder / Path(parts[1]).name
                with content, target.open("wb") as file:
                    shutil.copyfileobj(content, file, BLOCK)
                target.chmod(0o755)


def download(url: str, target: Path) -> None:
    """Fetch a file, going on after a cut connection where it stopped.

    Raises:
        UnavailableError: the server cannot be reached, does not have it, or cuts it off again and again.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            fetch(url, target)
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"{error.code} {error.reason}"
            if error.code == TOO_FAR:
                target.unlink()
            elif error.code < SERVER_ERRORS:
                raise UnavailableError(f"{url}: {reason}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = str(error.reason if isinstance(error, urllib.error.URLError) else error)
            # A server that was never reached will not be reached a second later.
            if isinstance(error, urllib.error.URLError) and not target.exists():
                raise UnavailableError(f"{url}: {reason}") from error
        else:
            return
        have = target.stat().st_size if target.exists() else 0
        say(f"  stopped after {have:,} bytes: {reason}")
    raise UnavailableError(f"{url}: gave up after {ATTEMPTS} attempts")


def fetch(url: str, target: Path) -> None:
    """Fetch a file, or the rest of it, in one connection."""
    have = target.stat().st_size if target.exists() else 0
    asked = {"User-Agent": "kimi-infra", **({"Range": f"bytes={have}-"} if have else {})}
    request = urllib.request.Request(url, headers=asked)  # noqa: S310  https, or the operator's mirror
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
        begins, total = extent(answer)
        if begins not in {0, have}:
            raise ConnectionError(f"asked for bytes from {have}, got them from {begins}")
        with target.open("ab" if begins else "wb") as file:
            copy(answer, file, total)
    size = target.stat().st_size
    if total is not None and size != total:
        raise ConnectionError(f"connection cut at byte {size:,} of {total:,}")


def extent(answer: http.client.HTTPResponse) -> tuple[int, int | None]:
    """The first byte that an answer holds, and the size of the whole file."""
    partial = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    if answer.status == http.client.PARTIAL_CONTENT and partial:
        return int(partial.group(1)), int(partial.group(2))
    length = answer.headers.get("Content-Length")
    return 0, int(length) if length else None


def copy(answer: http.client.HTTPResponse, file: IO[bytes], total: int | None) -> None:
    """Write what comes, with a line of progress now and then."""
    told = time.monotonic()
    while block := answer.read(BLOCK):
        file.write(block)
        if time.monotonic() - told >= TOLD_EVERY:
            told = time.monotonic()
            say(f"  {file.tell() >> 20} MiB" + (f" of {total >> 20}" if total else ""))


def from_module(place: Place, new: Path) -> None:
    """Build the CLI from its Go module into a new folder.

    Raises:
        UnavailableError: there is no Go, or the build fails.
    """
    version = go_version()
    say(f"Build pulumi {place.release} with Go {'.'.join(map(str, version))}: about 6 minutes on two cores.")
    target = new / "bin" / CLI
    target.parent.mkdir(parents=True)
    stamp = f"-s -w -X {VERSION_VARIABLE}=v{place.release}"
    # As upstream's own release is built.
    options = ("-trimpath", "-tags", "osusergo,grpcnotrace", "-ldflags", stamp, "-o", str(target))
    # Without cgo no C compiler is needed; -mod=readonly holds the build to go.sum.
    env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    log = new / "build.log"
    with log.open("wb") as output:
        status = watch(("nice", "go", "build", *options, PACKAGE), env, output)
    if status:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise UnavailableError(f"go build ended with exit status {status}:\n{tail}")
    log.unlink()


def go_version() -> tuple[int, ...]:
    """The version of the Go on PATH.

    Raises:
        UnavailableError: there is none that will do.
    """
    remedy = f"install Go {'.'.join(map(str, GO_NEEDED))} or later from https://go.dev/dl and put it on PATH"
    found = shutil.which("go")
    if found is None:
        raise UnavailableError(f"no go on PATH; {remedy}")
    # In our module the go command would already fetch the toolchain; elsewhere it tells its own version.
    told = subprocess.run([found, "version"], cwd="/", capture_output=True, text=True, check=False).stdout
    version = re.match(r"go version go(\d+)\.(\d+)(?:\.(\d+))?", told)
    if version is None or (numbers := tuple(int(part or 0) for part in version.groups())) < GO_NEEDED:
        raise UnavailableError(f"{found} is {told.strip() or 'no Go that runs'}; {remedy}")
    return numbers


def watch(command: tuple[str, ...], env: dict[str, str], output: IO[bytes]) -> int:
    """Run a command with a line of progress now and then; it ends when we do."""
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=MODULE,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a group of its own, so that its compilers end with it
    )
    try:
        while True:
            try:
                return process.wait(TOLD_EVERY)
            except subprocess.TimeoutExpired:
                say(f"  ... {time.monotonic() - began:.0f} s: go build")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def install(place: Place) -> None:
    """Get the pinned version by the first way that works.

    Raises:
        UnavailableError: none does; the message names each with its reason.
        RefusedError: what came is not what was published.
    """
    reasons = []
    for title, get in (("official release", from_release), ("build from the Go module", from_module)):
        try:
            with new_folder(place) as new:
                get(place, new)
                accept(place, new)
        except UnavailableError as error:
            say(f"No {title}: {error}")
            reasons.append(f"  {title}: {error}")
        else:
            return
    raise UnavailableError(
        f"Pulumi {place.release} could not be had:\n" + "\n".join(reasons) + "\nEither remedy one of these, "
        "or install it yourself (https://www.pulumi.com/docs/install) so that it is on PATH"
    )


@contextmanager
def new_folder(place: Place) -> Iterator[Path]:
    """A folder beside the final one, gone afterwards; only one run at a time comes here."""
    new = place.folder.with_name(f"{place.folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # a killed run's
    new.mkdir()
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def accept(place: Place, new: Path) -> None:
    """Make a new folder the final one, if its pulumi runs and is what it should be."""
    got = version_of(new / "bin" / CLI)
    if got != place.release:
        raise UnavailableError(f"its pulumi says version {got}, not {place.release}")
    shutil.rmtree(place.folder, ignore_errors=True)
    new.rename(place.folder)


@contextmanager
def alone(place: Place) -> Iterator[None]:
    """Hold off other runs that share the cache."""
    place.cache.mkdir(parents=True, exist_ok=True)
    with (place.cache / "pulumi.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another set-up is getting pulumi: waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def folder_for_path(pinned: Pins, place: Place) -> Path:
    """Find or get pulumi; return its folder."""
    if found := on_path(pinned.minimum, place):
        return found
    with alone(place):
        if not is_kept(place):
            install(place)
        subprocess.run([sys.executable, str(LAY), str(place.programs)], check=True)
    return place.programs


def main() -> None:
    """Print the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.environ.get("KIMI_INFRA_CACHE") or "~/.cache/kimi-infra"
    parser.add_argument(
        "--cache", type=Path, default=Path(default), metavar="DIR", help=f"default: {default}"
    )
    parser.add_argument("--announce", action="store_true", help="only say what would be got")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a build ends with us
    try:
        pinned = pins()
        # Without links in it: the engine compares this folder with its own.
        place = Place(chosen.cache.expanduser().resolve(), pinned.release)
        print(announcement(pinned, place) if chosen.announce else folder_for_path(pinned, place))
    except KeyboardInterrupt:
        sys.exit(130)
    except (UnavailableError, RefusedError, OSError) as error:  # OSError: the cache's disk
        sys.exit(str(error))


if __name__ == "__main__":
    main()
