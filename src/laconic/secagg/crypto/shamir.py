"""Shamir's secret sharing over the prime field of 65537 elements, for many secrets at once.

A 32-byte secret is 16 numbers of 16 bits. Each is the value at 0 of its own polynomial of degree t − 1, and the share
of the member with point x is the value at x. Any t shares give the secret by Lagrange interpolation; t − 1 tell nothing
about it. 65537 = 2^16 + 1 holds every 16-bit number, and sums of 2^19 products of two elements are exact in float64, so
sharing is one matrix product, and reconstruction has one basis for all secrets.

The polynomial is not drawn: it is the one through the secret and t − 1 shares that were chosen beforehand (`complete`).
If those are uniform, so is the polynomial among those with that secret, which is all that Shamir's argument needs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

PRIME = 65537
ELEMENT_BITS = 17
LIMBS = 16
"""Field elements of a 32-byte secret."""
MAX_MEMBERS = PRIME - 1


def to_limbs(secrets: list[bytes]) -> np.ndarray:
    """32-byte secrets as field elements (secrets, 16)."""
    return np.frombuffer(b"".join(secrets), dtype="<u2").reshape(-1, LIMBS).astype(np.int64)


def from_limbs(limbs: np.ndarray) -> list[bytes | None]:
    """The secrets again; None where the elements are no 16-bit numbers, so that the shares were not all right."""
    data = limbs.astype("<u2").tobytes()
    fits = limbs.max(axis=1, initial=0) < 2**16
    return [data[2 * LIMBS * i : 2 * LIMBS * (i + 1)] if ok else None for i, ok in enumerate(fits)]


def complete(secrets: np.ndarray, first: np.ndarray, members: int) -> np.ndarray:
    """The other shares, given those at the points 1 … t − 1.

    secrets (...) and first (t − 1, ...) → shares (members − t + 1, ...) at the points t … members.
    """
    threshold = len(first) + 1
    known = np.concatenate([secrets[None], first]).reshape(threshold, -1)
    basis = _basis(tuple(range(threshold)), tuple(range(threshold, members + 1)))
    return _product(basis, known).reshape(members - threshold + 1, *secrets.shape)


def reconstruct(points: tuple[int, ...], shares: np.ndarray) -> np.ndarray:
    """The secrets from t shares each, all held by the same members: shares (t, ...) → secrets (...)."""
    return _product(_basis(points, (0,)), shares.reshape(len(points), -1)).reshape(shares.shape[1:])


def evaluate(points: tuple[int, ...], shares: np.ndarray, target: int) -> np.ndarray:
    """What the share of another member must be, given t of them: shares (t, ...) → (...)."""
    if target in points:
        own: np.ndarray = shares[points.index(target)]
        return own
    return _product(_basis(points, (target,)), shares.reshape(len(points), -1)).reshape(shares.shape[1:])


def _product(basis: np.ndarray, values: np.ndarray) -> np.ndarray:
    exact: np.ndarray = basis.astype(np.float64) @ values.astype(np.float64)
    return exact.astype(np.int64) % PRIME


@lru_cache(maxsize=256)
def _basis(nodes: tuple[int, ...], targets: tuple[int, ...]) -> np.ndarray:
    """Lagrange's basis polynomials of the nodes at the targets (targets, nodes); no target is a node.

    L_b(x) = ∏_{c≠b} (x − x_c) / (x_b − x_c) = F(x) / ((x − x_b) · ∏_{c≠b} (x_b − x_c)) with F(x) = ∏_c (x − x_c).
    """
    x, at = np.array(nodes, dtype=np.int64), np.array(targets, dtype=np.int64)
    whole, own = np.ones_like(at), np.ones_like(x)
    for node in nodes:
        whole = whole * ((at - node) % PRIME) % PRIME
        own = own * np.where(x == node, 1, (x - node) % PRIME) % PRIME
    gaps = (at[:, None] - x) % PRIME * own % PRIME
    basis: np.ndarray = whole[:, None] * _inverse(gaps) % PRIME
    return basis


def _inverse(elements: np.ndarray) -> np.ndarray:
    """x^(p − 2), and p − 2 = 65535 has sixteen ones."""
    result, power = np.ones_like(elements), elements
    for _ in range(16):
        result, power = result * power % PRIME, power * power % PRIME
    return result
