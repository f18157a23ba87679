"""Sign off a SuperNode that could not do so itself, because it was killed.

A SuperLink takes a node for online until a minute after its last heartbeat. Until then it lets no SuperNode with the
same key in, also after it was started again itself, since the time is in its database. A SuperNode that ends in the
usual way signs off with a request of Flower's fleet API, signed with the node's key. Here the same request is sent for
one that is gone. The SuperLink refuses it if the node is not online, which does no harm.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key


def sign_off(address: str, authority: Path, key: Path, node: int) -> None:
    """Tell the SuperLink that the node with this key is gone. Whoever calls it knows that no SuperNode has the key."""
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
    # Whatever goes wrong, the SuperNode is started again until the SuperLink's minute is over.
    with (
        contextlib.suppress(httpx.HTTPError),
        FleetHttpClient.from_server_address(address, False, authority.read_bytes(), signing) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))
