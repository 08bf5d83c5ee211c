"""Disks that several machines share, where SQLite's locks cannot be relied on."""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
NETWORK_KINDS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ocfs2", "gfs2"),
    *("ceph", "lustre", "gpfs", "beegfs", "panfs", "orangefs", "glusterfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs", "fuse.cephfs"),
}


def network_disk(path: Path, mounts: Path = MOUNTS) -> str:
    """The kind of network disk that a path is on ("nfs4"), "" for a disk of this machine's own or where nobody says."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        full = path.resolve()
    except (OSError, RuntimeError):
        return ""
    kinds: dict[Path, str] = {}
    for line in lines:
        fields = line.split()
        if len(fields) >= 3:
            kinds[Path(_unescaped(fields[1]))] = fields[2]  # what is mounted later hides what was there
    nearest = next((kinds[folder] for folder in (full, *full.parents) if folder in kinds), "")
    return nearest if nearest in NETWORK_KINDS else ""


def _unescaped(text: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
