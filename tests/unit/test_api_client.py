"""The way to the API server is the one that the kubeconfig says."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp import web
from elbowroom.cluster.client import Api, UnavailableError
from support.certificates import self_signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NAME = "api.test"


@asynccontextmanager
async def server(folder: Path, *, secure: bool) -> AsyncIterator[int]:
    """Provide a server that says by which address it was asked."""
    made = self_signed(NAME)
    (folder / "tls.crt").write_text(made.certificate)
    (folder / "tls.key").write_text(made.key)
    context = None
    if secure:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"asked": str(request.rel_url), "host": request.host})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def asked(monkeypatch: pytest.MonkeyPatch, folder: Path, cluster: dict[str, Any], *, secure: bool = True) -> Any:
    """Ask by a kubeconfig whose cluster is this; `PORT` in it is the server's."""

    async def ask() -> Any:
        async with server(folder, secure=secure) as port:
            told = {
                key: value.replace("PORT", str(port)) if isinstance(value, str) else value
                for key, value in cluster.items()
            }
            config = {
                "apiVersion": "v1", "kind": "Config", "current-context": "here",
                "clusters": [{"name": "here", "cluster": told}], "users": [{"name": "me", "user": {"token": "t"}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            }  # fmt: skip
            (folder / "kubeconfig").write_text(yaml.safe_dump(config))
            monkeypatch.setattr(
                "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(folder / "kubeconfig")
            )
            api = Api.from_kubeconfig()
            try:
                return await api.get("/version")
            finally:
                await api.close()

    return asyncio.run(ask())


def test_a_server_whose_certificate_nobody_vouches_for_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match=r"(?i)certificate"):
        asked(monkeypatch, tmp_path, {"server": "https://127.0.0.1:PORT"})


@pytest.mark.parametrize(
    "cluster",
    [
        {"insecure-skip-tls-verify": True},
        {"certificate-authority": "tls.crt", "tls-server-name": NAME},
    ],
    ids=["whatever it is", "under another name"],
)
def test_it_is_asked_where_the_kubeconfig_says_what_to_make_of_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cluster: dict[str, Any]
) -> None:
    found = asked(monkeypatch, tmp_path, {"server": "https://127.0.0.1:PORT", **cluster})
    assert found["asked"] == "/version"


def test_a_proxy_of_the_kubeconfig_is_asked_and_the_environments_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    direct = asked(monkeypatch, tmp_path, {"server": "http://127.0.0.1:PORT"}, secure=False)
    assert direct["host"].startswith("127.0.0.1:")
    through = {"server": f"http://{NAME}", "proxy-url": "http://127.0.0.1:PORT"}
    assert asked(monkeypatch, tmp_path, through, secure=False)["host"] == NAME
