"""That the node's records mean what the offer says. Nothing of them is read for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laconic.errors import PrivacyError
from laconic.guard.contract import PATIENT

if TYPE_CHECKING:
    from laconic.data.meaning import Meaning
    from laconic.federation.offer import Offer

UNCHECKED = "unchecked"
"""The meaning of records that a function of the owner's own reads: only the owner knows it."""


class OtherRecords(PrivacyError):
    """The offer is about other records. What differs is for the node's own log: its schema is its owner's business."""

    def __init__(self, told: str, detail: str | None = None) -> None:
        super().__init__(told)
        self.detail = detail


def check_meaning(offer: Offer, own: Meaning | str | None) -> None:
    """Refuse an offer about records that mean something else than this node's. None: plain numbers."""
    wanted = offer.meaning
    if isinstance(own, str) or wanted == own:
        return
    if wanted is None:
        assert own is not None
        raise OtherRecords(
            f"the offer does not say what its records mean, and this node's are fixed ({_named(own)}): the server must"
            " declare the same"
        )
    if own is None:
        raise OtherRecords(
            f"the offer is about records whose meaning is agreed on ({_named(wanted)}), and this node was started"
            " without any: its owner names the same schema, vocabulary, or classes and image size"
        )
    if (own.kind, own.digest) != (wanted.kind, wanted.digest):
        raise OtherRecords(
            f"this node's records do not mean what the offer's do: {_named(own)} here, {_named(wanted)} there",
            f"what differs: {own.differences(wanted)}",
        )


def check_patients(offer: Offer, told: bool | None) -> None:
    """Refuse to protect patients where the node's settings do not name what says whose each record is."""
    if offer.scheme.unit == PATIENT and told is False:
        raise PrivacyError(
            "the offer protects patients, and this node was not told which column says whose each record is: its owner"
            " names it (--patient-column, or patient in the schema)"
        )


def _named(meaning: Meaning) -> str:
    return f"{meaning.kind} {meaning.digest[:8]}…"
