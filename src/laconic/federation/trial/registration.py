"""Register a node's public key with the SuperLink, as `flwr supernode register` does, without a process for each."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from laconic.errors import RunFolderError


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
