"""Certificates and node keys for a trial on one machine. A federation of several hosts brings its own."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

_LIFE = datetime.timedelta(days=30)


@dataclass(frozen=True)
class TlsFiles:
    """The authority that the nodes trust, and the server's certificate and key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, host: str = "127.0.0.1") -> TlsFiles:
    """An authority for this trial alone, and a certificate of it for one address. The authority's key is not kept."""
    authority_key, server_key = _new_key(), _new_key()
    authority, server = _name("laconic trial"), _name("localhost")
    root = (
        _certificate(authority, authority, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, SHA384())
    )
    places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(host))]
    leaf = (
        _certificate(server, authority, server_key)
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, SHA384())
    )
    files = TlsFiles(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    _write(files.authority, root.public_bytes(Encoding.PEM))
    _write(files.certificate, leaf.public_bytes(Encoding.PEM))
    _write(files.key, server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def make_node_key(path: Path) -> Path:
    """A P-384 key in OpenSSH's form at `path`, as Flower wants it; the public half, which is returned, beside it."""
    key = _new_key()
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = path.with_name(path.name + ".pub")
    _write(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return public


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
    )


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(data)
