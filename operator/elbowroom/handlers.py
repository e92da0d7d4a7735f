"""What kopf calls. Each handler is one call: what follows from it is decided elsewhere.

They are coroutines, though they wait for nothing: kopf runs other handlers in threads.
"""

from __future__ import annotations

from typing import Any

import kopf

from elbowroom.api.base import GROUP, VERSION

registry = kopf.OperatorRegistry()


@kopf.on.startup(registry=registry)
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Have kopf watch our own kinds, and nothing else: it writes nothing, posts nothing, and knows no peers."""
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.connect_timeout = 5
    settings.networking.request_timeout = 30
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300


@kopf.on.login(registry=registry)
def login(**context: Any) -> kopf.ConnectionInfo | None:
    """Log in as every client does."""
    return kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)


@kopf.on.event(GROUP, VERSION, "vmscalerequests", registry=registry)
async def request_seen(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # noqa: A002
    """Take in a request."""
    memo.operator.saw_request(type, dict(body))


@kopf.on.event(GROUP, VERSION, "vmmigrations", registry=registry)
async def migration_seen(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # noqa: A002
    """Take in a migration."""
    memo.operator.saw_migration(type, dict(body))


@kopf.on.event(GROUP, VERSION, "capacityholds", registry=registry)
async def hold_seen(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # noqa: A002
    """Take in a hold."""
    memo.operator.saw_hold(type, dict(body))
