"""What must survive the agent: it may be killed between any two lines, and its successor goes on from here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from .messages import Destination, Incident, Limits, Shape, TransferPhase

if TYPE_CHECKING:
    from pathlib import Path

_KEPT_INCIDENTS = 50


class QemuProcess(BaseModel):
    """A process, told from another that has its number later."""

    model_config = ConfigDict(frozen=True)

    pid: int
    start_time: int


class OutgoingRecord(BaseModel):
    """A move away."""

    attempt: int
    to: Destination
    limits: Limits
    started_at: float
    """By the clock that all processes of this machine share (monotonic)."""
    committed_at: float | None = None
    cancelled: bool = False
    ending: TransferPhase = TransferPhase.FAILED
    """How it counts once it has been cancelled."""
    ended: TransferPhase | None = None
    message: str = ""
    downtime_ms: int | None = None
    total_ms: int | None = None
    stopped_ms: float | None = None
    trace: str = ""
    """The traceparent of the migration, where its operator has said so."""

    @property
    def committed(self) -> bool:
        """Tell whether it may switch over. One write decides this, and nothing takes it back."""
        return self.committed_at is not None


class IncomingRecord(BaseModel):
    """A move to here."""

    attempt: int
    listening: bool = False
    """QEMU waits for the stream: before that it is half a receiver, and none."""
    released: bool = False


class Record(BaseModel):
    """All of it."""

    qemu: QemuProcess | None = None
    shape: Shape | None = None
    last_attempt: int = 0
    obstacle: str = ""
    incoming: IncomingRecord | None = None
    outgoing: OutgoingRecord | None = None
    incidents: list[Incident] = []

    def add(self, incident: Incident) -> None:
        """Remember what happened; the oldest are forgotten first."""
        self.incidents = [*self.incidents, incident][-_KEPT_INCIDENTS:]


class RecordFile:
    """The record on disk, replaced in one step."""

    def __init__(self, path: Path) -> None:
        """Say where it is."""
        self._path = path

    def load(self) -> Record | None:
        """Return what a former agent has left, or nothing."""
        try:
            return Record.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None

    def save(self, record: Record) -> None:
        """Write it before what it says is done. It need not survive the machine: QEMU does not either."""
        new = self._path.with_suffix(".new")
        new.write_text(record.model_dump_json())
        os.replace(new, self._path)  # noqa: PTH105
