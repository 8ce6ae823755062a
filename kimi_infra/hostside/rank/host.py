"""What the kernel says about addresses, TCP sockets and processes; reads /proc and netlink only."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTEN, _ESTABLISHED = 0x0A, 0x01  # include/net/tcp_states.h
_RTM_GETADDR, _REQUEST_DUMP, _MSG_ERROR, _MSG_DONE = 22, 0x301, 2, 3  # linux/rtnetlink.h, linux/netlink.h
_IFA_ADDRESS, _IFA_LOCAL = 1, 2


@dataclass(frozen=True)
class Interface:
    """One address of one device."""

    device: str
    address: str
    prefix: int


@dataclass(frozen=True)
class Connection:
    """One TCP socket."""

    local: tuple[str, int]
    remote: tuple[str, int]
    state: int
    inode: int


def normal(address: str) -> str:
    """The one spelling of an address: IPv4 mapped into IPv6 becomes IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)


def _attributes(data: bytes) -> dict[int, bytes]:
    found, offset = {}, 0
    while offset + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, offset)
        if size < 4:
            break
        found[kind] = data[offset + 4 : offset + size]
        offset += (size + 3) & ~3
    return found


def _parse_addresses(data: bytes) -> Iterator[tuple[int, Interface | None]]:
    offset = 0
    while offset + 16 <= len(data):
        size, kind = struct.unpack_from("=IH", data, offset)
        body = data[offset + 16 : offset + size]
        offset += (size + 3) & ~3
        if kind in (_MSG_DONE, _MSG_ERROR) or size < 16:
            yield _MSG_DONE, None
            return
        _family, prefix, _flags, _scope, index = struct.unpack_from("=BBBBI", body)
        attributes = _attributes(body[8:])
        raw = attributes.get(_IFA_LOCAL, attributes.get(_IFA_ADDRESS))
        if raw:
            yield kind, Interface(socket.if_indextoname(index), str(ipaddress.ip_address(raw)), prefix)


def interfaces() -> list[Interface]:
    """Every address of this host; SIOCGIFADDR would tell only the first one of a device."""
    found: list[Interface] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(5)
        netlink.bind((0, 0))
        netlink.send(struct.pack("=IHHIIBBBBI", 24, _RTM_GETADDR, _REQUEST_DUMP, 1, 0, 0, 0, 0, 0, 0))
        while True:
            for kind, interface in _parse_addresses(netlink.recv(1 << 16)):
                if kind == _MSG_DONE:
                    return found
                if interface is not None:
                    found.append(interface)


def carries(interface: Interface, address: str) -> bool:
    """Whether the device answers for the address: loopback answers for its whole network."""
    if interface.device == "lo" and ":" not in interface.address:
        network = ipaddress.ip_network(f"{interface.address}/{interface.prefix}", strict=False)
        return ipaddress.ip_address(address) in network
    return interface.address == normal(address)


def _endpoint(text: str) -> tuple[str, int]:
    """``0100007F:1F90`` -> ("127.0.0.1", 8080): words of 32 bits in the host's byte order."""
    words, _, port = text.partition(":")
    raw = b"".join(struct.pack("=I", int(words[start : start + 8], 16)) for start in range(0, len(words), 8))
    return normal(str(ipaddress.ip_address(raw))), int(port, 16)


def parse_connections(text: str) -> list[Connection]:
    """The lines of /proc/net/tcp or tcp6."""
    rows = (line.split() for line in text.splitlines()[1:])
    return [
        Connection(_endpoint(row[1]), _endpoint(row[2]), int(row[3], 16), int(row[9]))
        for row in rows
        if len(row) > 9
    ]


def connections(pid: int | str = "self") -> list[Connection]:
    """All TCP sockets in the network namespace of a process; none when it is gone."""
    found: list[Connection] = []
    for name in ("tcp", "tcp6"):
        try:
            found += parse_connections(Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii"))
        except OSError:
            continue
    return found


def _socket_inodes(pid: int) -> set[int]:
    inodes = set()
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(int(target[8:-1]))
    except OSError:
        return inodes  # ended or ended half-way: what was seen so far is all there is
    return inodes


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command(pid: int) -> str:
    """The command line of a process for a message, at most 200 characters."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "gone"
    words = raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return "".join(char if char.isprintable() else "?" for char in words)[:200]


def holders(port: int) -> list[str]:
    """Who listens on a TCP port of this host: ``pid 7 (command)`` each; empty when the port is free."""
    listening = [item for item in connections() if item.state == _LISTEN and item.local[1] == port]
    if not listening:
        return []
    inodes = {item.inode for item in listening}
    pids = [pid for pid in _pids() if inodes & _socket_inodes(pid)]
    return [f"pid {pid} ({command(pid)})" for pid in pids] or ["a process that cannot be seen from here"]


def _stat(pid: int) -> list[str]:
    # The second field is the name in parentheses and may itself hold blanks and parentheses.
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def start_ticks(pid: int) -> int | None:
    """Start time of a process in ticks since boot, so that a reused pid is not taken for it."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def descendants(root: int) -> set[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        try:
            children.setdefault(int(_stat(pid)[1]), []).append(pid)
        except OSError:
            continue
    found, open_ = set(), [root]
    while open_:
        pid = open_.pop()
        found.add(pid)
        open_ += children.get(pid, [])
    return found


def joined(
    sockets: Iterable[Connection], head_addresses: Collection[str], not_proof: Collection[int]
) -> bool:
    """Whether these sockets of a worker's engine show that it is in one engine with the head.

    Proof is a connection that the head opened to a port on which the rank itself listens: the queue of
    its answers (measured on vLLM 0.32.0). Connections *to* the head are none: a worker that waits beside
    a head of an older engine has one to the rendezvous store and five to other ports.
    """
    heads, found = {normal(address) for address in head_addresses}, tuple(sockets)
    own = {item.local[1] for item in found if item.state == _LISTEN} - {*not_proof}
    return any(
        item.state == _ESTABLISHED and item.remote[0] in heads and item.local[1] in own for item in found
    )


def engine_sockets(container_pid: int) -> list[Connection]:
    """The TCP sockets that the processes of a container hold."""
    inodes: set[int] = set()
    for pid in descendants(container_pid):
        inodes |= _socket_inodes(pid)
    return [item for item in connections(container_pid) if item.inode in inodes]
