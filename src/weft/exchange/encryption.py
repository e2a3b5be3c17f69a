"""Encrypted connections: TLS 1.3, in which both ends show a certificate that the other trusts.

The certificate is of a file, or made of the run's secret: then all workers make the same one, and trust it alone.
"""

import hmac
import os
import socket
import ssl
from datetime import UTC, datetime
from typing import Self

from weft.errors import ConfigError

OF_SECRET = "secret"  # the value of `tls` for a certificate that is made of it


class Encryption:
    """What one worker's connections are encrypted by, as it connects and as it listens."""

    def __init__(self, file: str) -> None:
        """`file`: a key, its certificate, and the certificates that are trusted, as PEM."""
        self._listens, self._connects = (
            _context(kind, file) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
        )
        self._listens.num_tickets = 0  # nobody comes back to a connection

    @classmethod
    def of(cls, tls: str | None, secret: bytes | None) -> Self | None:
        """What the setting `tls` asks for. `secret`: of the run, if it was given."""
        if tls is None:
            return None
        if tls != OF_SECRET:
            return cls(tls)
        if secret is None:
            raise ConfigError(
                "tls = 'secret' needs a secret that does not travel in the open: give each host a copy of one by "
                "WEFT_SECRET_FILE, or set tls to a PEM file"
            )
        file = os.memfd_create("weft-certificate")  # never on a disk
        try:
            os.write(file, certificate_of(secret))
            return cls(f"/proc/self/fd/{file}")
        finally:
            os.close(file)

    def accept(self, one: socket.socket) -> ssl.SSLSocket:
        """The end of who listens; the handshake is still to be done."""
        return self._listens.wrap_socket(one, server_side=True, do_handshake_on_connect=False)

    def connect(self, one: socket.socket) -> ssl.SSLSocket:
        """The end of who connects, once both are sure of each other's certificates."""
        return self._connects.wrap_socket(one)


def disagreement(error: ssl.SSLError, otherwise: str = "it is not TLS") -> str:
    """Why a connection could not be encrypted, or a file not be read; `otherwise`: where the error does not say."""
    return getattr(error, "verify_message", "") or (error.reason or otherwise).lower().replace("_", " ")


def _context(kind: int, file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a worker's name is its rank, which it proves by the secret
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(file, password=_no_password)
        context.load_verify_locations(file)
    except (OSError, ValueError) as error:
        lacking = "it lacks a key, or a certificate"
        reason = disagreement(error, lacking) if isinstance(error, ssl.SSLError) else str(error)
        raise ConfigError(
            f"tls = {file!r} is no certificate that can be used ({reason}): name a PEM file with a key that has no "
            f"password, its certificate, and those that are trusted, as docs/operations.md makes one; or set tls = 'secret'"
        ) from None
    return context


def _no_password() -> str:
    raise ValueError("its key has a password")


def certificate_of(secret: bytes) -> bytes:
    """A key and its certificate as PEM: a function of the secret alone, whatever the machine and its clock."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise ConfigError(
            "tls = 'secret' needs the package cryptography: pip install 'weft-gnn[tls]', or set tls to a PEM file"
        ) from None
    key = Ed25519PrivateKey.from_private_bytes(hmac.digest(secret, b"certificate", "sha256"))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a run of weft")])
    certificate = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    certificate = certificate.serial_number(1).not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
    signed = certificate.not_valid_after(datetime(9999, 12, 31, tzinfo=UTC)).sign(key, None)
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return private + signed.public_bytes(form.Encoding.PEM)
