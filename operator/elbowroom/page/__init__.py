"""The live page: what the operator sees, drawn for people. It is read-only, and off unless the configuration has it."""
