"""A second implementation of a client, from docs/vectors.md and docs/protocol.md alone.

It shares no code with laconic and uses no numpy: whole numbers of Python, hashlib, and the primitives of
`cryptography`. It is slow and meant to be read.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

VERSION = 3
PLAN, UPLOAD, SURVIVORS, CONSENT, UNMASK, REVEAL = 2, 3, 4, 5, 6, 7
FIELD = 65537
HEADER = struct.Struct("<4sBB16sIII32s")


class Refused(Exception):
    """A message that this client does not answer."""


# Encodings


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def text(label: str, *parts: bytes | int) -> bytes:
    """⟨label, parts⟩: the label behind one byte of length, each part behind eight."""
    out = bytes([len(label)]) + label.encode()
    for part in parts:
        value = struct.pack("<Q", part) if isinstance(part, int) else part
        out += struct.pack("<Q", len(value)) + value
    return out


def packed(values: Sequence[int], bits: int) -> bytes:
    """One string of bits, each value with its highest bit first, filled up with zeros."""
    string = 0
    for value in values:
        string = string << bits | value % 2**bits
    surplus = -len(values) * bits % 8
    return (string << surplus).to_bytes((len(values) * bits + 7) // 8, "big")


def unpacked(data: bytes, count: int, bits: int) -> list[int]:
    string = int.from_bytes(data, "big") >> (-count * bits % 8)
    return [string >> bits * (count - 1 - i) & 2**bits - 1 for i in range(count)]


# Keys


def public_of(secret: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def signature_of(secret: bytes, message: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).sign(message)


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def as_x25519(public: bytes) -> bytes:
    """u = (1 + y)/(1 − y)."""
    prime = 2**255 - 19
    y = int.from_bytes(public, "little") % 2**255
    return ((1 + y) * pow(1 - y, -1, prime) % prime).to_bytes(32, "little")


def context_of(run: bytes, offer: bytes) -> bytes:
    return sha256(text("laconic/3 context", run, offer))


def entry_of(context: bytes, client: int, identity: bytes, run_key: bytes) -> bytes:
    """196 bytes of a roster, from the two secrets."""
    keys = public_of(run_key), public_of(identity)
    by_identity = signature_of(identity, text("laconic/3 keys", context, client, *keys))
    by_key = signature_of(run_key, text("laconic/3 possession", context, client, *keys))
    return struct.pack("<I", client) + b"".join(keys) + by_identity + by_key


def announcement_of(run: bytes, entry: bytes) -> bytes:
    return b"LSEC" + bytes([VERSION, 1]) + run + entry


def checked_entries(roster: bytes, context: bytes) -> dict[int, tuple[bytes, bytes]]:
    """Client → its run key and identity, of a roster whose signatures are right."""
    found = {}
    for at in range(0, len(roster), 196):
        entry = roster[at : at + 196]
        (client,), run_key, identity = struct.unpack("<I", entry[:4]), entry[4:36], entry[36:68]
        for label, key, signature in (("keys", identity, entry[68:132]), ("possession", run_key, entry[132:196])):
            if not is_signed(key, signature, text(f"laconic/3 {label}", context, client, run_key, identity)):
                raise Refused(f"client {client}'s {label}")
        found[client] = run_key, identity
    return found


def pair_secret_of(context: bytes, client: int, run_key: bytes, other: int, public: bytes) -> bytes:
    scalar = hashlib.sha512(run_key).digest()[:32]
    shared = X25519PrivateKey.from_private_bytes(scalar).exchange(X25519PublicKey.from_public_bytes(as_x25519(public)))
    ends = sorted([(client, public_of(run_key)), (other, public)])
    info = text("laconic/3 pair", *(value for end in ends for value in end))
    return HKDF(SHA256(), 32, salt=context, info=info).derive(shared)


def expanded(secret: bytes, purpose: bytes) -> bytes:
    return HKDFExpand(SHA256(), 32, info=purpose).derive(secret)


def pair_seed_of(secret: bytes, plan: bytes, one: int, other: int) -> bytes:
    return expanded(secret, text("laconic/3 mask", plan, min(one, other), max(one, other)))


def share_key_of(secret: bytes, plan: bytes, dealer: int, member: int) -> bytes:
    return expanded(secret, text("laconic/3 share", plan, dealer, member))


# Offers


def offer_digest_of(body: bytes) -> bytes:
    return sha256(text("laconic/3 offer", body))


def offer_message_of(secret: bytes, client: int, body: bytes) -> bytes:
    public = public_of(secret)
    signature = signature_of(secret, text("laconic/3 offered", client, public, body))
    return b"LOFR" + bytes([VERSION]) + struct.pack("<I", client) + public + signature + body


def beacon_of(run: bytes, roster: bytes) -> bytes:
    return sha256(text("laconic/3 beacon", run, roster))


# Masks and shares


def keystream(seed: bytes, size: int) -> bytes:
    return Cipher(AES(seed), CTR(bytes(16))).encryptor().update(bytes(size))


def mask_of(seed: bytes, count: int, bits: int) -> list[int]:
    word = next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
    stream = keystream(seed, count * word)
    return [int.from_bytes(stream[word * i : word * (i + 1)], "little") for i in range(count)]


def elements_of(secret: bytes) -> list[int]:
    return list(struct.unpack("<16H", secret))


def pads_of(key: bytes, count: int) -> list[list[int]]:
    """16 field elements for each secret: words of 128 bits, little-endian, mod 65537."""
    stream = keystream(key, 256 * count)
    words = [int.from_bytes(stream[16 * i : 16 * (i + 1)], "little") for i in range(16 * count)]
    return [[word % FIELD for word in words[16 * i : 16 * (i + 1)]] for i in range(count)]


def interpolated(points: dict[int, int], at: int) -> int:
    """The value at a place of the polynomial through these points."""
    total = 0
    for x, y in points.items():
        above = below = 1
        for other in points:
            if other != x:
                above, below = above * (at - other) % FIELD, below * (x - other) % FIELD
        total += y * above * pow(below, -1, FIELD)
    return total % FIELD


def shares_of(secret: bytes, pads: Sequence[Sequence[int]], threshold: int) -> list[list[int]]:
    """Each member's share of a secret: the first t − 1 are their pads."""
    rows: list[list[int]] = [list(pad) for pad in pads[: threshold - 1]]
    for point in range(threshold, len(pads) + 1):
        row = []
        for i, element in enumerate(elements_of(secret)):
            known = {0: element} | {1 + member: pads[member][i] for member in range(threshold - 1)}
            row.append(interpolated(known, point))
        rows.append(row)
    return rows


def check_of(plan: bytes, seed: bytes) -> bytes:
    return sha256(text("laconic/3 check", plan, seed))[:8]


# Terms and plans


@dataclass(frozen=True)
class Agreed:
    """What is agreed before a run. The rest of the terms has the values that every federation has."""

    run: bytes
    offer: bytes
    fingerprint: str
    beacon: bytes
    consistency: str
    max_dropouts: int
    max_colluders: int
    least_cohort: int = 1

    @property
    def signed(self) -> bool:
        return self.consistency == "signed"

    @property
    def digest(self) -> bytes:
        fields = {
            "run": self.run.hex(),
            "offer": self.offer.hex(),
            "fingerprint": self.fingerprint,
            "beacon": self.beacon.hex(),
            "consistency": self.consistency,
            "max_dropouts": self.max_dropouts,
            "max_colluders": self.max_colluders,
            "least_cohort": self.least_cohort,
            "small_cohort": 32,
            "dropout_rate": 0.1,
            "collusion_rate": 0.1,
            "security_bits": 40,
            "failure_bits": 20,
        }
        return sha256(text("laconic/3 terms", json.dumps(fields, sort_keys=True).encode()))


@dataclass(frozen=True)
class Plan:
    agreed: Agreed
    round: int
    attempt: int
    bits: int
    size: int
    cohort: tuple[int, ...]
    nonces: tuple[bytes, ...] = ()

    @property
    def hash(self) -> bytes:
        numbers = struct.pack(f"<{4 + len(self.cohort)}Q", self.round, self.attempt, self.bits, self.size, *self.cohort)
        return sha256(text("laconic/3 plan", self.agreed.digest, numbers, b"".join(self.nonces)))

    def shuffled(self, label: str) -> list[int]:
        agreed = self.agreed
        seed = sha256(text(f"laconic/3 {label}", agreed.beacon, agreed.run, self.round, self.attempt))
        return sorted(self.cohort, key=lambda client: sha256(seed + struct.pack("<I", client)))

    @property
    def assumed(self) -> tuple[int, int]:
        tenth = math.ceil(0.1 * len(self.cohort))
        return max(self.agreed.max_dropouts, tenth), max(self.agreed.max_colluders, tenth)

    @property
    def sizes(self) -> tuple[int, int]:
        """Members of the committee, and how many of them open."""
        n, dropouts, colluders = len(self.cohort), self.agreed.max_dropouts, self.agreed.max_colluders
        signed = self.agreed.signed
        if n > 32:
            gone, bad = self.assumed
            for c in range(1, n):
                t = c - next(x for x in range(c + 1) if tail(n, gone, c, x) <= Fraction(1, 2**20))
                enough = 2 * t - c if signed else t
                if 2 * t <= c or (signed and enough <= colluders):
                    continue
                if tail(n, bad, c, enough - 1) <= Fraction(1, 2**40):
                    return c, t
            dropouts, colluders = gone, bad
        least = max(n // 2, (n + colluders) // 2 if signed else colluders) + 1
        return n, min(max(min(2 * n // 3 + 1, n - dropouts), least), n)

    @property
    def threshold(self) -> int:
        return self.sizes[1]

    @property
    def committee(self) -> list[int]:
        return self.shuffled("committee")[: self.sizes[0]]

    @property
    def degree(self) -> int:
        n = len(self.cohort)
        if n <= 32:
            return n - 1
        gone, bad = self.assumed
        removed = gone + bad

        def falls_apart(k: int) -> Fraction:
            return (
                Fraction(math.comb(n, 2) * math.comb(n - k, removed - k), math.comb(n, removed))
                if k <= removed
                else Fraction(0)
            )

        k = next((k for k in range(2, n - 1, 2) if falls_apart(k) <= Fraction(1, 2**40)), n - 1)
        if self.agreed.signed:
            k = max(k, 2 * math.ceil((self.agreed.max_dropouts + bad + 1) / 2))
        return min(k, n - 1)

    def neighbours(self, client: int) -> list[int]:
        n = len(self.cohort)
        if self.degree == n - 1:
            return [other for other in self.cohort if other != client]
        circle = self.shuffled("ring")
        place, reach = circle.index(client), self.degree // 2
        return sorted(circle[(place + step) % n] for step in range(-reach, reach + 1) if step)

    def bitmap(self, clients: Sequence[int]) -> bytes:
        return packed([int(client in clients) for client in self.cohort], 1)


def tail(n: int, marked: int, drawn: int, x: int) -> Fraction:
    """P[more than x of the drawn are marked]."""
    marked = min(marked, n)
    ways = sum(math.comb(marked, i) * math.comb(n - marked, drawn - i) for i in range(x + 1, min(marked, drawn) + 1))
    return Fraction(ways, math.comb(n, drawn))


# The client


class SecondClient:
    """One client in one run. `random` gives its nonces and the seeds of its self-masks."""

    def __init__(
        self, client: int, agreed: Agreed, identity: bytes, run_key: bytes, random: Callable[[int], bytes]
    ) -> None:
        self.client, self._agreed, self._identity, self._run_key, self._random = (
            client,
            agreed,
            identity,
            run_key,
            random,
        )
        self._context = context_of(agreed.run, agreed.offer)
        self.nonce = random(16)
        self._plan: Plan | None = None
        self._last: tuple[int, int] = (-1, -1)
        self._keys: dict[int, tuple[bytes, bytes]] = {}

    def announce(self) -> bytes:
        return announcement_of(self._agreed.run, entry_of(self._context, self.client, self._identity, self._run_key))

    def begin(self, message: bytes) -> Plan:
        magic, version, kind, run, round, attempt, _, named = HEADER.unpack_from(message)
        if (magic, version, kind, run) != (b"LSEC", VERSION, PLAN, self._agreed.run):
            raise Refused("no plan of this run")
        fingerprint, digest, bits, size, clients, keys = struct.unpack_from("<16s32sBQII", message, 66)
        if fingerprint.hex() != self._agreed.fingerprint or digest != self._agreed.digest:
            raise Refused("other terms")
        at = 66 + 65
        cohort = struct.unpack_from(f"<{clients}I", message, at)
        at += 4 * clients
        nonces = tuple(message[at + 16 * i : at + 16 * (i + 1)] for i in range(clients))
        at += 16 * clients
        if len(message) != at + 196 * keys:
            raise Refused("its length")
        plan = Plan(self._agreed, round, attempt, bits, size, tuple(cohort), nonces)
        if plan.hash != named or (round, attempt) <= self._last or nonces[cohort.index(self.client)] != self.nonce:
            raise Refused("another plan, an old attempt, or another nonce")
        self._keys |= checked_entries(message[at:], self._context)
        self._plan = plan
        return plan

    def upload(self, vector: Sequence[int]) -> bytes:
        plan = self._current()
        self._last, self.nonce = (plan.round, plan.attempt), self._random(16)
        own = self._random(32)
        seeds = {other: self._pair_seed(other) for other in plan.neighbours(self.client)}
        masked = [a + b for a, b in zip(vector, mask_of(own, plan.size, plan.bits), strict=True)]
        for other, seed in seeds.items():
            sign = 1 if other > self.client else -1
            masked = [a + sign * b for a, b in zip(masked, mask_of(seed, plan.size, plan.bits), strict=True)]
        secrets = [own, *seeds.values()]
        pads = [pads_of(self._share_key(self.client, member), len(secrets)) for member in plan.committee]
        shares = [shares_of(s, [pad[i] for pad in pads], plan.threshold) for i, s in enumerate(secrets)]
        corrections = [
            (shares[i][member][e] - pads[member][i][e]) % FIELD
            for member in range(plan.threshold - 1, len(pads))
            for i in range(len(secrets))
            for e in range(16)
        ]
        checks = b"".join(check_of(plan.hash, secret) for secret in secrets)
        return self._signed(UPLOAD, packed(masked, plan.bits) + checks + packed(corrections, 17))

    def consent(self, message: bytes) -> bytes:
        return self._signed(CONSENT, self._bitmap_of(message, SURVIVORS))

    def reveal(self, message: bytes) -> bytes:
        plan = self._current()
        bitmap = self._bitmap_of(message, UNMASK)
        if self._agreed.signed:
            self._check_consents(bitmap, message[66 + len(bitmap) :])
        survivors = self._survivors(bitmap)
        opened: list[int] = []
        for dealer in survivors:
            neighbours = plan.neighbours(dealer)
            pads = pads_of(self._share_key(dealer, self.client), 1 + len(neighbours))
            for place in [0, *(1 + i for i, other in enumerate(neighbours) if other not in survivors)]:
                opened += pads[place]
        self._plan = None
        return self._signed_under(plan, REVEAL, packed(opened, 17))

    def _check_consents(self, bitmap: bytes, rows: bytes) -> None:
        plan, signers = self._current(), set()
        for at in range(0, len(rows), 66):
            (place,) = struct.unpack_from("<H", rows, at)
            member = plan.committee[place]
            frame = self._frame(plan, CONSENT, member) + bitmap
            identity = public_of(self._identity) if member == self.client else self._keys[member][1]
            if not is_signed(identity, rows[at + 2 : at + 66], text("laconic/3 message", sha256(frame))):
                raise Refused(f"member {member}'s consent")
            signers.add(member)
        if len(signers) < plan.threshold:
            raise Refused("too few consents")

    def _bitmap_of(self, message: bytes, kind: int) -> bytes:
        plan = self._current()
        if message[:66] != self._frame(plan, kind, 2**32 - 1):
            raise Refused("a message of another attempt")
        bitmap = message[66 : 66 + (len(plan.cohort) + 7) // 8]
        if len(self._survivors(bitmap)) < len(plan.cohort) - self._agreed.max_dropouts:
            raise Refused("too few survivors")
        return bitmap

    def _survivors(self, bitmap: bytes) -> list[int]:
        plan = self._current()
        bits = unpacked(bitmap, len(plan.cohort), 1)
        return [client for client, bit in zip(plan.cohort, bits, strict=True) if bit]

    def _signed(self, kind: int, body: bytes) -> bytes:
        return self._signed_under(self._current(), kind, body)

    def _signed_under(self, plan: Plan, kind: int, body: bytes) -> bytes:
        frame = self._frame(plan, kind, self.client) + body
        return frame + signature_of(self._identity, text("laconic/3 message", sha256(frame)))

    def _frame(self, plan: Plan, kind: int, sender: int) -> bytes:
        return HEADER.pack(b"LSEC", VERSION, kind, self._agreed.run, plan.round, plan.attempt, sender, plan.hash)

    def _pair_secret(self, other: int) -> bytes:
        return pair_secret_of(self._context, self.client, self._run_key, other, self._keys[other][0])

    def _pair_seed(self, other: int) -> bytes:
        return pair_seed_of(self._pair_secret(other), self._current().hash, self.client, other)

    def _share_key(self, dealer: int, member: int) -> bytes:
        if dealer == member:  # its own share of its own secrets: the key that it has with itself
            own = public_of(self._run_key)
            secret = pair_secret_of(self._context, self.client, self._run_key, self.client, own)
        else:
            secret = self._pair_secret(member if dealer == self.client else dealer)
        return share_key_of(secret, self._current().hash, dealer, member)

    def _current(self) -> Plan:
        if self._plan is None:
            raise Refused("no attempt under way")
        return self._plan


# The grid and the sampler


def single(value: float) -> float:
    """Rounded to a float of 32 bits."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def clipped(code: Sequence[float], clip_norm: float) -> list[float]:
    norm, target = math.sqrt(math.fsum(value * value for value in code)), clip_norm * (1 - 2**-20)
    root = single(math.sqrt(target / max(norm, target)))
    return [single(single(value * root) * root) for value in code]


def fixed_of(code: Sequence[float], units: float, *, whole: bool) -> list[int]:
    return [int(value * (units if whole else units * 256)) for value in code]


@dataclass(frozen=True)
class SecondGrid:
    units: float
    scale: float
    released_scale: float
    bits: int


def grid_of(
    *,
    noise_multiplier: float,
    sensitivity: float,
    largest_entry: float,
    whole: bool,
    code_size: int,
    usual_cohort: int,
    largest_cohort: int,
    released_variance: float,
    slack: int,
) -> SecondGrid:
    noise = sensitivity * noise_multiplier
    units = max(4.0 * math.sqrt(largest_cohort), 32.0) / noise
    if whole:
        units = float(math.ceil(units))
    released = math.hypot(units * noise * math.sqrt(released_variance), 4.0 if slack else 0.0)
    reach = math.sqrt(2 * (math.log(2) * 42 + math.log(code_size)))
    largest = reach * released + units * (usual_cohort * largest_entry)
    return SecondGrid(units, units * noise, released, max(8, math.ceil(math.log2(2 * largest + 1))))


def table_of(mean: Fraction, scale: float) -> tuple[int, list[int]]:
    """The first value, and of each value the last 128-bit word that means it."""
    reach = math.ceil(scale * math.sqrt(2 * math.log(2) * 108)) + 2
    with localcontext() as context:
        context.prec = 60
        centre = Decimal(mean.numerator) / mean.denominator
        mass = [(-((x - centre) ** 2) / (2 * Decimal(scale) ** 2)).exp() for x in range(-reach, reach + 2)]
        total, running, words = sum(mass, Decimal(0)), Decimal(0), []
        for part in mass:
            running += part
            words.append(min(max(int(running / total * 2**128), 1), 2**128) - 1)
    words[-1] = 2**128 - 1
    return -reach, words


class Drawn:
    """Integers from the discrete Gaussian; `read` gives the bytes of the words."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._tables: dict[tuple[Fraction, float], tuple[int, list[int]]] = {}

    def around(self, fixed: Sequence[int], scale: float) -> list[int]:
        """DG(fixed / 256, scale)."""
        small = scale if scale < 4 else 2.0
        tables = [self._table(Fraction(value % 256, 256), small) for value in fixed]
        drawn = [value // 256 + more for value, more in zip(fixed, self._looked_up(tables), strict=True)]
        return drawn if small == scale else self.centred(drawn, math.sqrt(scale**2 - small**2))

    def centred(self, means: Sequence[int], scale: float) -> list[int]:
        """DG(mean, scale) of whole means."""
        drawn = list(means)
        while True:
            factor = 1 if scale <= 1024 else math.floor(scale / math.sqrt(10009.0))
            table = self._table(Fraction(0), scale if factor == 1 else 100.0)
            drawn = [a + factor * b for a, b in zip(drawn, self._looked_up([table] * len(drawn)), strict=True)]
            if factor == 1:
                return drawn
            scale = math.sqrt(scale**2 - (factor * 100.0) ** 2)

    def _table(self, mean: Fraction, scale: float) -> tuple[int, list[int]]:
        if (mean, scale) not in self._tables:
            self._tables[mean, scale] = table_of(mean, scale)
        return self._tables[mean, scale]

    def _looked_up(self, tables: Sequence[tuple[int, list[int]]]) -> list[int]:
        """One word for each draw; and where it is the first half of an entry, one more, behind all of these."""
        words = self._words(len(tables))
        even = [any(entry >> 64 == word for entry in entries) for word, (_, entries) in zip(words, tables, strict=True)]
        more = iter(self._words(sum(even)))
        found = []
        for word, (first, entries), half in zip(words, tables, even, strict=True):
            bits = word << 64 | (next(more) if half else 0)
            found.append(first + next(i for i, entry in enumerate(entries) if bits <= entry))
        return found

    def _words(self, count: int) -> list[int]:
        """Words of 64 bits: signed, little-endian, 2^63 less than they mean."""
        return [word + 2**63 for word in struct.unpack(f"<{count}q", self._read(8 * count))]
