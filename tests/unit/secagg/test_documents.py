"""What the document and the benchmark say of the protocol is what the protocol does."""

from __future__ import annotations

import re
from pathlib import Path

from secagg_tools import make_plan, make_terms

from benchmarks.masks import measure
from laconic.secagg import messages
from laconic.secagg.crypto.keys import ANNOUNCEMENT_BYTES, ENTRY_BYTES

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")


def test_the_table_of_sizes_is_right() -> None:
    rows = [
        [int(cell.strip(" %").replace(",", "")) for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if re.match(r"\| [\d,]+ \| \d+ % \|", line)
    ]
    assert len(rows) == 10
    for cohort, dropouts, *figures in rows:
        for consistency, expected in (("plain", figures[:4]), ("signed", figures[4:])):
            terms = make_terms(consistency=consistency, max_dropouts=cohort * dropouts // 100)
            plan = make_plan(terms, range(cohort))
            overhead = messages.share_bytes(plan) + messages.HEADER_BYTES + 64
            assert [plan.degree, len(plan.committee), plan.threshold, overhead] == expected
            k, c, t = expected[:3]
            assert overhead == (k + 1) * (8 + 34 * (c - t + 1)) + 130


def test_the_lengths_of_messages_are_as_described() -> None:
    plan = make_plan(make_terms(), range(9))
    assert (messages.HEADER_BYTES, ENTRY_BYTES, ANNOUNCEMENT_BYTES) == (66, 196, 218)
    assert messages.plan_bytes(plan) == 66 + 16 + 32 + 1 + 8 + 4 + 4 + (4 + 16) * 9
    assert len(messages.write_survivors(plan, range(9))) == 66 + 2


def test_the_benchmark_opens_the_right_sum() -> None:
    row = measure(5, 100, complete=False, budget=60.0)
    assert (row.cohort, row.size, row.checked) == (5, 100, True)
    assert set(row.unmask_ms) == {"0%", "10%", "30%"}
