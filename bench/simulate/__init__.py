"""A cluster of thousands of nodes over hours: the shipped decisions, and everything else simulated."""
