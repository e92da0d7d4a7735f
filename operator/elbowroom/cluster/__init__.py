"""The cluster as the operator sees it, and what it can do there."""
