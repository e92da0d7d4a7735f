"""`elbowroom`: the operator's command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes import client, config
from prometheus_client import start_http_server

from elbowroom.app import Operator, StartError
from elbowroom.cluster.client import Api, ApiError
from elbowroom.config import ConfigError, Settings, load
from elbowroom.guard.server import PortError
from elbowroom.leader import LostError
from elbowroom.runner.logs import set_up

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="elbowroom", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    operator = commands.add_parser("operator", help="grow VMs by moving their neighbours, until SIGTERM")
    operator.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", "elbowroom-system"),
        help="where its Lease and its authority's Secret are",
    )
    operator.add_argument(
        "--identity",
        default=f"{socket.gethostname()}-{secrets.token_hex(4)}",
        help="its name among operators, which no other one may have",
    )
    operator.add_argument("--config", type=Path, help="a YAML file with limits and times that differ from the defaults")
    operator.add_argument(
        "--metrics-port", type=int, default=0, help="where Prometheus may ask; not at all without it", metavar="PORT"
    )
    operator.add_argument("--verbose", action="store_true", help="log what is waited for, too")
    arguments = parser.parse_args()
    set_up(logging.DEBUG if arguments.verbose else logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_without_settings)
    for noisy in ("kubernetes", "urllib3", "asyncio", "aiohttp.access", "kopf"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        settings = load(arguments.config) if arguments.config else Settings()
    except ConfigError as error:
        parser.exit(2, f"elbowroom: {error}\n")
    if arguments.metrics_port:
        start_http_server(arguments.metrics_port)
    sys.exit(asyncio.run(_operate(arguments.namespace, arguments.identity, settings)))


def _without_settings(record: logging.LogRecord) -> bool:
    """Take off what kopf puts on each of its records for itself: it cannot be written as JSON."""
    record.__dict__.pop("settings", None)
    return True


async def _operate(namespace: str, identity: str, settings: Settings) -> int:
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        config.load_kube_config()  # type: ignore[no-untyped-call]
    operator = Operator(Api.from_environment(), client.CoreV1Api(), namespace, identity, settings)
    code = 0
    try:
        await operator.run()
    except* (LostError, StartError, PortError, ApiError) as errors:
        logging.getLogger(__name__).critical("; ".join(map(str, _leaves(errors))))
        code = 1
    return code


def _leaves(errors: BaseExceptionGroup) -> Iterator[BaseException]:
    """Return what went wrong, whatever groups it came in."""
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


if __name__ == "__main__":
    main()
