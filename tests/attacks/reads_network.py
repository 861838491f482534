# SPDX-License-Identifier: Apache-2.0
"""Attempts to read over the network what the pool shows its operator about all owners, or what others send."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts

ATTEMPTS = Attempts()


def page(address: str, path: str, *, source: str = "", authorization: str = "") -> str:
    """Return the page, or nothing if the pool refuses the request."""
    import http.client

    host, _, port = address.rpartition(":")
    headers = {"Authorization": authorization} if authorization else {}
    connection = http.client.HTTPConnection(host, int(port), 30, source_address=(source, 0) if source else None)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return "" if answer.status == 401 else f"{answer.status} {text}"


@ATTEMPTS
def the_status_of_all_owners(target: Any) -> Any:
    return page(target.metrics, "/status.json")


@ATTEMPTS
def the_status_page(target: Any) -> Any:
    return page(target.metrics, "/status")


@ATTEMPTS
def the_metrics(target: Any) -> Any:
    return page(target.metrics, "/metrics")


@ATTEMPTS
def the_metrics_from_another_address(target: Any) -> Any:
    return page(target.metrics, "/metrics", source="127.9.9.9")


@ATTEMPTS
def the_metrics_with_a_guessed_token(target: Any) -> Any:
    import secrets

    return page(target.metrics, "/metrics", authorization=f"Bearer {secrets.token_urlsafe(32)}")


@ATTEMPTS
def the_token_of_the_metrics(target: Any) -> Any:
    with open(target.metrics_token) as file:
        return file.read()


@ATTEMPTS
def the_metrics_with_a_token_of_its_own_making(target: Any) -> Any:
    import os

    os.unlink(target.metrics_token)
    with open(target.metrics_token, "w") as file:
        file.write("mine")
    return page(target.metrics, "/metrics", authorization="Bearer mine")


@ATTEMPTS
def more_than_health_from_the_admin_listener(target: Any) -> Any:
    import grpc

    with grpc.insecure_channel(target.admin) as channel:
        for method in ("DoAction", "ListFlights", "ListActions", "DoExchange"):
            call = channel.unary_stream(f"/arrow.flight.protocol.FlightService/{method}")
            try:
                return [method, list(call(b"", timeout=30))]
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    return [method, str(error)]
    return ""


@ATTEMPTS
def packets_of_the_network(target: Any) -> Any:
    import socket

    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300)


@ATTEMPTS
def raw_packets_of_the_network(target: Any) -> Any:
    import socket

    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
