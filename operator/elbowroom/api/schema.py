"""From a pydantic model to the structural schema that a CRD wants.

Kubernetes takes a part of JSON schema only: no references, no titles, no "or null", a type everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import DURATION_PATTERN, Json

if TYPE_CHECKING:
    from pydantic import BaseModel

_KEPT = (
    "default", "description", "enum", "format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minimum", "pattern", "required", "type",
)  # fmt: skip


# As rules and not as patterns: these have a sentence.
_DURATION: Json = {
    "rule": f"self.matches('{DURATION_PATTERN}')", "message": "has to be a duration such as 10m, 90s or 1h30m",
}  # fmt: skip
_QUANTITY: Json = {"rule": "isQuantity(string(self))", "message": "has to be a quantity such as 2, 500m or 8Gi"}


def structural(model: type[BaseModel]) -> Json:
    """Return the schema of a model."""
    raw = model.model_json_schema(by_alias=True)
    return _convert(raw, raw.get("$defs", {}))


def _convert(node: Json, definitions: Json) -> Json:
    node = _resolved(node, definitions)
    if node.pop("quantity", False):
        return _quantity(node)
    result: Json = {key: node[key] for key in _KEPT if key in node}
    if node.get("duration"):
        result["x-kubernetes-validations"] = [_DURATION]
    if isinstance(result.get("default"), dict):
        result["default"] = {}  # its own fields have their defaults
    if result.get("default", 0) is None:
        del result["default"]
    if result["type"] == "integer":
        result["format"] = "int64"
    if result["type"] == "object":
        _object(node, result, definitions)
    if result["type"] == "array":
        result["items"] = _convert(node["items"], definitions)
        keys = node.get("list_map")
        result["x-kubernetes-list-type"] = "map" if keys else "atomic"
        if keys:
            result["x-kubernetes-list-map-keys"] = keys
    return result


def _object(node: Json, result: Json, definitions: Json) -> None:
    if "properties" in node:
        result["properties"] = {name: _convert(child, definitions) for name, child in node["properties"].items()}
    elif "additionalProperties" in node:
        result["additionalProperties"] = _convert(node["additionalProperties"], definitions)


def _resolved(node: Json, definitions: Json) -> Json:
    """Put in what is referred to, and forget that it may be null: then it is left out."""
    node = dict(node)
    if "anyOf" in node:
        (only,) = (choice for choice in node.pop("anyOf") if choice != {"type": "null"})
        node = {**only, **node}
    if "$ref" in node:
        target = definitions[node.pop("$ref").rpartition("/")[2]]
        # What stands beside a reference says more than what it refers to.
        node = {**_resolved(target, definitions), **node}
    return node


def _quantity(node: Json) -> Json:
    kept = {key: node[key] for key in ("default", "description") if node.get(key) is not None}
    return {
        **kept, "anyOf": [{"type": "integer"}, {"type": "string"}], "maxLength": 32,
        "x-kubernetes-int-or-string": True, "x-kubernetes-validations": [_QUANTITY],
    }  # fmt: skip
