"""Fuzz tests of the HTTP API: generated and random requests must cause no server error and no undocumented answer."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from representatives import representatives
from running import Admin, Gateway, until

EXAMPLES = {"gateway": 12, "admin": 20}
"""Examples per operation, by the token's scope.

Admin tokens get more examples: the API refuses most of their requests, since they may not register nodes.
"""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "missing_required_header",
    "unsupported_method",
    "use_after_free",
)
DOCUMENTED = {
    "/api/v1/nodes": {"get", "post"},
    "/api/v1/nodes/{id}": {"delete"},
    "/api/v1/nodes/{id}/heartbeat": {"post"},
    "/api/v1/nodes/{id}/metrics": {"post"},
    "/api/v1/nodes/{id}/history": {"get"},
    "/api/v1/events": {"get"},
    "/healthz": {"get"},
    "/metrics": {"get"},
}


def test_every_operation_and_answer_is_documented(admin: Admin) -> None:
    schema = httpx.get(f"{admin.url}/openapi.json").json()
    assert {path: set(operations) for path, operations in schema["paths"].items()} == DOCUMENTED
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert operation["description"], path
            if path != "/healthz":
                assert operation["security"], path
                assert {"401", "429"} <= set(operation["responses"]), path
            for status, answer in operation["responses"].items():
                assert answer["description"], (path, status)
                if status >= "400" and path != "/healthz":
                    shown = answer["content"]["application/json"]["schema"]
                    assert shown == {"$ref": "#/components/schemas/Problem"}, (path, status)


@pytest.mark.parametrize("scope", representatives(["gateway", "admin"], "gateway"))
def test_schemathesis_finds_no_fault(start: Callable[..., Admin], tmp_path: Path, scope: str) -> None:
    program = shutil.which("st", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("schemathesis, of the extra `dev`, is not installed")
    # With an open page, requests would need no token. With low limits, requests would not reach the API.
    admin = start(page="token", address_per_s=1_000_000, token_per_s=1_000_000)
    token = admin.token("fuzz", "--scope", scope)
    schema = httpx.get(f"{admin.url}/openapi.json").json()
    file = tmp_path / "openapi.json"
    arguments = [str(file), "--url", admin.url]
    if scope == "gateway":
        with Gateway(admin.url, token) as gateway:
            gateway.register()
        name_node(schema, gateway.id)
        arguments += ["--exclude-method", "DELETE"]
    bound(schema)
    file.write_text(json.dumps(schema))
    done = subprocess.run(
        [
            *(program, "run", *arguments),
            *("--header", f"Authorization: Bearer {token}"),
            *("--checks", ",".join(CHECKS)),
            # Exclude the event stream, since it does not end.
            *("--exclude-path", "/api/v1/events"),
            *("--max-examples", str(EXAMPLES[scope]), "--request-timeout", "40"),
            *("--seed", "1", "--generation-database", "none", "--warnings", "off", "--no-color"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    headers = {"Authorization": f"Bearer {token}"}
    told = httpx.get(f"{admin.url}/metrics", headers=headers).text
    # Some of the requests were accepted.
    assert int(told.partition('requests_total{status="200"} ')[2].split()[0]) > 50, told
    assert 'requests_total{status="5' not in told
    assert not [line for line in admin.lines if "request_failed" in line or "Traceback" in line]


Schema = dict[str, Any]


def name_node(schema: Schema, node_id: str) -> None:
    """Restrict the parameter `id` of the schema to an existing node, so that most requests name this node."""
    for parameter in parameters(schema):
        if parameter["name"] == "id":
            parameter["schema"] = {"enum": [node_id]}


def bound(schema: Schema) -> None:
    """Limit the lengths of lists and waits in the schema, to leave time for more kinds of requests."""
    for model in schema["components"]["schemas"].values():
        for values in model.get("properties", {}).values():
            if values.get("maxItems", 0) > 8:
                values["maxItems"] = 4
    for parameter in parameters(schema):
        if parameter["name"] == "wait":
            parameter["schema"]["maximum"] = 1


def parameters(schema: Schema) -> Iterator[Schema]:
    for operations in schema["paths"].values():
        for operation in operations.values():
            yield from operation.get("parameters", ())


def test_random_bytes_do_no_harm(admin: Admin, gateway: Gateway) -> None:
    random = Random(5)
    body = json.dumps(gateway.profile).encode()
    token = gateway.http.headers["Authorization"]
    head = f"POST /api/v1/nodes HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(random.randrange(1, 6)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        with socket.create_connection(("127.0.0.1", admin.port)) as connection:
            connection.settimeout(5)
            connection.sendall(damaged[: random.randrange(len(damaged))] if random.random() < 0.3 else damaged)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65_536)
            assert not answer.startswith(b"HTTP/1.1 5"), (bytes(damaged), answer)
    assert gateway.heartbeat().status_code == 200
    assert not [line for line in admin.lines if "request_failed" in line or "Traceback" in line]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"name": "\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * 30_000,
        b'{"metrics": {"uptime_s": NaN, "links": []}}',
        b'{"metrics": {"uptime_s": 1e999, "links": []}}',
        b'{"metrics": {"uptime_s": ' + b"9" * 5000 + b', "links": []}}',
        b'{"metrics": {"uptime_s": 1, "links": [{"peer": "0000000a", "bytes_in": 9223372036854775808}]}}',
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_malformed_body_is_refused(standing: Gateway, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/api/v1/nodes", f"/api/v1/nodes/{standing.id}/heartbeat", f"/api/v1/nodes/{standing.id}/metrics"):
        answer = standing.http.post(path, content=body, headers=headers)
        assert answer.status_code in (400, 422), (path, answer.text)
        assert set(answer.json()) == {"code", "message"}


def history(gateway: Gateway) -> list[dict[str, float]]:
    points: list[dict[str, float]] = gateway.http.get(f"/api/v1/nodes/{gateway.id}/history").json()["points"]
    return points


def test_the_largest_counters_are_accepted(gateway: Gateway) -> None:
    most = 2**63 - 1
    links = [
        {
            "peer": f"{peer:08x}",
            "bytes_in": most,
            "bytes_out": most,
            "queue_bytes": most,
            "drops": {"a": most, "b": most},
        }
        for peer in range(600)
    ]
    assert gateway.upload({"uptime_s": 1, "links": links}, {"uptime_s": 30, "links": []}).is_success
    assert gateway.upload({"uptime_s": 1e10, "links": links}).is_success
    assert gateway.upload({"uptime_s": 0, "links": []}, {"uptime_s": 1e-300, "links": links[1:2]}).is_success
    until(lambda: len(history(gateway)) > 1, 5, "written")
    assert max(point["queue_bytes"] for point in history(gateway)) == most
    assert gateway.http.get("/healthz").json() == {"status": "ok", "reason": None}
