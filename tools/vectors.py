"""Write the test vectors of docs/vectors, with which somebody checks a second implementation of the protocol.

python -m tools.vectors            # says whether the files are what the code gives
python -m tools.vectors --write    # writes them anew

docs/vectors.md explains them. Bytes are hexadecimal, and floats are as C writes them with %a.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.guard.contract import SignedOffer, offer_digest
from laconic.guard.noise import (
    Entropy,
    clip_entries,
    clip_l2,
    clip_marks,
    draw_around,
    draw_centred,
    exact_tables,
    fixed_point,
)
from laconic.guard.protect import noisy_residues
from laconic.packing import pack
from laconic.privacy.mechanism.grid import choose_grid
from laconic.secagg.attempts import Nonces
from laconic.secagg.client import SecAggClient
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.keys import KeyBook, PairSecrets, PublicKeys, RunKey, montgomery, pair_seed, share_key
from laconic.secagg.crypto.labels import labelled
from laconic.secagg.crypto.masks import keystream
from laconic.secagg.crypto.shamir import complete, to_limbs
from laconic.secagg.server import SecAggServer
from laconic.secagg.shares import check_value, pads
from laconic.secagg.terms import SumPlan, Terms, context_of

FOLDER = Path(__file__).parents[1] / "docs" / "vectors"
_RUN = bytes(range(16))
_FINGERPRINT = "00112233445566778899aabbccddeeff"
_BODY = b'{"rounds": 3, "scheme": "any text"}'
_DELIVERED = {"plain": (0, 1, 3), "signed": (0, 1, 2, 3)}
"""Who of the clients 0 to 3 uploads in the attempt of each mode."""


def made() -> dict[str, Any]:
    """Every file's content, by its name."""
    return {
        "encoding.json": {"labelled": list(_labelled()), "packed": list(_packed())},
        "agreement.json": _agreement(),
        "shares.json": _shares(),
        "masks.json": list(_masks()),
        "sizes.json": list(_sizes()),
        "attempt-plain.json": _attempt("plain"),
        "attempt-signed.json": _attempt("signed"),
        "grid.json": {"bounds": list(_bounds()), "points": list(_points()), "grids": list(_grids())},
        "sampler.json": {"tables": list(_tables()), "draws": list(_draws())},
    }


def _bytes(name: str, size: int = 32) -> bytes:
    """Bytes that look random, named by what they are for."""
    return b"".join(hashlib.sha256(f"{name} {i}".encode()).digest() for i in range(-(-size // 32)))[:size]


# Encodings


def _labelled() -> Iterator[dict[str, Any]]:
    for label, parts in ((labels.PLAN, [b"", 7]), (labels.OFFER, [b"abc"]), (labels.RING, [bytes(3), 2**32 - 2, 0])):
        shown = [part.hex() if isinstance(part, bytes) else part for part in parts]
        yield {"label": label.decode(), "parts": shown, "text": labelled(label, *parts).hex()}


def _packed() -> Iterator[dict[str, Any]]:
    for bits in (1, 8, 13, 17, 20, 32, 64):
        values = [int.from_bytes(_bytes(f"packed {bits} {i}", 8), "little") % 2**bits for i in range(11)]
        yield {"bits": bits, "values": values, "packed": pack(np.array(values, dtype=np.uint64), bits).hex()}


# Keys, offers, rosters


def _identity(client: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(_bytes(f"identity {client}"))


def _run_key(client: int) -> RunKey:
    return RunKey(_bytes(f"run key {client}"))


def _keys(client: int) -> PublicKeys:
    return PublicKeys.signed(context_of(_RUN, offer_digest(_BODY)), client, _run_key(client), _identity(client))


def _roster() -> bytes:
    return b"".join(_keys(client).entry() for client in range(4))


def _beacon() -> bytes:
    return hashlib.sha256(labelled(labels.BEACON, _RUN, _roster())).digest()


def _terms(consistency: str) -> Terms:
    return Terms(
        run=_RUN,
        offer=offer_digest(_BODY),
        fingerprint=_FINGERPRINT,
        beacon=_beacon(),
        consistency=consistency,
        max_dropouts=1,
        max_colluders=1 if consistency == "signed" else 0,
    )


def _pairs(client: int) -> PairSecrets:
    context = context_of(_RUN, offer_digest(_BODY))
    book = KeyBook(context)
    for other in range(4):
        book.learn(_keys(other))
    return PairSecrets(context, client, _run_key(client), book)


def _agreement() -> dict[str, Any]:
    server = Ed25519PrivateKey.from_private_bytes(_bytes("server"))
    offers = []
    for client in range(2):
        signed = SignedOffer(client, server.public_key().public_bytes_raw(), _BODY)
        message = signed.to_bytes(server.sign(signed.statement))
        offers.append({"client": client, "statement": signed.statement.hex(), "message": message.hex()})
    clients = []
    for client in range(4):
        keys = _keys(client)
        clients.append(
            {
                "client": client,
                "identity_secret": _bytes(f"identity {client}").hex(),
                "identity": keys.identity.hex(),
                "run_key_secret": _bytes(f"run key {client}").hex(),
                "run_key": keys.agreement.hex(),
                "run_key_as_x25519": montgomery(keys.agreement).hex(),
                "announcement": keys.announcement(_RUN).hex(),
                "pair_secrets": {str(other): _pairs(client)[other].hex() for other in range(4) if other != client},
            }
        )
    return {
        "run": _RUN.hex(),
        "server_secret": _bytes("server").hex(),
        "body": _BODY.decode(),
        "offer_digest": offer_digest(_BODY).hex(),
        "offers": offers,
        "context": context_of(_RUN, offer_digest(_BODY)).hex(),
        "clients": clients,
        "roster": _roster().hex(),
        "beacon": _beacon().hex(),
        "terms": [{"consistency": mode, "digest": _terms(mode).digest.hex()} for mode in ("plain", "signed")],
    }


# Masks and shares


def _masks() -> Iterator[dict[str, Any]]:
    seed, plan = _bytes("seed"), _bytes("plan")
    yield {"seed": seed.hex(), "keystream": keystream(seed, 100).tobytes().hex()}
    secret = _bytes("pair secret")
    yield {
        "pair_secret": secret.hex(),
        "plan": plan.hex(),
        "pair_seed": [
            {"clients": [one, other], "seed": pair_seed(secret, plan, one, other).hex()} for one, other in _PAIRS
        ],
        "share_key": [
            {"dealer": one, "member": other, "key": share_key(secret, plan, one, other).hex()} for one, other in _PAIRS
        ],
    }


_PAIRS = ((0, 1), (7, 3), (2**32 - 2, 5))


def _shares() -> dict[str, Any]:
    """Two secrets among five members, any three of whom open them."""
    secrets, keys = [_bytes("first secret"), _bytes("second secret")], [_bytes(f"share key {m}") for m in range(5)]
    all_pads = pads(keys, len(secrets))
    later = complete(to_limbs(secrets), all_pads[:2], 5)
    return {
        "threshold": 3,
        "secrets": [secret.hex() for secret in secrets],
        "elements": to_limbs(secrets).tolist(),
        "share_keys": [key.hex() for key in keys],
        "pads": all_pads.tolist(),
        "shares": np.concatenate([all_pads[:2], later]).tolist(),
        "corrections": ((later - all_pads[2:]) % 65537).tolist(),
    }


def _sizes() -> Iterator[dict[str, Any]]:
    """Who masks with whom, and who opens."""
    for consistency, clients, dropouts, colluders in (
        ("plain", 5, 0, 0),
        ("plain", 10, 3, 1),
        ("signed", 10, 2, 2),
        ("plain", 40, 4, 0),
        ("signed", 60, 2, 1),
    ):
        terms = Terms(
            run=_RUN,
            offer=offer_digest(_BODY),
            fingerprint=_FINGERPRINT,
            beacon=_beacon(),
            consistency=consistency,
            max_dropouts=dropouts,
            max_colluders=colluders,
        )
        plan = SumPlan(terms=terms, round=2, attempt=1, bits=16, size=3, cohort=tuple(range(3, 3 + 2 * clients, 2)))
        yield {
            "consistency": consistency,
            "max_dropouts": dropouts,
            "max_colluders": colluders,
            "round": plan.round,
            "attempt": plan.attempt,
            "cohort": list(plan.cohort),
            "terms_digest": terms.digest.hex(),
            "threshold": plan.threshold,
            "committee": list(plan.committee),
            "neighbours": {str(client): list(plan.neighbours(client)) for client in plan.cohort[:3]},
        }


# One attempt, byte for byte


class _Fixed(Nonces):
    """A nonce that is known beforehand."""

    def __init__(self, nonce: bytes) -> None:
        super().__init__()
        self._current[_RUN] = nonce


def _attempt(consistency: str) -> dict[str, Any]:
    terms = _terms(consistency)
    nonces = {client: _bytes(f"nonce {client}", 16) for client in range(4)}
    server = SecAggServer(terms)
    clients = {
        client: SecAggClient(
            client, terms, identity=_identity(client), agreement=_run_key(client), nonces=_Fixed(nonces[client])
        )
        for client in range(4)
    }
    for client in clients.values():
        server.register(client.announce())
    plan = SumPlan(terms=terms, round=5, attempt=2, bits=13, size=9, cohort=(0, 1, 2, 3)).with_nonces(nonces)
    round = server.begin(plan)
    plans, uploads = {}, []
    for number, client in clients.items():
        plans[number] = round.plan_for(number)
        client.begin(plans[number])
        vector = np.frombuffer(_bytes(f"vector {number}", 2 * plan.size), dtype="<i2").astype(np.int64)
        own = _bytes(f"self-mask {number}")
        with patch("laconic.secagg.client.secrets", SimpleNamespace(token_bytes=lambda size, own=own: own)):
            message = client.upload(vector)
        seeds = {other: client._pair_seed(plan, other) for other in plan.neighbours(number)}
        uploads.append(
            {
                "client": number,
                "vector": vector.tolist(),
                "self_mask": own.hex(),
                "pair_seeds": {str(other): seed.hex() for other, seed in seeds.items()},
                "checks": [check_value(plan, seed).hex() for seed in (own, *seeds.values())],
                "message": message.hex(),
            }
        )
        if number in _DELIVERED[consistency]:
            round.accept_upload(message)
    round.close_uploads()
    found: dict[str, Any] = {
        "consistency": consistency,
        "nonces": [nonce.hex() for nonce in nonces.values()],
        "round": plan.round,
        "attempt": plan.attempt,
        "bits": plan.bits,
        "size": plan.size,
        "plan_hash": plan.hash.hex(),
        "committee": list(plan.committee),
        "threshold": plan.threshold,
        "plans": {str(number): message.hex() for number, message in plans.items()},
        "uploads": uploads,
        "survivors": list(_DELIVERED[consistency]),
    }
    if terms.signed:
        asked = round.survivors_for_consent()
        consents = {member: clients[member].consent(asked) for member in plan.committee}
        for consent in consents.values():
            round.accept_consent(consent)
        found["survivors_message"] = asked.hex()
        found["consents"] = {str(member): consent.hex() for member, consent in consents.items()}
    request = round.unmask_request()
    reveals = {
        member: clients[member].reveal(request) for member in plan.committee if member in _DELIVERED[consistency]
    }
    for reveal in reveals.values():
        round.accept_reveal(reveal)
    found["unmask"] = request.hex()
    found["reveals"] = {str(member): reveal.hex() for member, reveal in reveals.items()}
    found["sum"] = round.open().total.tolist()
    return found


# The grid


def _bounds() -> Iterator[dict[str, Any]]:
    code = np.array([0.3, -1.7, 2.5e-3, 40.0, -0.0, 1.0], dtype=np.float32)
    for kind, done in (
        ("l2", clip_l2(code, 0.5)),
        ("l2", clip_l2(code, 100.0)),
        ("entries", clip_entries(code)),
        ("marks", clip_marks(code, 0.4)),
    ):
        yield {"clip": kind, "code": _floats(code), "bounded": _floats(done)}


def _points() -> Iterator[dict[str, Any]]:
    code = np.array([0.3, -0.3, 1.0, -1.0, 0.0009765625], dtype=np.float32)
    for units, whole in ((12.34, False), (7.0, True)):
        yield {
            "code": _floats(code),
            "units": units.hex(),
            "whole": whole,
            "fixed": fixed_point(code, units, whole=whole).tolist(),
        }


def _grids() -> Iterator[dict[str, Any]]:
    for sigma, norm, entry, whole, size, least, largest, variance, slack in (
        (1.0, 0.5, 0.5, False, 650, 5, 5, 1.0, 0),
        (1.54, 1.0, 1.0, False, 100_000, 100, 140, 1.25, 4),
        (2.0, 25.0, 1.0, True, 625, 10, 10, 1.0, 0),
    ):
        plan = SimpleNamespace(
            usual_vectors=least,
            usual_cohort=least,
            largest_cohort=largest,
            released_variance=variance,
            slack=slack,
            planned_units=None,
        )
        grid = choose_grid(
            noise_multiplier=sigma,
            sensitivity=norm,
            largest_entry=entry,
            whole=whole,
            code_size=size,
            plan=plan,  # type: ignore[arg-type]
            bits=None,
        )
        yield {
            "noise_multiplier": sigma,
            "sensitivity": norm,
            "largest_entry": entry,
            "whole": whole,
            "code_size": size,
            "usual_cohort": least,
            "largest_cohort": largest,
            "released_variance": variance,
            "slack": slack,
            "units": grid.units.hex(),
            "scale": grid.scale.hex(),
            "released_scale": grid.released_scale.hex(),
            "bits": grid.bits,
            "share_scale": grid.share_scale(least - slack).hex(),
        }


def _floats(values: np.ndarray) -> list[str]:
    return [float(value).hex() for value in values]


# The sampler


def _tables() -> Iterator[dict[str, Any]]:
    for scale, means in ((2.0, 256), (2.5, 256), (4.0, 1), (17.25, 1)):
        tables = exact_tables(scale, means)
        for mean in {0, means // 3, means - 1}:
            entries = [
                ((int(high) + 2**63) << 64) + int(low) + 2**63
                for high, low in zip(tables.high[mean], tables.low[mean], strict=True)
            ]
            used = entries[: entries.index(2**128 - 1) + 1]
            middle = -tables.first
            yield {
                "scale": scale,
                "mean": f"{mean}/{means}",
                "first": tables.first,
                "entries": len(used),
                "middle": {str(x): f"{used[middle + x]:032x}" for x in (-2, -1, 0, 1, 2)},
                "sha256": hashlib.sha256(b"".join(entry.to_bytes(16, "big") for entry in used)).hexdigest(),
            }


def _draws() -> Iterator[dict[str, Any]]:
    fixed = [0, 1, -1, 255, -256, 1000, -12345, 85]
    whole = [0, 1, -1, 7, -7, 300, -1000, 4]
    for scale in (2.5, 4.0, 12.25, 1100.5, 110_049.6):
        for kind, given in (("256ths", fixed), ("whole", whole)):
            yield _draw(kind, given, scale, _bytes(f"words {kind} {scale}", 8 * len(given) * 6))
    tables = exact_tables(4.0, 1)
    edge = int(tables.high[0][-tables.first + 1])  # the first 64 bits of P(X ≤ 1): only the next word decides
    for following in (0, 2**64 - 1):
        yield _draw("whole", [10], 4.0, struct.pack("<qQ", edge, following))


def _draw(kind: str, given: Sequence[int], scale: float, words: bytes) -> dict[str, Any]:
    read = _Reader(words)
    means = np.array(given, dtype=np.int64)
    drawn = (draw_centred if kind == "whole" else _around)(scale, means, Entropy(read))
    residues = noisy_residues(means, scale, 20, Entropy(_Reader(words)), whole=kind == "whole")
    return {
        "means": kind,
        "given": list(given),
        "scale": scale,
        "words": words[: read.used].hex(),
        "drawn": drawn.tolist(),
        "residues_of_20_bits": residues.tolist(),
    }


def _around(scale: float, fixed: np.ndarray, source: Entropy) -> np.ndarray:
    drawn: np.ndarray = draw_around(fixed, scale, source)
    return drawn


class _Reader:
    """Bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self.used = data, 0

    def __call__(self, count: int) -> bytes:
        if self.used + count > len(self._data):
            raise ValueError("the words are used up")
        self.used += count
        return self._data[self.used - count : self.used]


def as_text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files anew")
    options = parser.parse_args()
    changed = []
    for name, content in made().items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != as_text(content):
            changed.append(name)
            if options.write:
                path.write_text(as_text(content), encoding="utf-8")
    if changed and not options.write:
        sys.exit(f"the code gives something else than {', '.join(changed)}: --write, if that is meant")


if __name__ == "__main__":
    main()
