"""What the chart renders to, and what it refuses to: by the real helm, without a cluster."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from elbowroom.config import PageSettings, Settings, load
from support.charts import CHART, HELM
from support.testbed import ROOT, complete, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.namespace import Json

BUNDLED = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
REFERENCE = re.compile(r'"(?:/api/_definitions\.json)?#/\$defs/([^"]+)"')
VERSIONS = ("1.35.0", "1.36.0")
MODES: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "in its place": ("scheduler.mode=replace",),
    "external": ("scheduler.mode=external", "guard.failurePolicy=Fail", "guard.namespaceSelector.matchLabels.a=b"),
    "extender": ("scheduler.mode=extender", "extender.secretName=extender"),
    "without a guard": ("guard.enabled=false", "policies.enabled=false", "networkPolicy.enabled=false"),
    "cert-manager": ("guard.certificate.mode=certManager", "guard.certificate.issuerRef.name=ca"),
    "an own certificate": (
        "guard.certificate.mode=secret", "guard.certificate.secretName=tls", "guard.certificate.caBundle=Q0E=",
    ),
    "monitored": (
        "metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.labels.release=prometheus", "metrics.rules.enabled=true",
        "metrics.dashboard.enabled=true",
    ),
    "seen": ("page.enabled=true", "traces.endpoint=http://collector.monitoring:4318", "traces.env[0].name=OTEL_EXPORTER_OTLP_HEADERS"),
    "small": ("operator.replicas=1", "scheduler.replicas=1", "rbac.aggregate=false", "crds.install=false"),
    "elsewhere": (
        "image.registry=registry.example.com/mirror", "image.pullSecrets[0].name=pull", "operator.image.tag=v2",
        "scheduler.nodeSelector.pool=system", "operator.tolerations[0].operator=Exists", "operator.podAnnotations.a=b",
    ),
}  # fmt: skip


FOREIGN = {"cert-manager": 1, "monitored": 2}
"""How many objects are of somebody else's kinds."""


def rendered(*values: str, space: str = "rooms", flags: tuple[str, ...] = ()) -> str:
    return run(HELM, "template", "elbowroom", CHART, "-n", space, *flags, *setting(values))


def setting(values: tuple[str, ...]) -> Iterator[str]:
    for value in values:
        yield from ("--set", value)


@cache
def objects(*values: str) -> list[Json]:
    return [item for item in yaml.safe_load_all(rendered(*values)) if item]


def one(found: list[Json], kind: str, name: str) -> Json:
    return next(item for item in found if (item["kind"], item["metadata"]["name"]) == (kind, name))


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the bundled schemas of all kinds that are rendered, each with all that it refers to in one file."""
    place = tmp_path_factory.mktemp("schemas")
    kinds = {(item["apiVersion"], item["kind"]) for mode in MODES.values() for item in objects(*mode)}
    for version in VERSIONS:
        folder = BUNDLED / f"v{version}-local-strict"
        parts = json.loads((folder / "_definitions.json").read_text())["$defs"]
        for api, kind in kinds:
            group, _, number = f"/{api}".rpartition("/")
            name = "-".join(filter(None, (kind.lower(), group.strip("/").partition(".")[0], number)))
            if (file := folder / f"{name}.json").exists():
                (place / f"{name}-{version}.json").write_text(standalone(file.read_text(), parts))
    return place


def standalone(text: str, parts: Json) -> str:
    """Put all that a schema refers to, and that those refer to, into it."""
    found: Json = {}
    wanted = REFERENCE.findall(text)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = parts[name]
            wanted += REFERENCE.findall(json.dumps(parts[name]))
    whole = {**json.loads(text), "$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": found}
    whole.pop("$id", None)
    return REFERENCE.sub(r'"#/$defs/\1"', json.dumps(whole))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_rendered_is_what_kubernetes_knows(mode: str, version: str, schemas: Path, tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(rendered(*MODES[mode], flags=("--kube-version", version)))
    done = complete(
        ROOT / "bin" / "kubeconform", "-strict", "-summary", "-output=json", "-skip=CustomResourceDefinition,Certificate,ServiceMonitor,PrometheusRule",
        "-schema-location", f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}-{version}.json", file,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert not found["resources"], found["resources"]
    assert found["summary"]["valid"] > 25
    # Kinds of others have no schema here. Our own kinds are taken by a real API server in other tests.
    assert found["summary"]["skipped"] == FOREIGN.get(mode, 0) + (0 if "crds.install=false" in MODES[mode] else 3)
    assert done.returncode == 0


def test_a_field_that_kubernetes_does_not_know_is_found(schemas: Path, tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(rendered().replace("terminationGracePeriodSeconds:", "terminationGraceSeconds:"))
    where = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}-{VERSIONS[0]}.json"
    command = (
        ROOT / "bin" / "kubeconform",
        "-strict",
        "-skip=CustomResourceDefinition",
        "-schema-location",
        where,
        file,
    )
    assert "additional properties 'terminationGraceSeconds' not allowed" in complete(*command).stdout


@pytest.mark.parametrize("mode", MODES)
def test_every_pod_keeps_to_the_restricted_standard_and_needs_no_writable_root(mode: str) -> None:
    for item in objects(*MODES[mode]):
        spec = item["spec"] if item["kind"] == "Pod" else item.get("spec", {}).get("template", {}).get("spec")
        if spec is None:
            continue
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert not any("hostPath" in volume for volume in spec.get("volumes", ()))


@pytest.mark.parametrize("mode", MODES)
def test_the_operator_can_read_the_configuration_that_it_gets(mode: str, tmp_path: Path) -> None:
    text = one(objects(*MODES[mode]), "ConfigMap", "elbowroom-operator")["data"]["config.yaml"]
    file = tmp_path / "config.yaml"
    file.write_text(text)
    settings = load(file)
    assert (settings.guard is None) == (mode == "without a guard")
    assert settings.taint == ("scheduler.mode" not in " ".join(MODES[mode]))


def test_what_the_chart_takes_as_configuration_is_what_the_operator_takes() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = schema["properties"]["operator"]["properties"]["config"]["properties"].keys()
    fields = Settings.model_json_schema(by_alias=True)["properties"].keys()
    assert known | {"guard", "page", "taint", "scheduler"} == fields  # those the chart decides about


def test_the_page_is_there_for_who_asks_for_it() -> None:
    def settings(*values: str) -> Settings:
        maps = (item for item in objects(*values) if item["kind"] == "ConfigMap")
        config = next(item for item in maps if item["metadata"]["name"] == "elbowroom-operator")["data"]
        return Settings.model_validate(yaml.safe_load(config["config.yaml"]))

    assert settings().page is None
    assert settings("page.enabled=true").page == PageSettings(address="127.0.0.1", port=8090)
    assert settings("page.enabled=true", "page.hosts={rooms.test}").page == PageSettings(hosts=("rooms.test",))


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("http://collector:4318", 4318),
        ("https://collector-1/otlp", 443),
        ("http://10.0.0.1", 80),
        ("http://[fd00::1]:4318", 4318),
    ],
)
def test_traces_get_out_at_their_port_and_no_other(endpoint: str, port: int) -> None:
    def ports(*values: str) -> list[int]:
        policy = one(objects(*values), "NetworkPolicy", "elbowroom-operator")
        return [item["port"] for rule in policy["spec"]["egress"] for item in rule.get("ports", ())]

    assert ports(f"traces.endpoint={endpoint}") == [*ports(), port]


def leaves(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    if "properties" in schema:
        for name, part in schema["properties"].items():
            yield from leaves(part, f"{path}.{name}" if path else name)
    elif path != "global":
        yield path, schema


def test_every_value_is_documented_and_has_its_default_in_the_readme() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    table = (CHART / "README.md").read_text().partition("## Values")[2]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", table, re.MULTILINE))
    told = dict(leaves(schema))
    assert rows.keys() == told.keys()
    for path, part in told.items():
        default: Any = values
        for name in path.split("."):
            default = default.get(name) if isinstance(default, dict) else None
        shown = "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"
        assert rows[path] == f"{shown} | {part['description']}", path


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (("operator.replicas=none",), "at '/operator/replicas': got string, want integer"),
        (("guard.failurePolicy=maybe",), "at '/guard/failurePolicy': value must be one of 'Ignore', 'Fail'"),
        (("operator.config.rests=5m",), "at '/operator/config': additional properties 'rests' not allowed"),
        (("operator.config.rest=long",), "at '/operator/config/rest'"),
        (("scheduler.mode=none",), "at '/scheduler/mode': value must be one of"),
        (("scheduler.mode=extender",), "at '/extender/secretName': minLength: got 0, want 1"),
        (("guard.certificate.mode=secret",), "at '/guard/certificate/secretName': minLength: got 0, want 1"),
        (("guard.certificate.mode=certManager",), "at '/guard/certificate/issuerRef': missing property 'name'"),
        (("taint=perhaps",), "at '/taint': got string, want null or boolean"),
        (("operator.image.digest=abc",), "at '/operator/image/digest'"),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_refused_by_its_name(values: tuple[str, ...], told: str) -> None:
    done = complete(HELM, "template", "elbowroom", CHART, *setting(values))
    assert done.returncode != 0
    assert told in done.stderr, done.stderr


def test_an_older_kubernetes_is_refused() -> None:
    done = complete(HELM, "template", "elbowroom", CHART, "--kube-version", "1.34.2")
    assert "chart requires kubeVersion: >=1.35.0-0 which is incompatible with Kubernetes v1.34.2" in done.stderr


def test_lint_has_nothing_to_say() -> None:
    assert "[WARNING]" not in run(HELM, "lint", "--strict", CHART)
