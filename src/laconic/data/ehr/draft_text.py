"""A drafted schema as a TOML file that explains itself."""

from __future__ import annotations

from collections.abc import Iterator

from laconic.data.ehr.draft import Draft, Finding
from laconic.data.ehr.schema import Entry, Numeric
from laconic.data.ehr.toml_values import toml
from laconic.errors import one_line

WARNING = (
    "The comments hold figures of your table. Keep this file as you keep the table.",
    "",
    "Bounds, levels, codes and the median that fills gaps are left open: every run fits them to its training records.",
    "They are not private: a smallest or largest value, a rare level or a rare code can be one person's. ε does not",
    "count them, and the privacy statement of a run names them under 'Not covered'. To reveal nothing, write public",
    "knowledge instead (min = 0 and max = 120 for an age, the levels of a questionnaire). Never copy the values that",
    "were seen: the statement would then call public what is not.",
    "",
    "What was read from your table and stands here is in the list 'drafted', and its lines say so. Texts of cells are",
    "among it. Every statement names the list. Take out of it what you have replaced by public knowledge.",
)
_DRAFTED = "  # drafted: from your table"
_COPIED = ("replace", "drop")
"""Keys of an entry whose values are texts of cells."""
_SCALES = (
    'scale = "min-max"   to [0, 1] by the smallest and largest value, or by min and max (the default)',
    'scale = "clipped"   to [0, 1] by the 1st and 99th percentile: extreme values do not squeeze the others together',
    'scale = "standard"  (x - mean) / std, cut at 5 standard deviations; mean and std may be given',
)


def draft_toml(draft: Draft) -> str:
    """The file; `Schema.from_toml` reads it."""
    schema = draft.schema
    lines = [
        f"# A draft of a schema for {one_line(draft.table.name)}: {draft.rows:,} rows{_counted(draft)}.",
        "# Check every line; then: laconic run fl-std --dataset TABLE --schema THIS_FILE",
        "#",
        *(f"# {line}".rstrip() for line in WARNING),
        "",
        f"label = {toml(schema.label)}",
        *_outcome(draft),
    ]
    together = "rows of one patient stay together in every split"
    lines += _owner("patient", schema.patient, together, "every row is a person")
    whose = "whose each row is: one of the clients of the federation"
    lines += _owner("client", schema.client, whose, "rows are dealt out to --num-clients virtual hospitals")
    lines += ["# test_fraction = 0.2", f"missing = {toml(schema.missing)}{_DRAFTED}"]
    if schema.separator != ",":
        lines.append(f"separator = {toml(schema.separator)}")
    lines.append(f"drafted = {toml(schema.drafted)}")
    for entry in schema.filters:
        lines += ["", "[[filter]]", *_keys(entry), "# rows without a value here are not read"]
    if schema.numeric:
        lines += ["", *(f"# {line}" for line in _SCALES)]
    for kind in ("numeric", "categorical", "codes"):
        for finding in draft.named(kind):
            lines += ["", *_section(finding, draft.told)]
    lines += _left_out(draft.named("left out"))
    return "\n".join(lines) + "\n"


def _counted(draft: Draft) -> str:
    return f", {draft.positives:,} positive" if draft.schema.positive else ""


def _outcome(draft: Draft) -> Iterator[str]:
    """What is predicted, and what else it could have been taken for."""
    schema = draft.schema
    if schema.positive:
        yield f"positive = {toml(schema.positive)}{_DRAFTED if 'positive' in schema.drafted else ''}"
        return
    if schema.classes:
        yield f"classes = {toml(schema.classes)}{_DRAFTED}"
        yield f"# seen: {one_line(draft.seen)}"
        yield "# one of several classes; for yes or no write positive = VALUE instead"
        return
    yield f"low = {toml(schema.low)}{_DRAFTED}"
    yield f"high = {toml(schema.high)}{_DRAFTED}"
    yield f"# seen: {one_line(draft.seen)}"
    yield "# a quantity, learnt between these bounds, rounded here: write those that are publicly known. Values outside"
    yield "# are cut to them in training; for classes write classes = [VALUES] instead"


def _owner(key: str, name: str | None, there: str, else_: str) -> list[str]:
    return [f"{key} = {toml(name)}  # {there}"] if name else [f'# {key} = "COLUMN"  # {there}; without it {else_}']


def _section(finding: Finding, of: str) -> Iterator[str]:
    assert finding.entry is not None
    yield f"[[{finding.entry.kind}]]"
    yield from _keys(finding.entry)
    yield from _remarks(finding, of)


def _keys(entry: Entry) -> list[str]:
    keys = entry.to_dict()
    if isinstance(entry, Numeric):
        keys = {"column": entry.column, "scale": entry.scale} | keys
    return [f"{key} = {toml(value)}{_DRAFTED if key in _COPIED else ''}" for key, value in keys.items()]


def _remarks(finding: Finding, of: str = "") -> Iterator[str]:
    if finding.seen:
        yield f"# seen: {one_line(finding.seen)}"
    if finding.missing:
        yield f"# no value in {finding.missing:,} rows" + (
            "; they get the median of the training records" if isinstance(finding.entry, Numeric) else ", level Unknown"
        )
    if finding.auroc is not None:
        yield f"# AUROC of this column alone{of}: {finding.auroc:.2f}"
    if finding.note:
        yield f"# check: {one_line(finding.note)}"


def _left_out(findings: list[Finding]) -> Iterator[str]:
    if findings:
        yield from ("", "# Left out. Columns that the schema does not name are never read by a run.")
    for finding in findings:
        yield f"# {one_line(finding.column, 60) or '(no name)'}: {one_line(finding.note)}"
        if finding.entry is not None:
            yield from (f"#   {line}" for line in [f"[[{finding.entry.kind}]]", *_keys(finding.entry)])
