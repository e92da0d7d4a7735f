"""What a user writes about a VM, and the one sentence that each mistake gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from elbowroom.runner.config import ConfigError, parse

SMALL = "kernel: /k\nmemory: 256Mi\n"


def test_the_smallest_configuration() -> None:
    config = parse(SMALL)
    assert (config.kernel, config.memory, config.cpus) == (Path("/k"), 256 << 20, 1)
    assert (config.most_cpus, config.most_memory) == (1, 256 << 20)
    assert config.network.kind == "user"


def test_a_port_is_a_number_or_a_pair() -> None:
    config = parse(f"{SMALL}ports: [8080, {{port: 80, guest: 8000}}]")
    assert [(port.port, port.guest) for port in config.ports] == [(8080, 8080), (80, 8000)]


BAD = {
    "": "the configuration has to be a mapping such as {kernel: /guest/vmlinuz, memory: 256Mi}",
    "[1]": "the configuration has to be a mapping such as {kernel: /guest/vmlinuz, memory: 256Mi}",
    "memory: [": "the configuration is not YAML: expected the node content, but found '<stream end>' in line 1",
    "kernel: /k": "memory: is missing",
    "memory: 256Mi": "kernel: a VM needs a kernel or at least one disk to boot from",
    "memory: 256Mi\ninitrd: /i\ndisks: [{path: /d}]": "kernel: initrd and commandLine have no meaning without it",
    f"{SMALL}memroy: 1Gi": "memroy: there is no such key",
    "kernel: /k\nmemory: 1Mi": "memory: 1Mi is not a multiple of 2Mi",
    "kernel: /k\nmemory: 2Mi": "memory: Input should be greater than or equal to 33554432",
    "kernel: /k\nmemory: lots": "memory: 'lots' is not a quantity such as 2, 500m or 8Gi",
    "kernel: /k\nmemory: true": "memory: True is not a quantity such as 512Mi",
    f"{SMALL}maxMemory: 128Mi": "memory: 256Mi is more than maxMemory (128Mi)",
    f"{SMALL}cpus: 4\nmaxCpus: 2": "cpus: 4 is more than maxCpus (2)",
    f"{SMALL}cpus: 0": "cpus: Input should be greater than or equal to 1",
    f"{SMALL}ports: [80, 80]": "ports: the same port is given twice",
    f"{SMALL}ports: [99999]": "ports.0.port: Input should be less than or equal to 65535",
    f"{SMALL}ports: [{{port: 8443, guest: 443}}]": "ports: 8443 is the runner's own; use {port: OTHER, guest: 443}",
    f"{SMALL}ready: {{tcp: 80}}": "ready.tcp: 80 is not among ports",
    f"{SMALL}ready: {{http: {{port: 80}}}}": "ready.http.port: 80 is not among ports",
    f"{SMALL}network: {{kind: tap}}": "network: tap: give the device's name with kind: tap, and only there",
    f"{SMALL}network: {{kind: none}}\nports: [80]": "ports: only network kind user forwards ports, this one is none",
    f"{SMALL}accelerator: fast": "accelerator: Input should be 'auto', 'kvm' or 'tcg'",
    f"{SMALL}cpuModel: 'max -x'": "cpuModel: String should match pattern '^[A-Za-z0-9_.,=+-]+$'",
    f"{SMALL}disks: [{{path: /d, format: vmdk}}]": "disks.0.format: Input should be 'qcow2' or 'raw'",
}


@pytest.mark.parametrize(("text", "sentence"), BAD.items())
def test_a_mistake_gets_one_sentence_that_names_the_field(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert str(error.value) == sentence


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    config = parse(f"kernel: {tmp_path}/vmlinuz\nmemory: 256Mi")
    with pytest.raises(ConfigError, match=r"^kernel: there is no file .*/vmlinuz$"):
        config.check_files()
