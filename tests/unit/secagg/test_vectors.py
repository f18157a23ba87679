"""The test vectors are what the code gives, and a second implementation that shares no code with it agrees."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import second_implementation as second
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.secagg.client import SecAggClient
from laconic.secagg.server import SecAggServer
from laconic.secagg.terms import SumPlan, Terms
from tools import vectors

ROOT = Path(__file__).parents[3]
FILES = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(vectors.FOLDER.glob("*.json"))}
AGREEMENT = FILES["agreement.json"]
RUN = bytes.fromhex(AGREEMENT["run"])


def test_the_files_are_what_the_code_gives() -> None:
    made = vectors.made()
    assert set(made) == set(FILES)
    for name, content in made.items():
        assert (vectors.FOLDER / name).read_text(encoding="utf-8") == vectors.as_text(content), name


def test_the_second_implementation_shares_no_code() -> None:
    text = Path(second.__file__).read_text(encoding="utf-8")
    imported = set(re.findall(r"^(?:from|import) ([a-z_0-9]+)", text, re.MULTILINE))
    assert imported <= {
        *("__future__", "collections", "cryptography", "dataclasses", "decimal", "fractions"),
        *("hashlib", "json", "math", "struct"),
    }


def test_the_page_names_every_file() -> None:
    page = (ROOT / "docs/vectors.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z-]+\.json)`", page)) == set(FILES)


# The second implementation


def test_encodings() -> None:
    for row in FILES["encoding.json"]["labelled"]:
        parts = [part if isinstance(part, int) else bytes.fromhex(part) for part in row["parts"]]
        assert second.text(row["label"], *parts).hex() == row["text"]
    for row in FILES["encoding.json"]["packed"]:
        assert second.packed(row["values"], row["bits"]).hex() == row["packed"]
        assert second.unpacked(bytes.fromhex(row["packed"]), len(row["values"]), row["bits"]) == row["values"]


def test_offers_and_keys() -> None:
    body, server = AGREEMENT["body"].encode(), bytes.fromhex(AGREEMENT["server_secret"])
    digest = second.offer_digest_of(body)
    context = second.context_of(RUN, digest)
    assert (digest.hex(), context.hex()) == (AGREEMENT["offer_digest"], AGREEMENT["context"])
    for offer in AGREEMENT["offers"]:
        assert second.offer_message_of(server, offer["client"], body).hex() == offer["message"]
    roster = b""
    for row in AGREEMENT["clients"]:
        secrets = bytes.fromhex(row["identity_secret"]), bytes.fromhex(row["run_key_secret"])
        entry = second.entry_of(context, row["client"], *secrets)
        roster += entry
        assert second.announcement_of(RUN, entry).hex() == row["announcement"]
        assert [second.public_of(secret).hex() for secret in secrets] == [row["identity"], row["run_key"]]
        assert second.as_x25519(bytes.fromhex(row["run_key"])).hex() == row["run_key_as_x25519"]
        for other, secret in row["pair_secrets"].items():
            public = bytes.fromhex(AGREEMENT["clients"][int(other)]["run_key"])
            assert second.pair_secret_of(context, row["client"], secrets[1], int(other), public).hex() == secret
    assert roster.hex() == AGREEMENT["roster"]
    assert second.beacon_of(RUN, roster).hex() == AGREEMENT["beacon"]
    for row in AGREEMENT["terms"]:
        assert agreed(row["consistency"]).digest.hex() == row["digest"]


def test_masks() -> None:
    stream, keys = FILES["masks.json"]
    assert second.keystream(bytes.fromhex(stream["seed"]), 100).hex() == stream["keystream"]
    secret, plan = bytes.fromhex(keys["pair_secret"]), bytes.fromhex(keys["plan"])
    for row in keys["pair_seed"]:
        assert second.pair_seed_of(secret, plan, *row["clients"]).hex() == row["seed"]
    for row in keys["share_key"]:
        assert second.share_key_of(secret, plan, row["dealer"], row["member"]).hex() == row["key"]


def test_shares() -> None:
    given = FILES["shares.json"]
    secrets = [bytes.fromhex(secret) for secret in given["secrets"]]
    pads = [second.pads_of(bytes.fromhex(key), len(secrets)) for key in given["share_keys"]]
    assert [second.elements_of(secret) for secret in secrets] == given["elements"]
    assert pads == given["pads"]
    for number, secret in enumerate(secrets):
        shares = second.shares_of(secret, [pad[number] for pad in pads], given["threshold"])
        assert shares == [row[number] for row in given["shares"]]
        some = {1 + member: shares[member] for member in (1, 3, 4)}
        opened = [second.interpolated({x: row[i] for x, row in some.items()}, 0) for i in range(16)]
        assert struct.pack("<16H", *opened) == secret


def test_sizes() -> None:
    for row in FILES["sizes.json"]:
        terms = agreed(row["consistency"], row["max_dropouts"], row["max_colluders"])
        plan = second.Plan(terms, row["round"], row["attempt"], 16, 3, tuple(row["cohort"]))
        assert terms.digest.hex() == row["terms_digest"]
        assert (plan.threshold, plan.committee) == (row["threshold"], row["committee"])
        assert {client: plan.neighbours(int(client)) for client in row["neighbours"]} == row["neighbours"]


@pytest.mark.parametrize("mode", ["plain", "signed"])
def test_every_message_of_an_attempt(mode: str) -> None:
    """Each client in turn is the second implementation's, with the randomness of the file."""
    given = FILES[f"attempt-{mode}.json"]
    for upload in given["uploads"]:
        number = upload["client"]
        row = AGREEMENT["clients"][number]
        random = iter([bytes.fromhex(given["nonces"][number]), bytes(16), bytes.fromhex(upload["self_mask"])])
        secrets = bytes.fromhex(row["identity_secret"]), bytes.fromhex(row["run_key_secret"])
        client = second.SecondClient(number, agreed(mode), *secrets, lambda size, random=random: next(random))
        plan = client.begin(bytes.fromhex(given["plans"][str(number)]))
        assert (plan.hash.hex(), plan.committee, plan.threshold) == (
            given["plan_hash"],
            given["committee"],
            given["threshold"],
        )
        assert {str(other): client._pair_seed(other).hex() for other in plan.neighbours(number)} == upload["pair_seeds"]
        assert client.upload(upload["vector"]).hex() == upload["message"]
        with pytest.raises(second.Refused):
            client.begin(bytes.fromhex(given["plans"][str(number)]))
        if mode == "signed":
            assert client.consent(bytes.fromhex(given["survivors_message"])).hex() == given["consents"][str(number)]
        if str(number) in given["reveals"]:
            assert client.reveal(bytes.fromhex(given["unmask"])).hex() == given["reveals"][str(number)]
    total = [sum(u["vector"][i] for u in given["uploads"] if u["client"] in given["survivors"]) for i in range(9)]
    assert [value % 2 ** given["bits"] for value in total] == given["sum"]


def test_the_grid() -> None:
    for row in FILES["grid.json"]["grids"]:
        wanted = {name: row.pop(name) for name in ("units", "scale", "released_scale", "bits", "share_scale")}
        grid = second.grid_of(**row)
        share = grid.scale / (row["usual_cohort"] - row["slack"]) ** 0.5
        assert (grid.bits, wanted["bits"]) == (wanted["bits"], grid.bits)
        for name, value in {**vars(grid), "share_scale": share}.items():
            if name != "bits":
                assert value == pytest.approx(float.fromhex(wanted[name]), rel=1e-15), name
    for row in FILES["grid.json"]["points"]:
        code = [float.fromhex(value) for value in row["code"]]
        assert second.fixed_of(code, float.fromhex(row["units"]), whole=row["whole"]) == row["fixed"]
    l2 = [row for row in FILES["grid.json"]["bounds"] if row["clip"] == "l2"]
    for row, norm in zip(l2, (0.5, 100.0), strict=True):
        code = [float.fromhex(value) for value in row["code"]]
        assert [value.hex() for value in second.clipped(code, norm)] == row["bounded"]


def test_the_sampler() -> None:
    for row in FILES["sampler.json"]["tables"]:
        first, words = second.table_of(Fraction(row["mean"]), row["scale"])
        used = words[: words.index(2**128 - 1) + 1]
        assert (first, len(used)) == (row["first"], row["entries"])
        assert {x: f"{used[int(x) - first]:032x}" for x in row["middle"]} == row["middle"]
        assert hashlib.sha256(b"".join(word.to_bytes(16, "big") for word in used)).hexdigest() == row["sha256"]
    for row in FILES["sampler.json"]["draws"]:
        words, at = bytes.fromhex(row["words"]), [0]

        def read(size: int, words: bytes = words, at: list[int] = at) -> bytes:
            at[0] += size
            return words[at[0] - size : at[0]]

        draw = second.Drawn(read).centred if row["means"] == "whole" else second.Drawn(read).around
        drawn = draw(row["given"], row["scale"])
        assert drawn == row["drawn"]
        assert [value % 2**20 for value in drawn] == row["residues_of_20_bits"]
        assert at[0] == len(words)


# In company


def agreed(mode: str, dropouts: int = 1, colluders: int | None = None) -> second.Agreed:
    return second.Agreed(
        run=RUN,
        offer=bytes.fromhex(AGREEMENT["offer_digest"]),
        fingerprint="00112233445566778899aabbccddeeff",
        beacon=bytes.fromhex(AGREEMENT["beacon"]),
        consistency=mode,
        max_dropouts=dropouts,
        max_colluders=(1 if mode == "signed" else 0) if colluders is None else colluders,
    )


@pytest.mark.parametrize("absent", [None, 1, 2])
@pytest.mark.parametrize("mode", ["plain", "signed"])
def test_it_takes_part_in_masked_sums_with_three_clients_of_ours(mode: str, absent: int | None) -> None:
    """Client 2 is the second implementation's. Two rounds, so that nonces move on; in the second, one may vanish."""
    shared = vars(agreed(mode))
    terms = Terms(**shared)
    server = SecAggServer(terms)
    clients: dict[int, Any] = {
        number: SecAggClient(number, terms, identity=Ed25519PrivateKey.generate()) for number in (0, 1, 3)
    }
    clients[2] = second.SecondClient(2, agreed(mode), os.urandom(32), os.urandom(32), os.urandom)
    for client in clients.values():
        server.register(client.announce())
    grid = second.grid_of(
        noise_multiplier=1.0,
        sensitivity=0.5,
        largest_entry=0.5,
        whole=False,
        code_size=50,
        usual_cohort=4,
        largest_cohort=4,
        released_variance=1.0,
        slack=1,
    )
    for number in (1, 2):
        gone = absent if number == 2 else None
        plan = SumPlan(terms=terms, round=number, attempt=0, bits=grid.bits, size=50, cohort=(0, 1, 2, 3))
        round = server.begin(plan.with_nonces({client: one.nonce for client, one in clients.items()}))
        noisy = second.Drawn(os.urandom).around(
            second.fixed_of(second.clipped([0.1 * i for i in range(50)], 0.5), grid.units, whole=False), grid.scale / 2
        )
        vectors = {client: noisy if client == 2 else [client * 1000 + i for i in range(50)] for client in clients}
        for client, one in clients.items():
            one.begin(round.plan_for(client))
            vector = vectors[client] if client == 2 else np.array(vectors[client])
            upload = one.upload(vector)
            if client != gone:
                assert round.accept_upload(upload) == client
        round.close_uploads()
        present = [client for client in clients if client != gone]
        if mode == "signed":
            asked = round.survivors_for_consent()
            for client in present:
                round.accept_consent(clients[client].consent(asked))
        request = round.unmask_request()
        for client in present:
            round.accept_reveal(clients[client].reveal(request))
        opened = round.open()
        assert opened.survivors == tuple(sorted(present))
        expected = [sum(column) % 2**grid.bits for column in zip(*(vectors[c] for c in present), strict=True)]
        assert opened.total.tolist() == expected
