"""The CRDs, and the program that writes them: `python -m elbowroom.api.crds crds`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from . import hold, migration, scale_request
from .base import GROUP, VERSION, Json
from .schema import structural

if TYPE_CHECKING:
    from pydantic import BaseModel


class _Plain(yaml.SafeDumper):
    """Writes a thing that stands in two places twice: nobody wants to read anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Say so."""
        del data
        return True


HEADER = "# Generated from the models in operator/elbowroom/api by `make crds`: change those.\n"


@dataclass(frozen=True)
class Kind:
    """One kind of ours."""

    name: str
    plural: str
    short: str
    scope: str
    spec: type[BaseModel]
    status: type[BaseModel]
    rules: list[Json]
    columns: tuple[tuple[str, str, str], ...]
    """Title, type and path. The last ones are left out of narrow terminals."""
    description: str
    wide: tuple[tuple[str, str, str], ...] = ()


_AGE = ("Age", "date", ".metadata.creationTimestamp")
KINDS = (
    Kind(
        "VMScaleRequest", "vmscalerequests", "vmsr", "Namespaced", scale_request.ScaleRequestSpec,
        scale_request.ScaleRequestStatus, scale_request.RULES,
        (
            ("VM", "string", ".spec.vm"), ("Node", "string", ".status.node"), ("From", "string", ".status.from"),
            ("To", "string", ".status.to"), ("Phase", "string", ".status.phase"),
            ("Reason", "string", ".status.reason"), ("Moving", "string", ".status.moving"), _AGE,
        ),
        "Another size for a VM, or for any pod; where its node is full, neighbours are moved to make the room.",
        (("Pod", "string", ".status.pod.name"), ("Message", "string", ".status.message")),
    ),
    Kind(
        "VMMigration", "vmmigrations", "vmm", "Namespaced", migration.MigrationSpec, migration.MigrationStatus,
        migration.RULES,
        (
            ("VM", "string", ".spec.vm"), ("From", "string", ".status.source.node"),
            ("To", "string", ".status.receiver.node"), ("Phase", "string", ".status.phase"),
            ("Reason", "string", ".status.reason"), ("Percent", "integer", ".status.percent"), _AGE,
        ),
        "One live migration of one VM to another node.",
        (
            ("Downtime", "integer", ".status.downtimeMilliseconds"), ("Request", "string", ".spec.request.name"),
            ("Message", "string", ".status.message"),
        ),
    ),
    Kind(
        "CapacityHold", "capacityholds", "hold", "Cluster", hold.HoldSpec, hold.HoldStatus, hold.RULES,
        (
            ("Node", "string", ".spec.node"), ("Claimant", "string", ".spec.claimant.name"),
            ("CPU", "string", ".spec.target.cpu"), ("Memory", "string", ".spec.target.memory"),
            ("Phase", "string", ".status.phase"), ("Committed", "boolean", ".spec.committed"), _AGE,
        ),
        "The room on one node that belongs to one pod. Named after that pod's UID, so that there is one at most.",
        (("Reason", "string", ".status.reason"), ("Namespace", "string", ".spec.claimant.namespace")),
    ),
)  # fmt: skip


def crd(kind: Kind) -> Json:
    """Return the CRD of a kind."""
    spec = structural(kind.spec)
    spec["x-kubernetes-validations"] = kind.rules
    schema = {
        "type": "object", "description": kind.description, "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": spec, "status": structural(kind.status),
        },
    }  # fmt: skip
    columns = [
        {"name": title, "type": kind_of, "jsonPath": path, **({"priority": 1} if wide else {})}
        for wide, group in ((False, kind.columns), (True, kind.wide))
        for title, kind_of, path in group
    ]
    names = {"kind": kind.name, "listKind": f"{kind.name}List", "plural": kind.plural, "singular": kind.name.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP, "scope": kind.scope,
            "names": {**names, "shortNames": [kind.short], "categories": ["elbowroom"]},
            "versions": [
                {
                    "name": VERSION, "served": True, "storage": True, "subresources": {"status": {}},
                    "additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }  # fmt: skip


def files() -> dict[str, str]:
    """Return the files that belong into `crds/`, by their names."""
    return {
        f"{kind.plural}.{GROUP}.yaml": HEADER + yaml.dump(crd(kind), Dumper=_Plain, sort_keys=False, width=120)
        for kind in KINDS
    }


def main() -> int:
    """Write them into each of the folders that are named."""
    for folder in map(Path, sys.argv[1:]):
        folder.mkdir(exist_ok=True, parents=True)
        for name, text in files().items():
            (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
