"""The kinds of value that inventory files hold: what is accepted, and what is said about the rest."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import posixpath
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainValidator
from pydantic_core import PydanticCustomError

from kimi_infra.domain import names
from kimi_infra.domain.inventory import SecretRef, SecretSource

REFUSED = "kimi_refused"
"""Type of the errors raised here; their context holds ``what``, ``remedy`` and ``secret``."""
_FILL_IN = re.compile(r"<fill in: (?P<what>\S.*)>")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_IMAGE = re.compile(
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[\w][\w.-]{0,127}", re.ASCII
)
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_LONGEST = 24
"""Hours of the longest duration: far above any start, and sums of it stay valid for systemd."""
ENGINE_CACHE = "/root/.cache"
"""Where the plan mounts the engine's caches inside the container."""
_PROGRAMS = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)
"""Of the image or of its kernel: a mount there or below hides what the engine runs with."""
_SHARED = ("/opt", "/run", "/tmp", "/var", "/var/lib", "/var/run", "/var/tmp")  # noqa: S108 - refused, not used
"""Needed as they are by the image; a directory of the operator's own may lie below."""
_PLANNED = {
    "--port": "write api.port",
    "--served-model-name": "remove it: the served name is the model",
    "--model": "write model, and model_path for where the weights are",
    "--master-port": "write ports.master",
    "--shutdown-timeout": "remove it: it follows from the plan's deadlines",
}
"""Flags that follow from other keys: a second one would win or lose by its place alone."""
_SECRET = {
    "--api-key": "write api.key",
    "--hf-token": "write hub_token",
    "--ssl-keyfile-password": "name a key file that needs none and that root alone can read",
}
"""Flags whose value is a secret; the last is of uvicorn, which serves vLLM's API."""
_ABBREVIATED = len("--") + 4
"""From here on a beginning can be one flag's alone, for which vLLM's parser takes it (``--hf-t``)."""
_NOT_SECRET = frozenset({"--ssl-keyfile"})
"""Whole names, though a secret flag's begins with them."""
_REFERENCE = "<value:"
"""How a recipe's own words refer to a value."""
_SENSE = 10**18
"""Numbers from here on count nothing that there is, and Python refuses to write the longest of them."""
_NAME_MOST = 40
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_HOST_KEY_TYPES = frozenset(
    {
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kind of value is described in the reference page."""

    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of the operator where a value is absent or to be filled in.

    ``{name}`` stands for the field ``name`` beside it.
    """

    text: str


def refused(what: str, remedy: str, *, secret: bool = False) -> PydanticCustomError:
    """Return the error of a value that is not accepted; a secret one is never shown."""
    return PydanticCustomError(REFUSED, "refused", {"what": what, "remedy": remedy, "secret": secret})


def fill_in(value: str) -> str | None:
    """Return what a ``<fill in: ...>`` asks for, None for any other text."""
    match = _FILL_IN.fullmatch(value)
    return match["what"] if match else None


def _or_fill_in(check: Callable[[str], str]) -> Callable[[str], str]:
    return lambda value: value if fill_in(value) else check(value)


def _line(value: str) -> str:
    if fill_in(value):
        raise refused("the value is needed before anything can be planned", "replace the <fill in: ...>")
    if not value.strip() or not value.isprintable():
        raise refused("one line of text is expected", "write text without control characters")
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", value):
        what = "not a name for units and containers"
        raise refused(what, "use up to 32 lower-case letters, digits and dashes, a letter first")
    return value


def _user(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.@-]*", value):
        raise refused("not a user name", "write the name of the SSH user as it is on the host")
    return value


def _absolute_path(value: str) -> str:
    if not value.startswith("/"):
        raise refused("the path is not absolute", "write it from / on, without ~ and variables")
    if not value.isprintable() or set(value) & set(":,"):
        what = "the path holds a character that a container mount cannot carry"
        raise refused(what, "use a path without colon, comma and control characters")
    if value == "/" or posixpath.normpath(value) != value:
        raise refused("the path is not in its plain form", f"write {_plain_form(value)}")
    elsewhere = "use a directory of its own elsewhere, for example below /srv"
    if _inside(value, ENGINE_CACHE) or _inside(ENGINE_CACHE, value):
        raise refused(f"the path collides with {ENGINE_CACHE}, where the engine keeps its caches", elsewhere)
    if value in _SHARED or any(_inside(value, folder) for folder in _PROGRAMS):
        raise refused("the mount would hide a system directory of the image", elsewhere)
    return value


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _plain_form(path: str) -> str:
    plain = "/" + posixpath.normpath(path).lstrip("/")
    return "a directory below /" if plain == "/" else plain


def _ssh_address(value: str) -> str:
    if _ip(value) is None and not (_HOST_NAME.fullmatch(value) and re.search("[A-Za-z]", value)):
        raise refused("neither an IP address nor a host name", "write where SSH reaches the host")
    return value


def _engine_address(value: str) -> str:
    address = _ip(value)
    remedy = "write the host's own address in the network of the engine"
    if address is None:
        raise refused("not an IP address", remedy)
    if address.is_link_local:
        raise refused("a link-local address, which holds for one link only", remedy)
    # IPv6's loopback lies in a reserved block; IPv4's broadcast address as well.
    reserved = address.is_reserved and not address.is_loopback
    if address.is_unspecified or address.is_multicast or reserved or address in _THIS_NETWORK:
        raise refused("not the address of one host", remedy)
    return str(address)


def plain_address(value: str) -> str:
    """Return the one form of an IP address or host name that equal ones share."""
    return str(_ip(value) or value.lower())


def _ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    return None if address.scope_id else address.ipv4_mapped or address


def _host_key(value: str) -> str:
    remedy = "write the type and the base64 text only, for example ssh-ed25519 AAAA..., without a host name"
    words = value.split()
    if len(words) < 2 or words[0] not in _HOST_KEY_TYPES:
        # A private key may have been pasted: the value is not shown.
        raise refused("not a public host key", remedy, secret=True)
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        blob = b""
    kind = words[0].encode()
    if not blob.startswith(len(kind).to_bytes(4, "big") + kind) or len(blob) < len(kind) + 32:
        raise refused(f"the key's text is not that of an {words[0]} key", remedy, secret=True)
    return f"{words[0]} {words[1]}"


def _image(value: str) -> str:
    if "@" in value:
        raise refused("the name holds a digest", "write the digest in image.digest")
    if not _IMAGE.fullmatch(value):
        raise refused("not an image name with a tag", "write for example vllm/vllm-openai:kimi-k31")
    return value


def _digest(value: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", value):
        raise refused("not a manifest digest", "write sha256: and 64 hexadecimal digits")
    return value


def _sha256(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise refused("not a SHA-256", "write 64 lower-case hexadecimal digits")
    return value


def _plain_text(value: str) -> str:
    if "{{" in value or not value.isprintable():
        raise refused("plain text is expected", "write the value itself, without a template")
    return value


def _ssh_words(value: object) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise refused("options of ssh are one text", "write them as on a command line")
    try:
        return tuple(shlex.split(_plain_text(value)))
    except ValueError as error:
        # A command for a jump host may hold a password.
        what, remedy = "quotes that do not match", "write the options as on a command line"
        raise refused(what, remedy, secret=True) from error


def _tcp_port(value: int) -> int:
    if not 1 <= value <= 65535:
        raise refused("the port is out of range", "use a port from 1 to 65535")
    return value


def _rank(value: int) -> int:
    remedy = "number the hosts of the group from 0 (the head) on"
    if value < 0:
        raise refused("a rank is below zero", remedy)
    return _in_sense(value, remedy)


def _nodes(value: int) -> int:
    remedy = "write the number of hosts in the group"
    if value < 1:
        raise refused("a deployment has one node or more", remedy)
    return _in_sense(value, remedy)


def _in_sense(value: int, remedy: str) -> int:
    if abs(value) >= _SENSE:
        raise refused("a number beyond all sense", remedy)
    return value


def _quantity(value: object, *, noun: str, units: dict[str, int], example: str) -> int:
    remedy = f"write a number and a unit ({', '.join(units)}), for example {example}"
    match = re.fullmatch(r"(\d{1,9}) ?([A-Za-z]*)", value, re.ASCII) if isinstance(value, str) else None
    if (isinstance(value, int | float) and not isinstance(value, bool)) or (match and not match[2]):
        raise refused(f"a {noun} without a unit", remedy)
    if match is None or match[2] not in units:
        raise refused(f"not a {noun}", remedy)
    if not int(match[1]):
        raise refused(f"a {noun} of nothing", remedy)
    return int(match[1]) * units[match[2]]


def _byte_size(value: object) -> int:
    return _quantity(value, noun="size", units=_BYTES, example="64 GiB")


def _open_byte_size(value: object) -> int | str:
    return value if isinstance(value, str) and fill_in(value) else _byte_size(value)


def _duration(value: object) -> int:
    seconds = _quantity(value, noun="duration", units=_SECONDS, example="60 min")
    if seconds > _LONGEST * _SECONDS["h"]:
        raise refused(f"a duration of more than {_LONGEST} h", f"write {_LONGEST} h or less")
    return seconds


def _one_of(*words: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in words:
            raise refused(f"not one of {', '.join(words)}", names.closest(value, words))
        return value

    return check


def _engine_word(value: str) -> str:
    """Refuse flags that the plan writes itself, and secrets that a command line would show."""
    # First of all, for what is said of any other fault shows the word.
    _no_secret(value)
    flag = _flag(_line(value))
    if flag in _PLANNED:
        raise refused(f"the plan writes {flag} itself", _PLANNED[flag])
    return value


def _engine_words(value: object) -> object:
    """Keep what stands behind a secret flag out of what is said of other faults."""
    if not isinstance(value, list):
        _no_secret(value)
        return value
    before = [None, *value]
    return ["hidden" if _secret_flag(flag) else word for flag, word in zip(before, value, strict=False)]


def _no_secret(value: object) -> None:
    """Refuse a text in which a flag carries a secret, however it is spelled."""
    for word in value.split() if isinstance(value, str) else ():
        whole = _secret_flag(word)
        if whole:
            flag = _flag(word)
            short = "" if flag == whole else f" is short for {whole}, which"
            what = f"{flag}{short} would show a secret in every list of processes"
            raise refused(what, _SECRET[whole], secret=True)


def _secret_flag(word: object) -> str | None:
    """Return the whole name of the secret flag that a word is, or begins as vLLM's parser allows it to."""
    flag = _flag(word) if isinstance(word, str) else ""
    if len(flag) < _ABBREVIATED or flag in _NOT_SECRET:
        return None
    return next((name for name in _SECRET if name.startswith(flag)), None)


def _flag(word: str) -> str:
    """Return a flag as vLLM's parser reads it: without value and key, underscores as dashes."""
    name = word.strip().partition("=")[0].partition(".")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def _parallel_size(value: int) -> int:
    remedy = "write the number of ranks that share the cache, or remove the key"
    if value < 1:
        raise refused("a size below one", remedy)
    return _in_sense(value, remedy)


def _named(value: object) -> object:
    """Refuse names that no message and no command can carry."""
    for name in value if isinstance(value, dict) else ():
        if not isinstance(name, str) or not name.isprintable() or _REFERENCE in name:
            what = f"{ascii(name)[:_NAME_MOST]} is no name"
            raise refused(what, "write a name as the recipe has it: letters, digits and underscores")
    return value


def _given(value: object) -> str | tuple[str, ...]:
    for word in value if isinstance(value, list) else [value]:
        _no_secret(word)
    if isinstance(value, list):
        return tuple(map(_given_word, value))
    return value if isinstance(value, str) and fill_in(value) else _given_word(value)


def _given_word(value: object) -> str:
    remedy = "write one text, a whole number or [one word, the next]"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(_in_sense(value, remedy))
    if not isinstance(value, str):
        raise refused("neither text nor a whole number nor a list of them", remedy)
    if _REFERENCE in value:
        raise refused(f"{_REFERENCE}...> refers to a value, and this is one", "write the value itself")
    return _line(value)


def _off(value: object) -> object:
    """YAML reads an unquoted ``off`` as false."""
    return "off" if value is False else value


def _secret_ref(value: object) -> SecretRef:
    how, spilt = (
        "write {env: NAME}, {file: PATH} or {vault: PATH#KEY}",
        "change the secret if this was shared",
    )
    if not isinstance(value, dict):
        raise refused("a secret given as a literal", f"{how}, and {spilt}", secret=True)
    if set(value) == {"pulumi"}:
        raise refused("secrets of Pulumi are not supported yet", how, secret=True)
    if len(value) != 1:
        raise refused("a secret has exactly one source", how, secret=True)
    ((source, key),) = value.items()
    if source not in {kind.value for kind in SecretSource}:
        raise refused("not a source of secrets", how, secret=True)
    checks = {"env": _secret_env, "file": _secret_file, "vault": _secret_vault}
    if not isinstance(key, str) or not key.isprintable():
        raise refused("the place of a secret is text", how, secret=True)
    checks[source](key)
    return SecretRef(source=SecretSource(source), key=key)


def _secret_env(key: str) -> None:
    # Upper case only: most tokens pasted by mistake are refused here, before a message names them.
    if not _ENV_NAME.fullmatch(key):
        what = "not the name of an environment variable"
        raise refused(what, "use upper-case letters, digits and underscores", secret=True)


def _secret_file(key: str) -> None:
    if not key.strip() or key.startswith("~"):
        what = "not the path of a file"
        raise refused(
            what, "write a path that is absolute or begins in the inventory's directory", secret=True
        )


def _secret_vault(key: str) -> None:
    path, _, name = key.rpartition("#")
    if not path or not name or path.startswith("~"):
        raise refused("not a place in a vault", "write PATH#KEY in quotes: # begins a comment", secret=True)


def _ca_file(value: object) -> str:
    path = value.get("file") if isinstance(value, dict) and set(value) == {"file"} else None
    if not isinstance(path, str) or not path.strip() or not path.isprintable() or path.startswith("~"):
        remedy = "write {file: PATH}, absolute or beginning in the inventory's directory"
        raise refused("not a reference to a certificate file", remedy)
    return path


Line = Annotated[str, AfterValidator(_line), Shape("text")]
Name = Annotated[str, AfterValidator(_name), Shape("name")]
User = Annotated[str, AfterValidator(_or_fill_in(_user)), Shape("user name, fill-in")]
AbsolutePath = Annotated[str, AfterValidator(_or_fill_in(_absolute_path)), Shape("absolute path, fill-in")]
SshAddress = Annotated[str, AfterValidator(_or_fill_in(_ssh_address)), Shape("address or host name, fill-in")]
EngineAddress = Annotated[str, AfterValidator(_or_fill_in(_engine_address)), Shape("IP address, fill-in")]
HostKey = Annotated[str, AfterValidator(_or_fill_in(_host_key)), Shape("public key, fill-in")]
ImageName = Annotated[str, AfterValidator(_or_fill_in(_image)), Shape("repository:tag, fill-in")]
Digest = Annotated[str, AfterValidator(_or_fill_in(_digest)), Shape("sha256:..., fill-in")]
Sha256 = Annotated[str, AfterValidator(_or_fill_in(_sha256)), Shape("64 hexadecimal digits, fill-in")]
KeyFile = Annotated[str, AfterValidator(_or_fill_in(_plain_text)), Shape("path, fill-in")]
SshWords = Annotated[tuple[str, ...], PlainValidator(_ssh_words), Shape("options of ssh")]
TcpPort = Annotated[int, AfterValidator(_tcp_port), Shape("port, 1 to 65535")]
Rank = Annotated[int, AfterValidator(_rank), Shape("number from 0")]
Nodes = Annotated[int, AfterValidator(_nodes), Shape("number from 1")]
ByteSize = Annotated[int, PlainValidator(_byte_size), Shape("size with unit: KiB, MiB, GiB, TiB")]
OpenByteSize = Annotated[
    int | str, PlainValidator(_open_byte_size), Shape("size with unit: KiB, MiB, GiB, TiB, fill-in")
]
Duration = Annotated[
    int, PlainValidator(_duration), Shape(f"duration with unit: s, min, h; {_LONGEST} h at most")
]
Secret = Annotated[
    SecretRef, PlainValidator(_secret_ref), Shape("{env: NAME}, {file: PATH} or {vault: PATH#KEY}")
]
CertificateFile = Annotated[str, PlainValidator(_ca_file), Shape("{file: PATH}")]
EngineWord = Annotated[str, AfterValidator(_engine_word), Shape("word of a command")]
EngineWords = Annotated[list[EngineWord], BeforeValidator(_engine_words)]
ParallelSize = Annotated[int, AfterValidator(_parallel_size), Shape("number from 1")]
Given = Annotated[
    str | tuple[str, ...], PlainValidator(_given), Shape("text, whole number or list of words, fill-in")
]
GivenByName = Annotated[dict[str, Given], BeforeValidator(_named)]
LinesByName = Annotated[dict[str, Line], BeforeValidator(_named)]
Parallelism = Annotated[str, AfterValidator(_one_of("tp", "tep", "dep")), Shape("tp, tep or dep")]
Consent = Annotated[str, AfterValidator(_one_of("restart", "reboot")), Shape("restart or reboot")]
OffloadPolicyWord = Annotated[
    str,
    BeforeValidator(_off),
    AfterValidator(_one_of("off", "measured", "fixed")),
    Shape("off, measured or fixed"),
]
