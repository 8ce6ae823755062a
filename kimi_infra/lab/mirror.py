"""Where Debian packages come from: this machine's own apt configuration, read at run time."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from kimi_infra.lab import run

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_OPTION = re.compile(r'^(Acquire::(?:Check-Valid-Until|Check-Date|http::Proxy)) "(.*)";$', re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """How this machine reaches Debian's archive."""

    url: str | None
    """Of the main archive; None where the machine has no Debian source (Ubuntu): mmdebstrap's default."""
    options: tuple[tuple[str, str], ...]
    """Options on the age of package lists, which a frozen mirror needs inside the hosts too."""
    proxy: str | None
    """apt's HTTP proxy, for the apt cache."""

    def hosts_url(self, sources: str) -> str:
        """What hosts write in sources.list: they speak plain HTTP to the cache, which may go on by TLS."""
        return re.sub(r"\bhttps://", "http://", sources)

    @property
    def tls(self) -> tuple[str, str] | None:
        """(host and path, full URL) when the cache must go on by TLS."""
        if self.url is None or not self.url.startswith("https://"):
            return None
        parts = urlsplit(self.url)
        return f"{parts.netloc}{parts.path}".rstrip("/"), self.url.rstrip("/")


def find() -> Mirror:
    """Read apt's configuration; KIMI_INFRA_DEBIAN_MIRROR names another mirror."""
    targets = run.attempt(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(LABEL)", "Created-By: Packages"]
    ).stdout
    url = os.environ.get("KIMI_INFRA_DEBIAN_MIRROR") or main_archive(targets)
    options = parse_options(run.attempt(["apt-config", "dump"]).stdout)
    return Mirror(
        url=url,
        options=tuple((name, value) for name, value in options if "Proxy" not in name),
        proxy=next((value for name, value in options if "Proxy" in name and value != "DIRECT"), None),
    )


def main_archive(targets: str) -> str | None:
    """The first repository that calls itself Debian (the security archive has a label of its own)."""
    for line in targets.splitlines():
        url, codename, label = [*line.split(" ", 2), "", ""][:3]
        if label == "Debian" and "-" not in codename and url.startswith(("http://", "https://")):
            return url.rstrip("/")
    return None


def parse_options(dump: str) -> tuple[tuple[str, str], ...]:
    """The options of interest from the text of `apt-config dump`."""
    found = (_OPTION.match(line) for line in dump.splitlines())
    return tuple((match[1], match[2]) for match in found if match)
