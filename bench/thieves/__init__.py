"""Who gets the room that a neighbour leaves, when everybody wants it at once: `make bench-thieves`."""
