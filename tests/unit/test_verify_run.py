"""`verify` before and between its checks: what it refuses, whom it names, what it hands over."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import testinfra
from typer.testing import CliRunner

from kimi_infra import cli
from kimi_infra.domain.inventory import Host
from kimi_infra.errors import HostError
from kimi_infra.observe import hosts, ssh, verify
from tests import examples, planted

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[2]
CANARY = "canary-33d0"
DIGEST = "sha256:6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"


def run(inventory: Path, *arguments: str, **environ: str | None) -> tuple[int, str, str]:
    """Run `kimi-infra verify` in this process: exit code, standard output, standard error."""
    done = CliRunner().invoke(cli.app, ["verify", str(inventory), *arguments], env=environ)
    return done.exit_code, done.stdout, done.stderr


def keyed(directory: Path, reference: str) -> Path:
    """Lay the base inventory with another place of its API key."""
    inventory = planted.laid("base", directory)
    file = inventory / "deployment.yml"
    file.write_text(file.read_text().replace("{env: KIMI_API_KEY}", reference))
    return inventory


@pytest.fixture
def contacted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answer no connection, and note whose it was."""
    names: list[str] = []

    def refuse(host: Host, *_: object, **__: object) -> str:
        names.append(host.name)
        raise HostError(host.name, "cannot be reached: nobody is there", "check address, user and host key")

    monkeypatch.setattr(ssh, "run", refuse)
    return names


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have both hosts answer the probe."""
    image = {f"vllm/vllm-openai@{DIGEST}": examples.IMAGE_ID}
    found = {f"tray-{'ab'[rank]}": examples.facts(rank, images=image) for rank in (0, 1)}
    monkeypatch.setattr(hosts, "probe_all", lambda _: found)


@pytest.fixture
def vaulted(tmp_path: Path) -> Path:
    """Lay an inventory whose API key is in a vault; the password lies beside."""
    inventory = keyed(tmp_path, "{vault: 'vault.yml#token'}")
    (inventory / "password").write_text("open sesame\n")
    (inventory / "vault.yml").write_text(f"token: {CANARY}\n")
    tool = [sys.executable, "-m", "ansible", "vault", "encrypt", "--vault-password-file"]
    subprocess.run([*tool, inventory / "password", inventory / "vault.yml"], check=True, capture_output=True)
    return inventory


def checks(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Replace the checks by one file beside the real conftest."""
    folder.mkdir()
    for name in ("conftest.py", "pytest.ini"):
        (folder / name).write_text((verify.CHECKS / name).read_text())
    (folder / "test_own.py").write_text(text)
    monkeypatch.setattr(verify, "CHECKS", folder)


@pytest.mark.parametrize("reference", ["{env: KIMI_NO_SUCH}", "{file: no-such}", "{vault: 'no-such#key'}"])
def test_a_secret_that_leads_nowhere_is_refused(tmp_path: Path, contacted: list[str], reference: str) -> None:
    """Exit code 2 as with any other input, and no host was contacted."""
    code, out, error = run(keyed(tmp_path, reference), ANSIBLE_VAULT_PASSWORD_FILE=None)
    assert (code, out, contacted) == (2, "", [])
    assert error.startswith(f"kimi-infra: {reference[1:].partition(':')[0]}: ")


def test_every_host_that_does_not_answer_is_named(tmp_path: Path, contacted: list[str]) -> None:
    """Exit code 1, a line a host, and nothing of the checks' own process around it."""
    code, out, error = run(planted.laid("base", tmp_path), KIMI_API_KEY=CANARY)
    assert (code, out, sorted(contacted)) == (1, "", ["tray-a", "tray-b"])
    what = "cannot be reached: nobody is there; check address, user and host key"
    assert error == f"kimi-infra: tray-a: {what}\ntray-b: {what}\n"


@pytest.mark.usefixtures("answering")
def test_a_host_that_contradicts_the_inventory_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What planning refuses keeps its type: exit code 2."""
    wrong = {name: examples.facts(rank, devices={}) for rank, name in enumerate(("tray-a", "tray-b"))}
    monkeypatch.setattr(hosts, "probe_all", lambda _: wrong)
    code, _, error = run(planted.laid("base", tmp_path), KIMI_API_KEY=CANARY)
    assert code == 2
    assert "fault" in error


@pytest.mark.usefixtures("answering")
def test_the_checks_get_plan_and_secrets_and_keep_them(
    vaulted: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A vault's secret is known to the checks, by no argument, variable or file, and no report shows it."""
    seen = tmp_path / "seen.json"
    checks(
        monkeypatch,
        tmp_path / "checks",
        f"""import json, os, pathlib, sys

def test_endpoint(plan, endpoint):
    open_files = [os.readlink(f"/proc/self/fd/{{n}}") for n in os.listdir("/proc/self/fd")
                  if os.path.exists(f"/proc/self/fd/{{n}}")]
    found = [endpoint.key, sys.argv, dict(os.environ), open_files]
    pathlib.Path({str(seen)!r}).write_text(json.dumps(found))

def test_file(layout, file):
    assert not file.secret, file.path

def test_sending(plan, endpoint):
    send(endpoint.key)

def send(key):
    raise ValueError("not sent")
""",
    )
    junit = tmp_path / "junit.xml"
    password = str(vaulted / "password")
    code, out, error = run(vaulted, "--junit", str(junit), ANSIBLE_VAULT_PASSWORD_FILE=password)
    assert (code, error) == (1, "")
    assert out.count("FAILED ") == 3
    key, argv, environ, open_files = json.loads(seen.read_text())
    assert key == CANARY
    assert CANARY not in json.dumps([argv, environ])
    assert not any("kimi-verify" in name and "memfd" in name for name in open_files)
    assert CANARY not in out + junit.read_text()


def test_a_key_in_a_vault_is_read_by_ask(vaulted: Path) -> None:
    """`ask` opens the vault, too: it is refused by the head's port, not by the reference."""
    file = vaulted / "hosts.yml"
    file.write_text(file.read_text().replace("ansible_host: 192.0.2.11", "ansible_host: 127.0.0.1"))
    deployment = vaulted / "deployment.yml"
    deployment.write_text(deployment.read_text().replace("port: 8000", "port: 1"))
    environ = {"ANSIBLE_VAULT_PASSWORD_FILE": str(vaulted / "password")}
    done = CliRunner().invoke(cli.app, ["ask", str(vaulted)], env=environ)
    assert done.exit_code == 1
    assert "ConnectionRefusedError" in done.stderr


def test_secrets_come_from_one_factory() -> None:
    """A store made elsewhere would read fewer kinds of reference than the others do."""
    made = [
        str(path.relative_to(ROOT))
        for folder in ("kimi_infra", "plugins")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "SecretStore"
    ]
    assert made == ["kimi_infra/converge/vault.py"]


@pytest.mark.parametrize("address", ["192.0.2.11", "tray-a.example", "2001:db8::11", "fe80::1%eth0"])
def test_testinfra_reads_the_address_whole(address: str) -> None:
    """An IPv6 address is not taken for a host and a port."""
    spec = ssh.hostspec(examples.host(0, address=address))
    read = testinfra.get_host(f"ssh://{spec}").backend.host
    assert (read.name, read.port, read.user) == (address, None, "ops")
