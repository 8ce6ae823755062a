"""Getting Pulumi's CLI: from PATH, from a publisher on loopback, built by a stand-in for go."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.architecture import sources
from tools.setup import get_pulumi

pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("machine", "server")]

PINNED = get_pulumi.pins()
ARCHIVE = get_pulumi.archive_name(PINNED.release)
SUMS = f"pulumi-{PINNED.release}-checksums.txt"
PROGRAM = sources.ROOT / "tools/setup/get_pulumi.py"
TOOLS = ("sh", "nice", "cat", "chmod", "mkdir", "sleep", "dirname", "readlink")
"""What a machine has that has neither pulumi nor go."""


def a_release(version: str = PINNED.release) -> bytes:
    """An archive in the form of the official release, padded so that it can be cut in the middle."""
    files = {
        "pulumi/pulumi": f"#!/bin/sh\necho v{version}\n".encode(),
        "pulumi/pulumi-language-python": b"#!/bin/sh\necho official\n",
        "pulumi/padding": os.urandom(200_000),
        "../outside": b"must not be unpacked",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@dataclass(kw_only=True)
class Server:
    """The publisher: what it has, what was asked, and how it misbehaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Name and Range of each request."""
    cuts: list[int] = field(default_factory=list)
    """Each answer for the archive breaks off after so many bytes of its own, one after the other."""
    resumes: bool = True
    url: str = ""

    def publish(self, content: bytes, *, checksum: str | None = None) -> None:
        """Have the archive, with its list of checksums."""
        checksum = checksum or hashlib.sha256(content).hexdigest()
        listed = f"{'0' * 64}  pulumi-v0.0.1-linux-x64.tar.gz\n{checksum}  {ARCHIVE}\n"
        self.files |= {ARCHIVE: content, SUMS: listed.encode()}

    def ranges(self) -> list[str | None]:
        """The Range of each request for the archive."""
        return [wanted for name, wanted in self.asked if name == ARCHIVE]


def handler_of(server: Server) -> type[BaseHTTPRequestHandler]:
    """Requests to one server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range")
            server.asked.append((name, wanted))
            content = server.files.get(name)
            if content is None:
                self.send_error(404)
                return
            begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.resumes else 0
            if begin >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            cut = server.cuts.pop(0) if name == ARCHIVE and server.cuts else None
            self.wfile.write(content[begin:] if cut is None else content[begin : begin + cut])

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A mirror on loopback that has nothing yet."""
    publisher = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(publisher)) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
        thread.start()
        publisher.url = f"http://127.0.0.1:{listener.server_port}"
        monkeypatch.setenv(get_pulumi.MIRROR, publisher.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(get_pulumi, "PAUSE", 0.0)
        yield publisher
        listener.shutdown()
        thread.join()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PATH with one folder, in which there is neither pulumi nor go."""
    folder = tmp_path / "machine"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(
            next(p for p in (Path("/usr/bin", tool), Path("/bin", tool)) if p.exists())
        )
    (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def place(tmp_path: Path) -> get_pulumi.Place:
    """An empty cache."""
    return get_pulumi.Place(tmp_path / "cache", PINNED.release)


def script(path: Path, text: str) -> None:
    """Lay a program."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def lay_go(machine: Path, *, build: str, version: str = "1.26.8") -> None:
    """Lay a go that tells a version and, on build, runs a script that finds its target in $out."""
    script(
        machine / "go",
        f"""[ "$1" = version ] && {{ echo "go version go{version} linux/amd64"; exit; }}
echo "$GOFLAGS" "$@" >> {machine}/go.asked
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
{build}""",
    )


BUILDS = f'printf "#!/bin/sh\\necho v{PINNED.release}\\n" > "$out"; chmod 755 "$out"'


def left(place: get_pulumi.Place) -> list[str]:
    """What lies in the cache, save the lock."""
    found = [*place.cache.glob("*"), *place.cache.glob("downloads/*")]
    return sorted({path.name for path in found} - {"pulumi.lock", "downloads"})


def test_the_release_is_installed_with_its_own_language_host(server: Server, place: get_pulumi.Place) -> None:
    """A good archive becomes the folder for PATH; the official language host stays, nothing else is left."""
    server.publish(a_release())
    folder = get_pulumi.folder_for_path(PINNED, place)
    assert folder == place.cache / f"pulumi-{PINNED.release}" / "bin"
    assert get_pulumi.version_of(folder / "pulumi") == PINNED.release
    assert not (folder / "pulumi-language-python").is_symlink()
    assert left(place) == [f"pulumi-{PINNED.release}"]
    assert sorted(path.name for path in place.folder.iterdir()) == ["bin"]
    assert sorted(path.name for path in folder.iterdir()) == ["padding", "pulumi", "pulumi-language-python"]


def test_a_second_run_asks_nobody(server: Server, place: get_pulumi.Place) -> None:
    """What was got once is used again without a request, and there is nothing to announce any more."""
    server.publish(a_release())
    assert str(place.folder) in get_pulumi.announcement(PINNED, place)
    get_pulumi.folder_for_path(PINNED, place)
    server.asked.clear()
    assert get_pulumi.folder_for_path(PINNED, place) == place.programs
    assert server.asked == []
    assert get_pulumi.announcement(PINNED, place) == ""


def test_a_wrong_checksum_is_refused(server: Server, machine: Path, place: get_pulumi.Place) -> None:
    """Another archive than the published one is not installed, and not built around either."""
    lay_go(machine, build=BUILDS)
    server.publish(a_release(), checksum="a" * 64)
    with pytest.raises(
        get_pulumi.RefusedError, match=f"{ARCHIVE}: wrong checksum.*published is a{{64}}, got"
    ):
        get_pulumi.folder_for_path(PINNED, place)
    assert left(place) == []
    assert not (machine / "go.asked").exists()


@pytest.mark.parametrize("missing", [SUMS, ARCHIVE])
def test_what_is_not_published_is_built(
    server: Server,
    machine: Path,
    place: get_pulumi.Place,
    missing: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A 404 for the archive or its checksums is said at once, and the build comes next."""
    server.publish(a_release())
    del server.files[missing]
    lay_go(machine, build=BUILDS)
    folder = get_pulumi.folder_for_path(PINNED, place)
    assert f"No official release: {server.url}/{missing}: 404" in capsys.readouterr().err
    assert get_pulumi.version_of(folder / "pulumi") == PINNED.release
    assert [name for name, _ in server.asked].count(missing) == 1


def test_an_archive_without_a_checksum_is_not_installed(server: Server, place: get_pulumi.Place) -> None:
    """A list that does not name this machine's archive proves nothing: it is not even downloaded."""
    server.publish(a_release())
    server.files[SUMS] = b"f" * 64 + b"  another.tar.gz\n"
    with pytest.raises(get_pulumi.UnavailableError, match=f"has no SHA-256 of {ARCHIVE}"):
        get_pulumi.folder_for_path(PINNED, place)
    assert server.ranges() == []


def test_a_pinned_checksum_goes_before_the_published_one(
    server: Server, place: get_pulumi.Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the tree holds a list of checksums, archive and list changed together are refused."""
    pinned = tmp_path / "checksums.txt"
    pinned.write_text(f"{'b' * 64}  {ARCHIVE}\n", encoding="utf-8")
    monkeypatch.setattr(get_pulumi, "PINNED_SUMS", pinned)
    server.publish(a_release())
    with pytest.raises(get_pulumi.RefusedError, match=r"published is b{64}"):
        get_pulumi.folder_for_path(PINNED, place)


def test_a_cut_connection_is_resumed(server: Server, place: get_pulumi.Place) -> None:
    """Cut twice in the middle, the archive is completed from where it stopped, and is whole."""
    content = a_release()
    server.publish(content)
    server.cuts = [70_000, 50_000]
    get_pulumi.folder_for_path(PINNED, place)
    assert server.ranges() == [None, "bytes=70000-", "bytes=120000-"]
    assert get_pulumi.is_kept(place)


def test_a_server_that_cannot_resume_is_asked_for_all(server: Server, place: get_pulumi.Place) -> None:
    """An answer with the whole archive, where the rest was asked for, replaces what was there."""
    server.publish(a_release())
    server.cuts, server.resumes = [70_000], False
    get_pulumi.folder_for_path(PINNED, place)
    assert server.ranges() == [None, "bytes=70000-"]
    assert get_pulumi.is_kept(place)


def test_the_beginning_of_a_killed_run_is_used(server: Server, place: get_pulumi.Place) -> None:
    """What an earlier run had got of the same archive is not fetched again."""
    content = a_release()
    server.publish(content)
    (place.cache / "downloads").mkdir(parents=True)
    (place.cache / "downloads" / ARCHIVE).write_bytes(content[:1000])
    get_pulumi.folder_for_path(PINNED, place)
    assert server.ranges() == ["bytes=1000-"]


@pytest.mark.parametrize("size", [1000, 400_000], ids=["shorter", "longer"])
def test_the_beginning_of_another_file_is_dropped(server: Server, place: get_pulumi.Place, size: int) -> None:
    """A beginning that does not lead to the published checksum costs one more download, not the release."""
    server.publish(a_release())
    (place.cache / "downloads").mkdir(parents=True)
    (place.cache / "downloads" / ARCHIVE).write_bytes(b"x" * size)
    get_pulumi.folder_for_path(PINNED, place)
    assert server.ranges() == [f"bytes={size}-", None]
    assert get_pulumi.is_kept(place)


def test_a_connection_that_is_cut_again_and_again_ends(server: Server, place: get_pulumi.Place) -> None:
    """The attempts are bounded; nothing is installed, and the beginning is kept for the next run."""
    server.publish(a_release())
    server.cuts = [100] * 20
    with pytest.raises(get_pulumi.UnavailableError, match="gave up after 4 attempts"):
        get_pulumi.folder_for_path(PINNED, place)
    assert left(place) == [ARCHIVE]
    assert (place.cache / "downloads" / ARCHIVE).stat().st_size == 400


def test_a_server_that_nobody_reaches_is_tried_once(
    place: get_pulumi.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused connection leads to the next way at once."""
    monkeypatch.setattr(get_pulumi, "PAUSE", 3600.0)  # a second attempt would hang this test
    monkeypatch.setenv(get_pulumi.MIRROR, "http://127.0.0.1:9")
    with pytest.raises(get_pulumi.UnavailableError, match=r"127\.0\.0\.1:9/.*refused(.|\n)*no go on PATH"):
        get_pulumi.folder_for_path(PINNED, place)


def test_a_release_of_another_version_is_not_installed(server: Server, place: get_pulumi.Place) -> None:
    """A pulumi that does not call itself the pinned version is dropped."""
    server.publish(a_release("3.1.4"))
    with pytest.raises(get_pulumi.UnavailableError, match=r"says version 3\.1\.4"):
        get_pulumi.folder_for_path(PINNED, place)
    assert left(place) == []


def test_the_build_is_held_to_the_pins_and_gets_our_language_host(
    machine: Path, place: get_pulumi.Place
) -> None:
    """Go is told to keep to go.sum and which version to stamp; our language host lies beside the result."""
    lay_go(machine, build=BUILDS)
    folder = get_pulumi.folder_for_path(PINNED, place)
    asked = (machine / "go.asked").read_text()
    assert asked.startswith(
        "-mod=readonly -buildvcs=false build -trimpath -tags osusergo,grpcnotrace -ldflags "
    )
    assert f"version.Version=v{PINNED.release} -o " in asked
    assert asked.endswith(f" {get_pulumi.PACKAGE}\n")
    host = folder / "pulumi-language-python"
    assert (
        host.resolve().read_bytes() == (sources.ROOT / "tools/langhost/pulumi-language-python").read_bytes()
    )
    assert (host.resolve().parent / "program.py").exists()
    assert os.access(host, os.X_OK)


def test_a_changed_language_host_is_laid_anew(machine: Path, place: get_pulumi.Place) -> None:
    """A link to files of an older state is replaced, without a new build."""
    lay_go(machine, build=BUILDS)
    host = get_pulumi.folder_for_path(PINNED, place) / "pulumi-language-python"
    current = host.readlink()
    host.unlink()
    host.symlink_to("../langhost-000000000000/pulumi-language-python")
    get_pulumi.folder_for_path(PINNED, place)
    assert host.readlink() == current
    assert len((machine / "go.asked").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("version", "build", "said"),
    [
        ("1.26.8", "echo no such module; exit 3", r"exit status 3:\nno such module"),
        ("1.19.8", BUILDS, r"go1\.19\.8 linux/amd64; install Go 1\.21 or later"),  # Debian 12's
        ("1.26.8", 'printf "#!/bin/sh\\necho v1.0.0\\n" > "$out"; chmod 755 "$out"', r"says version 1\.0\.0"),
    ],
    ids=["fails", "too old a go", "another version"],
)
def test_a_build_that_fails_leaves_nothing(
    machine: Path, place: get_pulumi.Place, version: str, build: str, said: str
) -> None:
    """The last lines of go, or what is wrong with it, are in the message; nothing is installed."""
    lay_go(machine, build=build, version=version)
    with pytest.raises(get_pulumi.UnavailableError, match=said):
        get_pulumi.folder_for_path(PINNED, place)
    assert left(place) == []


@pytest.mark.parametrize(
    ("version", "host", "taken"),
    [
        (PINNED.minimum, True, True),
        ("4.0.0-alpha.1", True, True),  # of a later major version too: the operator's own choice
        ("3.99.9", True, False),  # compared as numbers, not as text
        (PINNED.minimum, False, False),  # without a language host it cannot run our program
        ("?", True, False),
    ],
)
def test_what_is_on_path_is_taken_if_it_will_do(
    machine: Path, place: get_pulumi.Place, version: str, host: bool, taken: bool
) -> None:
    """A pulumi of the minimal version or later, with a language host, is used where it is."""
    script(machine / "pulumi", f"echo v{version}")
    if host:
        script(machine / "pulumi-language-python", "")
    assert get_pulumi.on_path(PINNED.minimum, place) == (machine if taken else None)


@pytest.fixture
def bounded() -> Iterator[None]:
    """End a test that waits for what never comes."""

    def give_up(*_: object) -> None:
        raise TimeoutError("60 s are over")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def run_program(*args: str, env: dict[str, str]) -> subprocess.Popen[str]:
    """Start the program as the set-up does."""
    command = [sys.executable, str(PROGRAM), *args]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_stdout_holds_the_folder_alone(server: Server, machine: Path, place: get_pulumi.Place) -> None:
    """The command line of the set-up: the folder on stdout, the rest on stderr."""
    lay_go(machine, build=f"echo noise; {BUILDS}")
    with run_program("--cache", str(place.cache), env=dict(os.environ)) as process:
        out, told = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, f"{place.programs}\n"), told
    assert f"No official release: {server.url}/{SUMS}: 404" in told
    assert "Build pulumi" in told


def test_without_any_way_the_program_says_what_to_do(server: Server, place: get_pulumi.Place) -> None:
    """Exit status 1, nothing on stdout, each way with its reason and remedy on stderr."""
    with run_program("--cache", str(place.cache), env=dict(os.environ)) as process:
        out, told = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert f"official release: {server.url}/{SUMS}: 404" in told
    assert "build from the Go module: no go on PATH; install Go" in told
    assert "Traceback" not in told


@pytest.mark.usefixtures("bounded")
def test_a_terminated_run_takes_its_build_along(
    machine: Path, place: get_pulumi.Place, tmp_path: Path
) -> None:
    """SIGTERM ends the build with its children; nothing is installed."""
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    # The stand-in and its child hold the pipe open: its end says that both are gone.
    lay_go(machine, build=f"exec 5> {alive}; echo up >&5; sleep 600 & wait")
    with run_program("--cache", str(place.cache), env=dict(os.environ)) as process, alive.open() as pipe:
        assert pipe.readline() == "up\n"
        process.terminate()
        assert pipe.read() == ""
        assert process.wait(timeout=30) == 143
    assert left(place) == []


@pytest.mark.usefixtures("bounded")
def test_two_runs_build_once(machine: Path, place: get_pulumi.Place, tmp_path: Path) -> None:
    """A second run waits for the first and uses what it made."""
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    lay_go(machine, build=f"echo up; cat {go_on} > /dev/null; {BUILDS}")
    args, env = ("--cache", str(place.cache)), dict(os.environ)
    with run_program(*args, env=env) as first:
        with go_on.open("w"):  # opens when the first has come to its build
            second = run_program(*args, env=env)
            assert second.stderr is not None
            assert "waiting for it" in second.stderr.readline()
        folders = [process.communicate(timeout=30)[0] for process in (first, second)]
    assert folders == [f"{place.programs}\n"] * 2
    assert len((machine / "go.asked").read_text().splitlines()) == 1


def test_the_pins_agree() -> None:
    """CLI and SDK of the Go module are one version, and not older than the Python SDK that it must serve."""
    module = (sources.ROOT / "tools/pulumi/go.mod").read_text()
    assert f"github.com/pulumi/pulumi/sdk/v3 v{PINNED.release} " in module
    assert get_pulumi.number(PINNED.release) >= get_pulumi.number(PINNED.minimum)
    sums = (sources.ROOT / "tools/pulumi/go.sum").read_text()
    assert f"github.com/pulumi/pulumi/pkg/v3 v{PINNED.release} h1:" in sums
