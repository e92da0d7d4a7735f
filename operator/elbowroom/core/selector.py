"""Label selectors, as everywhere in Kubernetes."""

from __future__ import annotations

from typing import Literal, NamedTuple

Labels = frozenset[tuple[str, str]]


class Rule(NamedTuple):
    """One rule."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: frozenset[str] = frozenset()

    def matches(self, labels: dict[str, str]) -> bool:
        """Tell whether labels follow it. A missing label is not in any list."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


class Selector(NamedTuple):
    """All of its rules have to match."""

    rules: tuple[Rule, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Tell whether a pod's labels are selected."""
        known = dict(labels)
        return all(rule.matches(known) for rule in self.rules)
