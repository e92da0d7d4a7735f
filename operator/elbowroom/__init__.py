"""Elbowroom: room for a VM to grow, made by moving its neighbour."""

from importlib.metadata import version

__version__ = version("elbowroom")
