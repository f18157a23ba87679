"""A node's own records, from a file or folder that its owner names: tables, arrays, pictures and texts, without code.

The settings are options of `laconic node serve`, made where the node is started; nothing here comes from the server:

data         the file or folder
target       the column to be predicted, in a table without a schema: "target" unless given
patient-column  the column (of an .npz the array) that says whose each record is, if that is to count
schema       a schema that fixes everything: a node's bounds and levels must be those of all
text-column  the column that holds texts; vocabulary (hash:N or a file of words) and max-length go with it
classes      of pictures in CLASS folders: their names in the order of the run, separated by commas
image-size   HEIGHTxWIDTH, to which pictures are resized; channels is 3 unless it is 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Schema
from laconic.data.ehr.sources import load_table
from laconic.data.files.folder import load_file_of_patients
from laconic.data.files.pictures import image_size, read_classes
from laconic.data.files.texts import read_texts
from laconic.data.files.user_file import no_such_file
from laconic.data.meaning import Meaning
from laconic.data.population import Records
from laconic.data.text import FITTED, Vocabulary, encoded, vocabulary_of
from laconic.errors import ConfigError, DataError, unknown
from laconic.federation.populations import Held

_KINDS: dict[str, tuple[str, ...]] = {
    "table": ("target", "patient-column"),
    "health": ("schema",),
    "texts": ("target", "text-column", "vocabulary", "max-length"),
    "pictures": ("classes", "image-size", "channels"),
}
_KNOWN = ("data", *dict.fromkeys(key for keys in _KINDS.values() for key in keys))


def own_records(settings: Mapping[str, object]) -> Held:
    """The records that the node's settings name; they stay on this machine."""
    for key in settings:
        if key not in _KNOWN:
            raise ConfigError(unknown("setting", key, _KNOWN))
    path = Path(_text(settings, "data") or _missing("data", "the file or folder with this node's records")).expanduser()
    if not path.exists():
        raise DataError(f"this node's data {no_such_file(str(path))}")
    if path.is_dir():
        _only(settings, "pictures", f"{path} is a folder, so it holds pictures")
        return Held(_pictures(settings, path))
    if _text(settings, "schema"):
        _only(settings, "health", "the node has a schema")
        return _health(_text(settings, "schema"), path)
    if _text(settings, "text-column"):
        _only(settings, "texts", "the node has texts")
        return Held(_texts(settings, path))
    _only(settings, "table", "the node has a table or arrays")
    target, patient = _text(settings, "target") or "target", _text(settings, "patient-column") or None
    return Held(*load_file_of_patients(path, target, patient))


def tells_patients(settings: Mapping[str, object]) -> bool:
    """Whether the same settings name what says whose each record is. No record is read."""
    if _text(settings, "schema"):
        return Schema.from_toml(_text(settings, "schema")).patient is not None
    return bool(_text(settings, "patient-column"))


def own_meaning(settings: Mapping[str, object]) -> Meaning | None:
    """What the records mean by the same settings; None for a table or arrays of plain numbers. No record is read."""
    if _text(settings, "schema"):
        return Meaning.of_schema(_fixed_schema(_text(settings, "schema")))
    if _text(settings, "text-column"):
        return Meaning.of_vocabulary(_vocabulary(settings), _max_length(settings))
    if _text(settings, "classes"):
        names, (channels, height, width) = _picture_settings(settings)
        return Meaning.of_pictures(names, (channels, height, width))
    return None


def _text(settings: Mapping[str, object], key: str) -> str:
    return str(settings.get(key, "") or "")


def _missing(key: str, what: str) -> str:
    raise ConfigError(f"this node has no {key} ({what}): give --{key}")


def _only(settings: Mapping[str, object], kind: str, why: str) -> None:
    idle = [key for key in settings if key in _KNOWN[1:] and key not in _KINDS[kind]]
    if idle:
        raise ConfigError(f"--{', --'.join(idle)} means nothing here: {why}")


def _fixed_schema(schema: str) -> Schema:
    found = Schema.from_toml(schema)
    if not found.fixed:
        raise ConfigError(
            f"{schema} leaves bounds, levels or codes open: fitted by each node they would differ; fix them, as the"
            " preprocessing.toml of a run on public data does"
        )
    return replace(found, subgroups=())


def _health(schema: str, path: Path) -> Held:
    found = _fixed_schema(schema)
    table = load_table(found, path)
    assert table.labels is not None
    records = Records(Preprocessing(found).transform(table), found.outcome.targets(table.labels))
    return Held(records, None if found.patient is None else table.patients.numbers)


def _vocabulary(settings: Mapping[str, object]) -> Vocabulary:
    wanted = _text(settings, "vocabulary") or None
    if (wanted or "").startswith(FITTED):
        raise ConfigError(f"vocabulary {wanted}: fitted by each node, a word would have several numbers; use hash:N")
    return vocabulary_of(wanted, ())


def _max_length(settings: Mapping[str, object]) -> int | None:
    length = settings.get("max-length")
    return length if isinstance(length, int) else None


def _texts(settings: Mapping[str, object], path: Path) -> Records:
    vocabulary, target = _vocabulary(settings), _text(settings, "target") or "target"
    texts = read_texts(path, text_column=_text(settings, "text-column"), target=target)
    return Records(encoded(texts.texts, vocabulary, _max_length(settings)), texts.targets)


def _pictures(settings: Mapping[str, object], path: Path) -> Records:
    names, (channels, height, width) = _picture_settings(settings)
    return read_classes(path, names, (height, width), channels)


def _picture_settings(settings: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[int, int, int]]:
    """(the classes, (channels, height, width))."""
    names = [name.strip() for name in _text(settings, "classes").split(",") if name.strip()]
    if len(names) < 2:
        _missing("classes", "the names of all classes of the run, as cat,dog, so that all nodes number them alike")
    size = image_size(_text(settings, "image-size") or _missing("image-size", "HEIGHTxWIDTH, alike on all nodes"))
    channels = settings.get("channels", 3)
    if channels not in (1, 3) or size is None:
        raise ConfigError(f"channels must be 1 (grey) or 3 (colour), not {channels!r}")
    return tuple(names), (int(str(channels)), *size)
