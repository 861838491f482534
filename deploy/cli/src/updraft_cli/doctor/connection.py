# SPDX-License-Identifier: Apache-2.0
"""Checks of the steps to a connection: DNS, a listening port, TLS."""

import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from updraft.client.credentials import Credentials, CredentialsError
from updraft.client.endpoint import Endpoint, Transport
from updraft_cli.doctor.finding import Findings

_EXPIRES_SOON_DAYS = 14
# OpenSSL's codes for failed verification.
_WRONG_NAMES, _EXPIRED = (62, 64), 10


def check_connection(endpoint: Endpoint, credentials: Credentials, timeout_seconds: float, findings: Findings) -> None:
    """Check whether a connection can be made; stop at the first error."""
    if endpoint.transport is Transport.UNIX:
        _check_unix_socket(endpoint, timeout_seconds, findings)
        return
    _check_addresses(endpoint, timeout_seconds, findings)
    if findings.failed:
        return
    if endpoint.transport is Transport.TLS:
        _check_tls(endpoint, credentials, timeout_seconds, findings)
    elif certificate_of(endpoint, timeout_seconds) is not None:
        secure = str(endpoint).replace("grpc:", "grpc+tls:")
        findings.error("tls", f"{endpoint.target} speaks TLS, but the endpoint does not", f"use {secure}")


def certificate_of(endpoint: Endpoint, timeout_seconds: float) -> x509.Certificate | None:
    """Return the certificate that the endpoint presents, trusted or not, or None if it does not speak TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with _connected(endpoint, timeout_seconds) as plain, context.wrap_socket(plain) as secure:
            shown = secure.getpeercert(binary_form=True)
    except OSError:
        return None
    return x509.load_der_x509_certificate(shown) if shown else None


def names_in(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses for which a certificate is valid."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    ]


def _connected(endpoint: Endpoint, timeout_seconds: float) -> socket.socket:
    return socket.create_connection((endpoint.host, endpoint.port), timeout_seconds)


def _check_unix_socket(endpoint: Endpoint, timeout_seconds: float, findings: Findings) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_seconds)
        try:
            client.connect(endpoint.path)
        except OSError as error:
            findings.error(
                "reach",
                f"nothing listens at {endpoint.path}: {error.strerror or error}",
                "start the service on this machine with --listen-unix, and admit this user (--listen-unix-access)",
            )
            return
    findings.ok("reach", f"{endpoint.path} answers")


def _check_addresses(endpoint: Endpoint, timeout_seconds: float, findings: Findings) -> None:
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError as error:
        findings.error(
            "dns",
            f"{endpoint.host} has no address: {error.strerror or error}",
            "inside the cluster, use <release>-updraft-pool-<pool>.<namespace> and check that a pod of it is ready; "
            "outside, use an address that is reachable from here",
        )
        return
    addresses = sorted({str(place[0]) for *_, place in found})
    findings.ok("dns", f"{endpoint.host} is {_some(addresses)}")
    silent = {address: reason for address in addresses if (reason := _silence(address, endpoint.port, timeout_seconds))}
    if len(silent) == len(addresses):
        findings.error(
            "reach",
            f"nothing answers at {endpoint.target}: {next(iter(silent.values()))}",
            "check that the service is up (updraft status), that this is its Flight port (8815 of a pool, 8816 of a "
            "writer), and that its NetworkPolicy allows this machine",
        )
    elif silent:
        findings.warning("reach", f"{_some(sorted(silent))} of {len(addresses)} does not answer", "check that pod")
    else:
        findings.ok("reach", f"port {endpoint.port} answers at {_some(addresses)}")


def _silence(address: str, port: int, timeout_seconds: float) -> str:
    try:
        socket.create_connection((address, port), timeout_seconds).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _some(addresses: list[str]) -> str:
    return addresses[0] if len(addresses) == 1 else f"{len(addresses)} addresses"


def _check_tls(endpoint: Endpoint, credentials: Credentials, timeout_seconds: float, findings: Findings) -> None:
    shown = certificate_of(endpoint, timeout_seconds)
    if shown is None:
        plain = str(endpoint).replace("grpc+tls:", "grpc:")
        findings.error("tls", f"{endpoint.target} does not speak TLS", f"use {plain}, or switch TLS on in the service")
        return
    try:
        context = credentials.ssl_context()
        with (
            _connected(endpoint, timeout_seconds) as plain_socket,
            context.wrap_socket(plain_socket, server_hostname=endpoint.host) as secure,
        ):
            # A server that rejects the client's certificate says so only at the first read, or closes the connection.
            if not secure.recv(1):
                raise ConnectionResetError("it closed the connection")
    except CredentialsError as error:
        findings.error("tls", str(error), "use PEM files that this user can read; a JVM needs the key as PKCS 8")
    except ssl.SSLCertVerificationError as error:
        _refused_by_us(error, shown, endpoint, credentials.ca_file, findings)
    except OSError as error:
        _refused_by_them(error, credentials, findings)
    else:
        findings.ok("tls", f"trusted, for {endpoint.host}, {_validity(shown)}")
        if days_left(shown) <= _EXPIRES_SOON_DAYS:
            findings.warning(
                "tls", f"the certificate is {_validity(shown)}", "renew the file: the running service reads it again"
            )


def _refused_by_us(
    error: ssl.SSLCertVerificationError,
    shown: x509.Certificate,
    endpoint: Endpoint,
    ca_file: Path | None,
    findings: Findings,
) -> None:
    match error.verify_code:
        case code if code in _WRONG_NAMES:
            names = ", ".join(names_in(shown)) or "no name"
            findings.error(
                "tls",
                f"the certificate is for {names}, not for {endpoint.host}",
                "use one of these names in the endpoint, or add the endpoint's name (tls.extraDnsNames of the chart)",
            )
        case code if code == _EXPIRED:
            findings.error(
                "tls", f"the certificate is {_validity(shown)}", "renew the file: the running service reads it again"
            )
        case _:
            trusted = str(ca_file) if ca_file is not None else "an authority that this machine trusts"
            findings.error(
                "tls",
                f"the certificate is not signed by {trusted} ({error.verify_message}); its issuer is "
                f"{shown.issuer.rfc4514_string()}",
                "set tls.caFile to the PEM file of its authority: ca.crt in the Secret of the service's certificate",
            )


def _refused_by_them(error: OSError, credentials: Credentials, findings: Findings) -> None:
    given = credentials.certificate_file
    findings.error(
        "tls",
        f"the service ended the handshake: {getattr(error, 'reason', None) or error}",
        "it requires a client certificate: set tls.certificateFile and tls.keyFile"
        if given is None
        else f"its tlsClientCaFile lacks the authority that signed {given}",
    )


def days_left(certificate: x509.Certificate) -> int:
    """Return the whole days until a certificate expires; negative if it has expired."""
    return (certificate.not_valid_after_utc - datetime.now(UTC)).days


def _validity(certificate: x509.Certificate) -> str:
    days = days_left(certificate)
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    return f"valid until {until} ({days} days)" if days >= 0 else f"not valid since {until}"
