"""Members of etcd that let in only some: by certificates, or by names and passwords."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from rig.etcd import EtcdCluster, Tls

PASSWORD = "p@ss/w?rd"
LOGIN = "locks:p%40ss%2Fw%3Frd"


def issued(authority: trustme.CA, folder: Path) -> Tls:
    """A certificate for loopback, and the authority's, as files."""
    folder.mkdir()
    files = Tls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(files.ca))
    certificate.cert_chain_pems[0].write_to_path(str(files.cert))
    certificate.private_key_pem.write_to_path(str(files.key))
    return files


@contextmanager
def with_tls(folder: Path) -> Iterator[EtcdCluster]:
    """A member that speaks TLS only, and only with those who show a certificate."""
    etcd = EtcdCluster(folder / "data", size=1, tls=issued(trustme.CA(), folder / "certificates"))
    with _running(etcd):
        yield etcd


@contextmanager
def with_users(folder: Path) -> Iterator[EtcdCluster]:
    """A member that has users: one of them may read and write under /locks/, and nothing else."""
    etcd = EtcdCluster(folder, size=1, flags=["--bcrypt-cost", "4"])
    with _running(etcd):
        _make_people(etcd)
        yield etcd


def set_password(etcd: EtcdCluster, password: str) -> None:
    """Give the one user another password. It has to log in anew."""
    token = etcd.ask(0, "/v3/auth/authenticate", {"name": "root", "password": PASSWORD})["token"]
    etcd.ask(0, "/v3/auth/user/changepw", {"name": "locks", "password": password}, token)


@contextmanager
def _running(etcd: EtcdCluster) -> Iterator[None]:
    try:
        etcd.start()
        yield
    finally:
        etcd.stop()


def _make_people(etcd: EtcdCluster) -> None:
    for name in ("root", "locks"):
        etcd.ask(0, "/v3/auth/user/add", {"name": name, "password": PASSWORD})
        etcd.ask(0, "/v3/auth/role/add", {"name": name})
        etcd.ask(0, "/v3/auth/user/grant", {"user": name, "role": name})
    below = {"permType": "READWRITE", "key": _base64(b"/locks/"), "range_end": _base64(b"/locks0")}
    etcd.ask(0, "/v3/auth/role/grant", {"name": "locks", "perm": below})
    etcd.ask(0, "/v3/auth/enable", {})


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
