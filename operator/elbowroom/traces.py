"""What took how long, for OpenTelemetry: one trace for each request, across operators and runners.

Nothing is remembered for it. A trace's id is the UID of its request, and a span's id is made of whose span it is: so an
operator that takes over, and the runner of a VM that moves, go on with the same trace and were told nothing before.

It is off unless OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) says where traces go. All else is
as OpenTelemetry's own variables say; what cannot be sent is dropped, and nobody waits for it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.trace import SpanContext

_log = logging.getLogger(__name__)
_WHERE: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")
_NANO: Final = 1_000_000_000
_LAST_WORDS_MILLISECONDS: Final = 3000


class NotInstalledError(Exception):
    """Traces are wanted, and what sends them is not there."""


@dataclass(frozen=True)
class Place:
    """Where something is in a trace: what is begun for it has it as its parent."""

    trace: str
    span: str

    @classmethod
    def of(cls, uid: str) -> Place:
        """Return the place of an object in its own trace."""
        plain = uid.replace("-", "").lower()
        trace = plain if re.fullmatch(r"[0-9a-f]{32}", plain) else hashlib.sha256(uid.encode()).hexdigest()[:32]
        return cls(trace, _id(uid))

    @classmethod
    def told(cls, header: str) -> Place | None:
        """Read a `traceparent`; what is none is nobody's."""
        found = _PARENT.fullmatch(header)
        return None if found is None else cls(found[1], found[2])

    def header(self) -> str:
        """Write it as a `traceparent`."""
        return f"00-{self.trace}-{self.span}-01"

    def below(self, *words: str) -> Place:
        """Return the place of a part of it."""
        return Place(self.trace, _id(self.span, *words))


def _id(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Span:
    """Something that has come to its end."""

    name: str
    place: Place
    parent: Place | None
    began: float
    """Seconds since 1970."""
    ended: float
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    failed: str = ""
    """Why, if it has."""


class Teller(Protocol):
    """Takes spans."""

    def tell(self, span: Span) -> None:
        """Take one. Nobody waits for what becomes of it."""

    def close(self) -> None:
        """Send what was not sent yet, within some seconds."""


class Silent:
    """Tells nobody."""

    def tell(self, span: Span) -> None:
        """Forget it."""

    def close(self) -> None:
        """Do nothing."""


class Sender:
    """Sends spans by OTLP, from a thread of its own."""

    def __init__(self, service: str) -> None:
        """Say whose spans they are."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError as error:
            raise NotInstalledError(
                f"{_wanted()} is set, and {error.name} is missing: pip install 'elbowroom[traces]'"
            ) from error
        self._resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)})
        self._queue = BatchSpanProcessor(OTLPSpanExporter())

    def tell(self, span: Span) -> None:
        """Put it into the queue; where that is full it is dropped."""
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
        from opentelemetry.trace.status import Status, StatusCode  # noqa: PLC0415

        status = Status(StatusCode.ERROR, span.failed) if span.failed else Status(StatusCode.OK)
        self._queue.on_end(
            ReadableSpan(
                span.name, context=_context(span.place), parent=None if span.parent is None else _context(span.parent),
                resource=self._resource, attributes=span.facts, status=status,
                start_time=round(span.began * _NANO), end_time=round(max(span.began, span.ended) * _NANO),
            )
        )  # fmt: skip

    def close(self) -> None:
        """Send what is left."""
        self._queue.force_flush(_LAST_WORDS_MILLISECONDS)


def _context(place: Place) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(place.trace, 16), int(place.span, 16), is_remote=False, trace_flags=sampled)


def _wanted() -> str:
    return next((name for name in _WHERE if os.environ.get(name)), "")


def teller(service: str) -> Teller:
    """Return who takes the spans of a service."""
    return Sender(service) if _wanted() else Silent()
