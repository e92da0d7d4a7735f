"""`elbowroom`: the operator's command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubernetes import client, config
from prometheus_client import start_http_server

from elbowroom.app import Operator, StartError
from elbowroom.check import Check, CheckError
from elbowroom.cluster.client import Api, ApiError
from elbowroom.config import ConfigError, GuardSettings, Settings, load
from elbowroom.core.duration import InvalidDurationError, seconds
from elbowroom.extender.app import Address, ExtenderApp, ListenError
from elbowroom.guard.server import PortError, new_guard
from elbowroom.health import HealthPortError
from elbowroom.leader import LostError
from elbowroom.page.server import PagePortError
from elbowroom.retire import LeftError, Retirement
from elbowroom.runner.logs import set_up
from elbowroom.traces import NotInstalledError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="elbowroom", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    operator = commands.add_parser("operator", help="grow VMs by moving their neighbours, until SIGTERM")
    guard = commands.add_parser("guard", help="keep held room at the API server, beside an operator, until SIGTERM")
    for command in (operator, guard):
        command.add_argument("--config", type=Path, help="the operator's YAML file: what differs from the defaults")
    retire = commands.add_parser("retire", help="before an uninstall: bring all to an end, and switch the operator off")
    retire.add_argument("--deployment", default="elbowroom-operator", help="the operator's", metavar="NAME")
    retire.add_argument("--within", type=_duration, default=600.0, help="how long it may take", metavar="DURATION")
    check = commands.add_parser("check", help="after an installation: is everything in its place?")
    check.add_argument("--guard", action="store_true", help="there is to be a guard")
    check.add_argument("--within", type=_duration, default=60.0, help="how long it may take", metavar="DURATION")
    extender = commands.add_parser("extender", help="have a stock scheduler keep to holds, until SIGTERM")
    extender.add_argument(
        "--listen", type=_address, default=("127.0.0.1", 8888), help="where the scheduler asks", metavar="HOST:PORT"
    )
    extender.add_argument(
        "--tls", type=Path, help="a folder with tls.crt and tls.key, and the ca.crt of who may ask", metavar="FOLDER"
    )
    for command in (operator, extender):
        command.add_argument(
            "--health-port", type=int, default=0, help="where the kubelet asks for /healthz and /readyz", metavar="PORT"
        )
    for command in (operator, guard, extender, retire, check):
        _add_common(command)
    arguments = parser.parse_args()
    set_up(logging.DEBUG if arguments.verbose else logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_without_settings)
    for noisy in ("kubernetes", "urllib3", "asyncio", "aiohttp.access", "kopf"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        work = _WORK[arguments.command](arguments)
    except (ConfigError, ListenError) as error:
        parser.exit(2, f"elbowroom: {error}\n")
    if arguments.metrics_port:
        start_http_server(arguments.metrics_port)
    sys.exit(asyncio.run(_to_its_end(work)))


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", "elbowroom-system"),
        help="where its Lease is, and the operator's Secret",
    )
    command.add_argument(
        "--identity",
        default=f"{socket.gethostname()}-{secrets.token_hex(4)}",
        help="its name among others like it, which no other one may have",
    )
    command.add_argument(
        "--metrics-port", type=int, default=0, help="where Prometheus may ask; not at all without it", metavar="PORT"
    )
    command.add_argument("--verbose", action="store_true", help="log what is waited for, too")


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _duration(text: str) -> float:
    try:
        return seconds(text)
    except InvalidDurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _without_settings(record: logging.LogRecord) -> bool:
    """Take off what kopf puts on each of its records for itself: it cannot be written as JSON."""
    record.__dict__.pop("settings", None)
    return True


def _operate(arguments: argparse.Namespace) -> Callable[[], Awaitable[None]]:
    settings = load(arguments.config) if arguments.config else Settings()
    # kopf asks what its user is called, and ends where a container's user has no name.
    os.environ.setdefault("LOGNAME", "elbowroom")

    async def run() -> None:
        api, core = Api.from_environment(), _core()
        operator = Operator(
            api, core, arguments.namespace, arguments.identity, settings, health_port=arguments.health_port
        )
        await _until_terminated(operator.run())  # while it stands by; once it leads, kopf takes signals

    return run


def _core() -> client.CoreV1Api:
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        config.load_kube_config()  # type: ignore[no-untyped-call]
    return client.CoreV1Api()


def _guard(arguments: argparse.Namespace) -> Callable[[], Awaitable[None]]:
    settings = load(arguments.config) if arguments.config else Settings()

    async def run() -> None:
        guard = new_guard(Api.from_environment(), _core(), arguments.namespace, settings.guard or GuardSettings())
        await _until_terminated(guard.run())

    return run


def _extend(arguments: argparse.Namespace) -> Callable[[], Awaitable[None]]:
    host, port = arguments.listen
    address = Address(host, port, arguments.tls)
    address.check()

    async def run() -> None:
        app = ExtenderApp(
            Api.from_environment(), arguments.namespace, arguments.identity, address,
            health_port=arguments.health_port, pod=os.environ.get("POD_NAME"),
        )  # fmt: skip
        await _until_terminated(app.run())

    return run


def _retire(arguments: argparse.Namespace) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        retirement = Retirement(
            Api.from_environment(), arguments.namespace, arguments.deployment, arguments.within
        )  # fmt: skip
        await _until_terminated(retirement.run())

    return run


def _check(arguments: argparse.Namespace) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        api = Api.from_environment()
        asked = Check(api, arguments.namespace, guard=arguments.guard, say=lambda line: print(line, flush=True))  # noqa: T201  # for people
        await _until_terminated(asked.run(arguments.within))

    return run


_WORK: dict[str, Callable[[argparse.Namespace], Callable[[], Awaitable[None]]]] = {
    "operator": _operate, "guard": _guard, "extender": _extend, "retire": _retire, "check": _check,
}  # fmt: skip


async def _until_terminated(work: Coroutine[None, None, None]) -> None:
    """Run something until SIGTERM, and let it clean up: a Lease is given back, for instance."""
    task = asyncio.create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


_TOLD: Final = (
    LostError, StartError, NotInstalledError, PortError, HealthPortError, PagePortError, ListenError, LeftError,
    CheckError, ApiError,
)  # fmt: skip
"""What ends a process with one sentence."""


async def _to_its_end(work: Callable[[], Awaitable[None]]) -> int:
    code = 0
    try:
        await work()
    except* _TOLD as errors:
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
