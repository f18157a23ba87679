"""What a trial's SuperLink is told: certificates and node keys, which nodes there are, and which were killed.

A SuperLink takes a node for online until a minute after its last heartbeat. Until then it lets no SuperNode with the
same key in, also after it was started again itself, since the time is in its database. A SuperNode that ends in the
usual way signs off with a request of Flower's fleet API, signed with the node's key. Here the same request is sent for
one that is gone. The SuperLink refuses it if the node is not online, which does no harm.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import NameOID

from laconic.errors import RunFolderError

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


def register(address: str, authority: Path, public: Path) -> int:
    """The number that the SuperLink gives to the node with this key."""
    import httpx
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    key = load_ssh_public_key(public.read_bytes()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
    try:
        with ControlHttpClient.from_server_address(address, False, authority.read_bytes(), interceptors) as client:
            return int(client.RegisterNode(RegisterNodeRequest(public_key=key)).node_id)
    except httpx.HTTPError as error:
        raise RunFolderError(f"the SuperLink does not register {public}: {error}") from None


def sign_off(address: str, authority: Path, key: Path, node: int) -> None:
    """Tell the SuperLink that the node with this key is gone. The caller knows that no SuperNode has the key."""
    import httpx
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    private = load_ssh_private_key(key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    signing: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, private.public_key()),
    ]
    # After any failure the SuperNode is started again until the SuperLink's minute is over.
    with (
        contextlib.suppress(httpx.HTTPError),
        FleetHttpClient.from_server_address(address, False, authority.read_bytes(), signing) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))
