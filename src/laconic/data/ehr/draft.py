"""A schema drafted from a table: which column is what, what is left out and why, and what looks like the label.

The draft has ranges of quantities, rounded to two digits, and says that they were read off the table. Levels and
vocabularies are left to a run, whose privacy statement says what it fitted.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from laconic.data.ehr.blocks import separator_of
from laconic.data.ehr.look import Look, look_at
from laconic.data.ehr.outcome import Outcome, Quantity
from laconic.data.ehr.schema import SCALES, Categorical, Codes, Entry, Filter, Numeric, Schema
from laconic.data.ehr.toml_values import toml
from laconic.data.files.user_file import WAY_OUT
from laconic.errors import ConfigError, DataError, nearest, one_line, unknown
from laconic.files import replace_file

LEAK, SUSPECT = 0.97, 0.9
_LABELS = ("target", "label", "outcome", "y", "class", "died", "death", "mortality", "survived", "readmitted")
_POSITIVE = ("1", "yes", "true", "y", "t", "positive", "pos", "died", "dead", "death", "expired", "case")
_PATIENT = re.compile(r"(patient|subject|person|participant)(_?(id|nr|no|nbr|number|key))?|mrn|pid|uniquepid", re.I)
_CLIENT = re.compile(
    r"(hospital|site|clinic|cent(er|re)|institution|ward|practice|client)(_?(id|nr|no|name|code))?", re.I
)
_NAME_OF_ID = re.compile(r"(^|[_ ])(id|nr|no|nbr|number|index|key|uuid|guid)$|^id|Id$|ID$")
_NAME_OF_LEVEL = re.compile(r"(_id|id|code|type|class|category|group|kind|zip)$", re.I)
_NAME_OF_END = re.compile(
    r"discharg|dispos|death|died|deceas|mortal|expire|outcome|surviv|status|stay_?(days|length)", re.I
)
_FEW, _LEVELS = 12, 50
YES_NO, CLASSES, QUANTITY = KINDS = ("yes-no", "classes", "quantity")
"""What may be predicted of a label."""
_ENOUGH, _SHARE = 20, 0.2
"""A level is looked at as a leak from so many rows on, and if it has such a share of the positives."""


@dataclass(frozen=True)
class Finding:
    """What one column was taken for, what was seen in it, and what its owner should know."""

    column: str
    role: str
    missing: int = 0
    distinct: int = 0
    seen: str = ""
    note: str = ""
    auroc: float | None = None
    entry: Numeric | Categorical | Codes | None = None
    """The feature, also of a column that is left out as a leak."""

    @property
    def used(self) -> bool:
        return self.role != "left out"


@dataclass(frozen=True)
class Draft:
    """A schema that a run takes as it is, and how it came about."""

    table: Path
    schema: Schema
    findings: tuple[Finding, ...]
    rows: int
    positives: int = 0
    """Of yes or no, how many rows are positive."""
    seen: str = ""
    """What was seen in the label."""

    @property
    def kind(self) -> str:
        """What is predicted."""
        return YES_NO if self.schema.positive else CLASSES if self.schema.classes else QUANTITY

    @property
    def told(self) -> str:
        """What the AUROC of a single column is about, where that is not the label itself."""
        if self.schema.positive:
            return ""
        return " (one class against the others, mean)" if self.schema.classes else " (label above its median)"

    def named(self, role: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.role == role]


def draft_schema(
    table: str | Path,
    *,
    target: str | None = None,
    positive: Sequence[str] = (),
    patient: str | None = None,
    client: str | None = None,
    scale: str = "auto",
    kind: str = "auto",
) -> Draft:
    """Look at every column. What is not said is guessed from names and cells, and the draft says what was guessed.

    `kind` is what is predicted: 'yes-no', 'classes', 'quantity', or 'auto': two values are yes and no, a few are
    classes, and other numbers a quantity.
    """
    path = Path(table).expanduser()
    if scale not in ("auto", *SCALES):
        raise ConfigError(unknown("scale", scale, ("auto", *SCALES)))
    if kind not in ("auto", *KINDS):
        raise ConfigError(unknown("kind", kind, ("auto", *KINDS)))
    separator = separator_of(path)
    looks = {look.name: look for look in look_at(path, separator)}
    for flag, name in (("--target", target), ("--patient", patient), ("--client", client)):
        if name is not None and name not in looks:
            raise DataError(f"{one_line(path)}: {flag} " + unknown("column", name, looks))
    asked = [name for name in (target, patient, client) if name is not None]
    for name in asked:
        if asked.count(name) > 1:
            raise ConfigError(f"column '{one_line(name, 60)}' has two roles: name another for one of them")
    label = looks[target or _guessed_label(path, looks)]
    asked_positive = bool(positive)
    outcome = _outcome(path, label, tuple(positive), kind)
    marks, known = _marked(label, outcome), ~label.missing
    owners = {"patient": patient or _patient(looks, label), "client": client or _client(looks, label)}
    findings = []
    for look in looks.values():
        if look is label:
            findings.append(Finding(look.name, "label", int(look.missing.sum()), len(look.levels), _top(look)))
        elif look.name in owners.values():
            role = next(role for role, name in owners.items() if name == look.name)
            findings.append(Finding(look.name, role, int(look.missing.sum()), len(look.levels)))
        else:
            findings.append(_feature(look, marks, known, scale, bool(outcome.positive)))
    entries = [finding.entry for finding in findings if finding.used and finding.entry is not None]
    if not entries:
        raise DataError(
            f"{one_line(path)}: no column to predict '{one_line(label.name, 60)}' from: all others are identifiers,"
            " dates, free text, or tell the label by themselves; write a schema by hand"
        )
    read = [looks[column] for entry in entries for column in entry.columns]
    gaps = {text for look in (*read, label, *(looks[n] for n in owners.values() if n)) for text in look.gaps}
    quantity, named = outcome.quantity, outcome.positive or outcome.classes
    schema = Schema(
        label=label.name,
        positive=outcome.positive,
        classes=outcome.classes,
        low=None if quantity is None else quantity.low,
        high=None if quantity is None else quantity.high,
        patient=owners["patient"],
        client=owners["client"],
        missing=tuple(sorted({"", *gaps} - set(named))),
        separator=separator,
        drafted=tuple(_drafted(entries, outcome, guessed=not asked_positive, gaps=bool(gaps))),
        numeric=tuple(entry for entry in entries if isinstance(entry, Numeric)),
        categorical=tuple(entry for entry in entries if isinstance(entry, Categorical)),
        codes=tuple(entry for entry in entries if isinstance(entry, Codes)),
        filters=_filters([label, *(looks[name] for name in owners.values() if name)]),
    )
    positives = int(marks[0, known].sum()) if outcome.positive else 0
    seen = _numeric(label, "auto", few=False)[1] if quantity is not None else _top(label, 10)
    return Draft(path, schema, tuple(findings), int(known.sum()), positives, seen)


def _guessed_label(path: Path, looks: dict[str, Look]) -> str:
    by_name = [name for name in looks if name.strip().lower() in _LABELS]
    two = [name for name, look in looks.items() if len(look.levels) == 2]
    if len(by_name) == 1:
        return by_name[0]
    if len(two) == 1:
        return two[0]
    told = ", ".join(one_line(name, 60) for name in two[:20]) or "none"
    raise DataError(
        f"{one_line(path)}: say which column is to be predicted: ⟨target⟩ NAME; columns with two values: {told};"
        f" all columns: {', '.join(one_line(name, 60) for name in list(looks)[:40])}"
    )


def _outcome(path: Path, label: Look, positive: tuple[str, ...], kind: str) -> Outcome:
    """What is predicted, as asked or by the values of the label."""
    if positive and kind not in ("auto", YES_NO):
        raise ConfigError(f"⟨positive⟩ is for yes or no, not for ⟨kind⟩ {kind}: leave one of them out")
    if len(label.levels) < 2:
        name = one_line(label.name, 60)
        raise DataError(f"{one_line(path)}: column '{name}' has one value only: there is nothing to learn")
    if kind == "auto":
        kind = YES_NO if positive else _kind(path, label)
    if kind == QUANTITY:
        return Outcome(label.name, quantity=_bounds(path, label))
    if kind == CLASSES:
        return Outcome(label.name, classes=_in_order(label))
    return Outcome(label.name, positive=_positive(path, label, positive))


def _kind(path: Path, label: Look) -> str:
    levels = len(label.levels)
    if levels == 2:
        return YES_NO
    codes = label.whole and levels <= _LEVELS and bool(_NAME_OF_LEVEL.search(label.name.strip()))
    if label.numeric and not label.replaced and not codes and (levels > _FEW or not label.whole):
        return QUANTITY
    if codes or levels <= _FEW:
        return CLASSES
    raise DataError(
        f"{one_line(path)}: column '{one_line(label.name, 60)}' has {levels:,} values that are no numbers: say which of"
        " them counts as positive, ⟨positive⟩ VALUE, or that each is a class, ⟨kind⟩ classes"
    )


def _in_order(label: Look) -> tuple[str, ...]:
    """The classes by number or by alphabet: not by how often they are."""
    return tuple(sorted(label.levels, key=float if label.numeric and not label.replaced else None))


def _bounds(path: Path, label: Look) -> Quantity:
    """Round numbers around all values: multiples of the power of ten below their range."""
    there = label.values[~np.isnan(label.values)]
    if not label.numeric:
        raise DataError(
            f"{one_line(path)}: column '{one_line(label.name, 60)}' holds texts, no quantity: use ⟨kind⟩ classes"
        )
    low, high = float(there.min()), float(there.max())
    step = 10.0 ** math.floor(math.log10(high - low))
    return Quantity(math.floor(low / step) * step, math.ceil(high / step) * step)


def _marked(label: Look, outcome: Outcome) -> np.ndarray:
    """(kinds, rows): which rows are positive, of each class, or above the median; columns are compared with these."""
    if outcome.quantity is not None:
        above: np.ndarray = (label.values > np.nanmedian(label.values))[None]
        return above
    kinds: list[tuple[str, ...]] = [(name,) for name in outcome.classes] or [outcome.positive]
    marks = np.array([[text in named for text in label.texts] for named in kinds], dtype=bool)
    found: np.ndarray = marks[:, label.which]
    return found


def _positive(path: Path, label: Look, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The values that count as the outcome: as asked, or the usual ones, or the rarer of two."""
    name = one_line(label.name, 60)
    for value in asked:
        if value not in label.levels:
            near = nearest(value, label.levels)
            hint = f"; did you mean '{one_line(near, 60)}'?" if near else ""
            raise DataError(f"{one_line(path)}: column '{name}' has no value '{one_line(value, 60)}'{hint}")
    if len(set(asked)) == len(label.levels):
        raise DataError(f"{one_line(path)}: every value of column '{name}' counts as positive: there is no other")
    if asked:
        return asked
    if len(label.levels) > 2:
        raise DataError(
            f"{one_line(path)}: column '{name}' has more than two values ({_top(label, 10)}): say which counts as"
            " positive: ⟨positive⟩ VALUE"
        )
    usual = [value for value in label.levels if value.strip().lower() in _POSITIVE]
    return (usual[0] if len(usual) == 1 else label.levels[-1],)


def _patient(looks: dict[str, Look], label: Look) -> str | None:
    for name, look in looks.items():
        if look is not label and _PATIENT.fullmatch(name.strip()) and len(look.levels) > 1:
            return name
    return None


def _client(looks: dict[str, Look], label: Look) -> str | None:
    """A column called like one, with more than one record in most values."""
    for name, look in looks.items():
        if look is not label and _CLIENT.fullmatch(name.strip()) and 2 <= len(look.levels) <= len(look.which) / 5:
            return name
    return None


def _feature(look: Look, marks: np.ndarray, known: np.ndarray, scale: str, yes_no: bool) -> Finding:
    """What a column is as a feature; leaks, identifiers and what cannot be read are left out with the reason."""
    missing, distinct = int(look.missing.sum()), len(look.levels)
    there = look if known.all() else _on(look, known)
    areas = [area for mark in marks if (area := there.auroc(mark[known])) is not None]
    area = float(np.mean(areas)) if areas else None
    reason = _useless(look)
    entry, seen, note = None, "", reason
    if not reason:
        entry, seen, note = _entry(look, scale)
    if entry is None:
        return Finding(look.name, "left out", missing, distinct, seen, note, area)
    leak = _leak(there, marks[:, known], area, yes_no)
    if leak:
        note = f"{leak}: is it known only with, or after, the outcome?"
        return Finding(look.name, "left out", missing, distinct, seen, note, area, entry)
    if area is not None and area >= SUSPECT:
        note = "; ".join(filter(None, [note, "tells much by itself: is it known before the outcome?"]))
    elif _NAME_OF_END.search(look.name):
        note = "; ".join(filter(None, [note, "its name speaks of the end: is it known before the outcome?"]))
    return Finding(look.name, entry.kind, missing, distinct, seen, note, area, entry)


def _leak(look: Look, marks: np.ndarray, area: float | None, yes_no: bool) -> str:
    """Why a column looks like the label in disguise: as a whole, or one of its levels. Empty if it does not."""
    if area is not None and area >= LEAK:
        return f"by itself it tells the label (AUROC {area:.2f})"
    if len(look.levels) > _LEVELS:
        return ""
    rows = np.bincount(look.which, minlength=len(look.texts))
    counts = np.stack([np.bincount(look.which, weights=mark, minlength=len(look.texts)) for mark in marks])
    if not yes_no:
        always, most = marks.sum(1).max(), counts.max(0).sum()
        told = (most - always) / max(1, look.which.size - always)
        return f"its levels tell {told:.0%} of what the most frequent class does not" if told >= LEAK else ""
    ill, positive = marks[0], counts[0]
    for level in np.argsort(-positive).tolist():
        rate, share = positive[level] / max(1, rows[level]), positive[level] / max(1, ill.sum())
        if rows[level] >= _ENOUGH and rate >= SUSPECT and share >= _SHARE and ill.sum() < ill.size / 2:
            name = one_line(look.texts[level], 24)
            return f"{rate:.0%} of its {rows[level]:,} rows with '{name}' are positive, {share:.0%} of all positives"
    return ""


def _on(look: Look, rows: np.ndarray) -> Look:
    return dataclasses.replace(look, which=look.which[rows])


def _useless(look: Look) -> str:
    """Why nothing can be learnt from a column; empty if something can."""
    if look.lists:
        return "holds lists: if they are codes, name it in [[codes]]"
    if not look.name.strip():
        return "has no name (row numbers of a data frame, maybe)"
    if len(look.levels) == 0:
        return "has no value"
    if len(look.levels) == 1:
        return "has one value only" if not look.missing.any() else ""
    if look.dates and not look.numeric:
        return "dates or times: derive a number, such as an age or a number of days"
    if look.wrong_commas and not look.numeric:
        return f"{look.wrong_commas}: {WAY_OUT}"
    named_id = bool(_NAME_OF_ID.search(look.name.strip()))
    if look.unique and not look.numeric:
        return "another value in every row: an identifier, or free text"
    if look.unique and look.numeric and look.whole:
        there = look.values[~np.isnan(look.values)]
        if named_id or there.max() - there.min() + 1 == len(there):
            return "another whole number in every row: an identifier"
    if not look.numeric and look.words > 5:
        return "free text: laconic run --text-column learns from texts"
    return ""


def _entry(look: Look, scale: str) -> tuple[Numeric | Categorical | Codes | None, str, str]:
    """(the entry, what was seen, what to check)."""
    few = len(look.levels) <= _FEW
    if look.numeric and not (look.whole and len(look.levels) > 2 and _NAME_OF_LEVEL.search(look.name.strip())):
        return _numeric(look, scale, few)
    if len(look.levels) <= _LEVELS or (look.numeric and len(look.levels) <= 4 * _LEVELS):
        return Categorical(column=look.name), _top(look), ""
    return _codes(look)


def _numeric(look: Look, scale: str, few: bool) -> tuple[Numeric, str, str]:
    there = look.values[~np.isnan(look.values)]
    low, inner_low, middle, inner_high, high = np.percentile(there, (0, 1, 50, 99, 100))
    tails = inner_high > inner_low and (high - low) > 10 * (inner_high - inner_low)
    chosen = scale if scale != "auto" else "clipped"
    notes = []
    if tails and scale == "auto":
        notes.append("a few values are far from all others: they count as the end of the range")
    if look.replaced:
        notes.append(f"texts among numbers ({', '.join(one_line(t, 20) for t in look.replaced)}): check replace")
    if few and look.whole and len(look.levels) > 2:
        notes.append("few whole values: if they are codes, make it [[categorical]]")
    least, most = (
        _range(low, high) if chosen == "min-max" or not inner_low < inner_high else _range(inner_low, inner_high)
    )
    bounds: dict[str, Any] = {} if chosen == "standard" else {"min": least, "max": most, "fill": _middle(least, most)}
    entry = Numeric(
        column=look.name,
        scale=chosen,
        **({"fill": "median"} | bounds),
        gaps=bool(look.missing.any()),
        replace=look.replaced or None,
    )
    seen = f"{low:g} to {high:g}, 98 % in {inner_low:g} to {inner_high:g}, median {middle:g}"
    seen += f", mean {there.mean():.4g}, std {there.std():.4g}"
    return entry, seen, "; ".join(notes)


def _range(low: float, high: float) -> tuple[float, float]:
    """About these ends, rounded to two digits outwards: so that they tell little, and people can judge them."""
    if not low < high:
        return low, low + 1
    step = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    digits = max(0, -math.floor(math.log10(step)))
    return round(math.floor(low / step) * step, digits), round(math.ceil(high / step) * step, digits)


def _middle(low: float, high: float) -> float:
    """Of the range, for values that are missing."""
    return float(f"{(low + high) / 2:.6g}")


def _codes(look: Look) -> tuple[Codes | None, str, str]:
    """Many short texts: codes, of which the frequent ones are kept."""
    least = max(5, len(look.which) // 100)
    mark = look.delimiter()
    often: dict[str, int] = {}
    for text, count in zip(look.texts, look.counts.tolist(), strict=True):
        if text not in look.gaps:
            for code in {part.strip() for part in text.split(mark)} if mark else {text.strip()}:
                often[code] = often.get(code, 0) + count
    frequent = sum(count >= 2 * least for count in often.values())
    seen = f"{len(often):,} codes, {frequent} of them in {2 * least} rows or more"
    if not frequent:
        return None, seen, f"{len(often):,} values, none of them frequent: identifiers, names or free text"
    entry = Codes(name=look.name, columns=(look.name,), delimiter=mark, min_count=least)
    return entry, seen, f"many values: those in {least} training records or more are kept"


def _drafted(
    entries: Sequence[Numeric | Categorical | Codes], outcome: Outcome, *, guessed: bool, gaps: bool
) -> Iterator[str]:
    """What of the schema was read from the table. Names of columns stand in it, but no text of a cell."""
    yield "which columns are used, and as what"
    if outcome.quantity is not None:
        yield "low and high"
    elif guessed:
        yield "positive" if outcome.positive else "classes"
    if gaps:
        yield "missing, and drop in [[filter]]"
    numbers = [entry for entry in entries if isinstance(entry, Numeric)]
    if any(entry.min is not None for entry in numbers):
        yield "min and max of every quantity, rounded to two digits"
    if any(entry.gaps for entry in numbers):
        yield "gaps: which quantities have any"
    if replaced := [entry.column for entry in numbers if entry.replace]:
        yield f"replace of {', '.join(replaced)}"
    for entry in entries:
        if isinstance(entry, Codes) and entry.drop:
            yield f"drop of {entry.name}"


def _filters(looks: list[Look]) -> tuple[Filter, ...]:
    """Rows without a label or an owner are not read."""
    return tuple(Filter(column=look.name, drop=look.gaps) for look in looks if look.missing.any())


def _top(look: Look, most: int = 5) -> str:
    counts = dict(zip(look.texts, look.counts.tolist(), strict=True))
    shown = [f"{one_line(text, 24)} ({counts[text]:,})" for text in look.levels[:most]]
    more = len(look.levels) - most
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


WARNING = (
    "The comments hold figures of your table. Keep this file as you keep the table.",
    "",
    "Ranges (min, max) were read from the table and rounded to two digits. Levels and codes are left open: every run",
    "fits them to its training records. They are not private: a rare level or code can be one person's. ε does not",
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


def draft_file(table: Path) -> Path:
    """Where a draft for this table is written unless the user says otherwise."""
    return Path(f"{table.name.partition('.')[0] or 'table'}.schema.toml")


def write_draft(draft: Draft, file: Path) -> None:
    """The draft as a file, which is whole or not there."""
    try:
        replace_file(file, draft_toml(draft).encode())
    except OSError as error:
        raise DataError(f"cannot write {file}: {error.strerror}") from None


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
        *_outcome_lines(draft),
    ]
    together = "rows of one patient stay together in every split"
    lines += _owner("patient", schema.patient, together, "every row is a person")
    whose = "whose each row is: one of the clients of the federation"
    lines += _owner("client", schema.client, whose, "rows are dealt out to --num-clients virtual hospitals")
    lines += ['# subgroups = ["COLUMN"]  # columns for which the model is judged apart', "# test_fraction = 0.2"]
    lines += [f"missing = {toml(schema.missing)}{_DRAFTED}"]
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


def _outcome_lines(draft: Draft) -> Iterator[str]:
    """What is predicted, and what else it could have been taken for."""
    schema = draft.schema
    if schema.positive:
        yield f"positive = {toml(schema.positive)}{_DRAFTED if 'positive' in schema.drafted else ''}"
        yield "# prevalence = SHARE  # of positive records, as publicly known: predict can move from it to another one"
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
            "; they get `fill`, and a mark" if isinstance(finding.entry, Numeric) else ", level Unknown"
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
