# SPDX-License-Identifier: Apache-2.0
"""Expiry time of a service's certificate, for its metrics."""

from pathlib import Path

EXPIRY = "updraft_certificate_expiry_timestamp_seconds"
EXPIRY_DOC = (
    "When the first certificate of --tls-certificate-file expires, in seconds since 1970; 0: it cannot be read."
)


def expiry_timestamp_seconds(path: Path) -> float:
    """Return when the first certificate of a PEM file to expire does so, in seconds since 1970.

    Return 0.0 if the file cannot be read.
    """
    # The import takes a tenth of a second: only a service with TLS pays for it.
    from cryptography import x509

    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return 0.0
    return min(certificate.not_valid_after_utc.timestamp() for certificate in chain)
