"""The files under deploy: systemd and Kubernetes take them, and `serve` takes what they say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from fencehold.security.issuer import Issuer

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd/fencehold.service"
MANIFEST = DEPLOY / "kubernetes/fencehold.yaml"


def checked(*args: str, **env: str) -> str:
    """What `fencehold serve … --check` says; it must be content."""
    command = [sys.executable, "-m", "fencehold.cli", "serve", *args, "--check", "--json"]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects() -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing to complain of, once the program is where the unit says."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/fencehold/bin/fencehold", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    # Others than ours may have something to say about units of the machine.
    about_ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert about_ours == []


def test_systemd_would_complain_of_a_wrong_unit(tmp_path: Path) -> None:
    """The check above can fail."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("Restart=on-failure", "Restart=whenever"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert f"{UNIT.name}:" in done.stderr


def test_serve_takes_the_configuration_beside_the_unit(tmp_path: Path) -> None:
    """The TOML file is one that `serve` starts with, once the certificates are where it says."""
    issuer = Issuer.make(tmp_path / "pki")
    issuer.for_node("server", ["10.0.0.1"])
    file = tmp_path / "fencehold.toml"
    said = (DEPLOY / "systemd/fencehold.toml").read_text()
    file.write_text(said.replace("/etc/fencehold/pki", str(issuer.folder)))
    assert "10.0.0.2" in checked("--config", str(file))


def test_the_manifest_hangs_together() -> None:
    """Every selector selects the pods, the set names the service, and the probes ask a port there is."""
    found = objects()
    pods = found["StatefulSet"]["spec"]
    labels = pods["template"]["metadata"]["labels"]
    assert pods["serviceName"] == found["Service"]["metadata"]["name"]
    assert pods["selector"]["matchLabels"].items() <= labels.items()
    assert found["Service"]["spec"]["selector"].items() <= labels.items()
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (container,) = pods["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert container["readinessProbe"]["tcpSocket"]["port"] in ports
    assert [port["port"] for port in found["Service"]["spec"]["ports"]] == list(ports.values())


def test_serve_takes_what_the_manifest_says(tmp_path: Path) -> None:
    """The arguments of the container are ones that `serve` starts with, once the certificates are there."""
    issuer = Issuer.make(tmp_path)
    pair = issuer.for_node("server", ["*.fencehold.locks"])
    for path, name in ((pair.cert, "tls.crt"), (pair.key, "tls.key"), (issuer.ca.cert, "ca.crt")):
        path.rename(tmp_path / name)
    (container,) = objects()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    program, verb, *args = container["args"]
    assert (program, verb) == ("fencehold", "serve")
    given = {"POD_NAME": "fencehold-0", "POD_NAMESPACE": "locks"}
    for name, value in given.items():
        args = [arg.replace(f"$({name})", value) for arg in args]
    args = [arg.replace("=/tls/", f"={tmp_path}/") for arg in args]
    assert "$(" not in " ".join(args)
    said = checked(*args, FENCEHOLD_ENGINE="etcd://etcd-0,etcd-1")
    assert "fencehold-0.fencehold.locks:7420" in said
