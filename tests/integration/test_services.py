"""Services and names inside the cluster, as a pod sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.namespace import IDLE, pod
from support.testbed import PYTHON_IMAGE
from support.waiting import until

if TYPE_CHECKING:
    from support.namespace import Json, Namespace

ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode().strip())"
RESOLVE = (
    "import socket, sys; print(*sorted({item[4][0] for item in socket.getaddrinfo(sys.argv[1], 80, socket.AF_INET)}))"
)


def web(name: str) -> Json:
    """Describe a pod that tells its name, and is ready as long as a file is there."""
    script = (
        f"mkdir -p /srv; echo {name} > /srv/index.html; touch /ready; exec python3 -m http.server 8080 --directory /srv"
    )
    description = pod(name, script, image=PYTHON_IMAGE)
    description["metadata"]["labels"] = {"app": "web"}
    probe = {"exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 1, "failureThreshold": 1}
    description["spec"]["containers"][0]["readinessProbe"] = probe
    return description


def service(name: str, **spec: object) -> Json:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": "web"}, "ports": ports, **spec},
    }


def python(namespace: Namespace, program: str, argument: str) -> str:
    return namespace.kubectl("exec", "client", "--", "python3", "-c", program, argument).strip()


def test_a_service_reaches_its_ready_pods_by_name(namespace: Namespace) -> None:
    namespace.apply(service("web"))
    namespace.start(web("first"), web("second"), pod("client", IDLE, image=PYTHON_IMAGE))
    address = f"http://web.{namespace.name}.svc.cluster.local"
    seen: set[str] = set()

    def both() -> bool:
        seen.add(python(namespace, ASK, address))
        return seen == {"first", "second"}

    until("both pods have answered", both)
    assert python(namespace, ASK, "http://web") in seen, "the short name works within the namespace"

    # Readiness decides, as it will when a VM has moved: a Service points to where it is.
    namespace.kubectl("exec", "first", "--", "rm", "/ready")
    slices = (
        "get",
        "endpointslice",
        "-l",
        "kubernetes.io/service-name=web",
        "-o",
        "jsonpath={.items[*].endpoints[*].conditions.ready}",
    )
    until("one endpoint is not ready", lambda: sorted(namespace.kubectl(*slices).split()) == ["false", "true"])
    assert {python(namespace, ASK, "http://web") for _ in range(5)} == {"second"}


def test_a_headless_service_names_its_pods(namespace: Namespace) -> None:
    namespace.apply(service("web", clusterIP="None"))
    first, second, _ = namespace.start(web("first"), web("second"), pod("client", IDLE, image=PYTHON_IMAGE))
    expected = " ".join(sorted((first["status"]["podIP"], second["status"]["podIP"])))
    until(
        "both addresses are known",
        lambda: python(namespace, RESOLVE, f"web.{namespace.name}.svc.cluster.local") == expected,
    )


def test_the_api_server_has_its_usual_name(namespace: Namespace) -> None:
    namespace.start(pod("client", IDLE, image=PYTHON_IMAGE))
    assert python(namespace, RESOLVE, "kubernetes.default.svc") == "10.96.0.1"


def test_a_name_that_leads_out_of_the_cluster_does_no_harm(namespace: Namespace) -> None:
    outside = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "outside"},
        "spec": {"type": "ExternalName", "externalName": "example.com"},
    }
    namespace.apply(outside)
    namespace.start(pod("client", IDLE, image=PYTHON_IMAGE))
    tried = "import socket, sys\ntry: print(socket.getaddrinfo(sys.argv[1], 80))\nexcept OSError as error: print(error)"
    assert "not known" in python(namespace, tried, "no-such-service") or "No address" in python(
        namespace, tried, "no-such-service"
    )
    assert "10." not in python(namespace, tried, "outside")
    assert python(namespace, RESOLVE, "kubernetes.default.svc") == "10.96.0.1", "the name server still answers"
