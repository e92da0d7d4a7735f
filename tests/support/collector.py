"""A collector of traces, as small as can be: it takes what OpenTelemetry's own exporter sends, by OTLP over HTTP."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from types import TracebackType


class Collected(NamedTuple):
    """A span as it came."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    seconds: float
    facts: dict[str, str | int | float | bool]
    failed: str


class Collector:
    """Use it as a context manager."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        """Say where it listens; the port is any that is free."""
        self.spans: list[Collected] = []
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # its name is the library's
                take(self.rfile.read(int(self.headers["Content-Length"])), self.path, self.headers["Content-Encoding"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{self._server.server_port}"

    def _take(self, text: bytes, path: str, encoding: str | None) -> None:
        assert path == "/v1/traces", path
        assert encoding is None, encoding
        for resource in ExportTraceServiceRequest.FromString(text).resource_spans:
            service = {item.key: item.value.string_value for item in resource.resource.attributes}["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    facts = {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}
                    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
                    self.spans.append(
                        Collected(
                            service, span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                            seconds, facts, span.status.message,
                        )
                    )  # fmt: skip

    def __enter__(self) -> Self:
        """Listen."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
