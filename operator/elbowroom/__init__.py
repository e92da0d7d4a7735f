"""Elbowroom: room for a VM to grow, made by moving its neighbour."""
