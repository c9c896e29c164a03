"""The container image of the server: Debian with the locked environment, as one archive in OCI's layout.

The archive also has the list by which `docker save` describes images, so that Docker and Podman load it with
its health check. All of it is Debian's, the lock file's or the commit's. mmdebstrap dates files by the
commit, so that the same packages of Debian give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from release import bundle, gzipped
from release.sources import Sources

DEBIAN, PYTHON = "bookworm", "3.11"
USER = 7420  # no user of the host has this number by chance
STATE = "/var/lib/durability"
HEALTH = ("durability", "runs", "--limit", "1")
_PACKAGES = ("python3", "tzdata")
_LIST = "packages"
# mmdebstrap copies these from the machine that builds, and a container runtime writes its own over them.
EMPTIED = 'cd "$1/etc" && rm -f hostname resolv.conf && touch hostname resolv.conf'
_LEFT_OUT = ("doc", "man", "info", "locale", "lintian", "bash-completion", "zsh", "fish")  # of /usr/share


@dataclass(frozen=True, slots=True)
class Blob:
    """A part of the archive, with its name by content."""

    content: bytes

    @property
    def digest(self) -> str:
        """The SHA-256 in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    def descriptor(self, kind: str) -> dict[str, Any]:
        """How other parts refer to it."""
        media_type = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media_type, "digest": f"sha256:{self.digest}", "size": len(self.content)}


def make(sources: Sources, laid_out: Path, out: Path) -> tuple[Path, Path]:
    """Build the image around the packages in `laid_out`, and the list of Debian's packages in it. Raises
    CalledProcessError, also if its command does not start."""
    work = laid_out.parent / "container"
    work.mkdir()
    root = work / "root.tar"
    _make_root(sources, laid_out, work / "files", root)
    image = out / f"durability-{sources.version}-container-amd64.tar"
    packages = image.with_suffix(".packages.txt")
    shutil.copy(work / _LIST, packages)
    write_image(root.read_bytes(), sources.version, image, dated_s=sources.committed_at_s)
    shutil.rmtree(work)
    return image, packages


def _make_root(sources: Sources, laid_out: Path, files: Path, root: Path) -> None:
    """The files of the image, as one tar archive."""
    bundle.install(sources, laid_out, files, python=PYTHON)
    (files / STATE.lstrip("/")).mkdir(parents=True)
    home = f"durability:x:{USER}:{USER}::{STATE}:/usr/sbin/nologin"
    hooks = (
        f'chroot "$1" dpkg-query --show >"$1/{_LIST}"',
        f"copy-out /{_LIST} {shlex.quote(str(root.parent))}",
        f'rm "$1/{_LIST}"',
        f'cp -a --no-preserve=ownership "{files}/." "$1/"',
        f"echo '{home}' >> \"$1/etc/passwd\"; echo 'durability:x:{USER}:' >> \"$1/etc/group\"",
        f'chown {USER}:{USER} "$1{STATE}"; chmod 700 "$1{STATE}"',
        # What Python compiles has no date in it, and is right as long as the image is.
        f'chroot "$1" python3 -m compileall -q --invalidation-mode unchecked-hash /{bundle.HOME}/lib',
        'chroot "$1" durability --version > /dev/null',
        'cd "$1/var" && rm -rf lib/apt/lists cache/apt cache/debconf log && mkdir log',
        EMPTIED,
    )
    sources.output(
        *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(_PACKAGES)}"),
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        *(f"--customize-hook={hook}" for hook in hooks),
        *(DEBIAN, root),
    )


def write_image(root: bytes, version: str, image: Path, *, dated_s: int) -> None:
    """An archive whose only layer is the tar archive `root`."""
    layer = Blob(gzipped.compressed(root, level=6))
    config = Blob(_json(_config(version, hashlib.sha256(root).hexdigest(), dated_s)))
    manifest = Blob(
        _json(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config.descriptor("config.v1+json"),
                "layers": [layer.descriptor("layer.v1.tar+gzip")],
            }
        )
    )
    name = f"localhost/durability:{version}"
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": version}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest.descriptor("manifest.v1+json") | {"annotations": names}],
    }
    place = "blobs/sha256/{}".format
    listed = {
        "Config": place(config.digest),
        "RepoTags": [name],
        "Layers": [place(layer.digest)],
    }
    files = {place(blob.digest): blob.content for blob in (config, layer, manifest)}
    files |= {
        "index.json": _json(index),
        "manifest.json": _json([listed]),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
    }
    _write_tar(files, image, dated_s)


def _config(version: str, root_digest: str, dated_s: int) -> Mapping[str, Any]:
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(dated_s))
    second = 1_000_000_000
    return {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": [
                "PATH=/usr/local/bin:/usr/bin:/bin",
                f"XDG_STATE_HOME={Path(STATE).parent}",
                f"HOME={STATE}",
                "PYTHONDONTWRITEBYTECODE=1",
            ],
            "Entrypoint": ["durability"],
            "Cmd": ["serve"],
            "WorkingDir": STATE,
            "ExposedPorts": {"7420/tcp": {}},
            "Volumes": {STATE: {}},
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", *HEALTH],
                "Interval": 60 * second,
                "Timeout": 20 * second,
                "StartPeriod": 60 * second,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "durability",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{root_digest}"]},
        "history": [{"created": created, "created_by": "make release R=container"}],
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _write_tar(files: Mapping[str, bytes], image: Path, dated_s: int) -> None:
    with tarfile.open(image, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), dated_s, 0o644
            tar.addfile(member, BytesIO(content))
