"""The user's own pictures: FOLDER/CLIENT/CLASS/PICTURE, and the test pictures in FOLDER/test/CLASS/PICTURE.

A picture is a PNG or JPEG. Pillow decodes it; nothing is decoded that a header shows to be too large.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from laconic.data.files.user_file import listed, named, open_file, refused, suffix
from laconic.data.inputs import Pictures
from laconic.data.population import PooledPopulation, Records
from laconic.errors import ConfigError, DataError, LaconicError, how_to_install, one_line, unknown

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURES = (".png", ".jpg", ".jpeg")
MOST_PIXELS = 1 << 25
"""6,000 × 5,500 or so: more than cameras take, and 100 MB as an array."""
MOST_SIDE = 4096
_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)
_GREY, _COLOUR = ("1", "L", "LA"), ("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


class Look(NamedTuple):
    """What the header of a picture says."""

    height: int
    width: int
    channels: int


def is_picture(file: Path) -> bool:
    return file.name.lower().endswith(PICTURES)


def look_at(file: Path) -> Look:
    """Height, width and 1 (grey) or 3 (colour) channels, without decoding anything."""
    with _opened(file) as image:
        width, height = image.size
        if image.getexif().get(_ORIENTATION) in _ON_ITS_SIDE:
            width, height = height, width
        return Look(height, width, 1 if image.mode in _GREY else 3)


def read_picture(file: Path, channels: int, size: tuple[int, int] | None = None) -> np.ndarray:
    """(channels, height, width) in bytes: upright, without transparency, resized to `size` (height, width) if given."""
    from PIL import Image, ImageOps

    with _opened(file) as image:
        upright = ImageOps.exif_transpose(image).convert("L" if channels == 1 else "RGB")
        if size is not None and (upright.height, upright.width) != size:
            # Averages over all the pixels that become one, so nothing flickers when a picture is made much smaller.
            upright = upright.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        array = np.array(upright, dtype=np.uint8)
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def image_size(text: str | None) -> tuple[int, int] | None:
    """(height, width) from '32x48', or from '32' for squares."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,5})(?:[x×](\d{1,5}))?", text.strip().lower(), re.ASCII)
    size = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not all(1 <= side <= MOST_SIDE for side in size):
        raise ConfigError(
            f"⟨image-size⟩ {one_line(text, 40)}: write height x width in pixels, 1 to {MOST_SIDE}, such as 32x48"
        )
    return size


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Image]:
    """The picture, not yet decoded; every failure becomes a `DataError` that names the file."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(f"{one_line(file)}: reading pictures needs Pillow: {how_to_install('pictures')}") from None
    try:
        # The size is checked here, with a limit of our own: Pillow's is a warning, and for the whole process.
        with warnings.catch_warnings(), open_file(file) as opened:
            warnings.simplefilter("ignore")
            with Image.open(opened, formats=("PNG", "JPEG")) as image:
                _check(file, image)
                yield image
    except LaconicError:
        raise
    except UnidentifiedImageError:
        raise refused(file, "is neither PNG nor JPEG, under this name; convert or remove it") from None
    except Image.DecompressionBombError:
        raise _too_large(file, "so many") from None
    except MemoryError:
        raise refused(file, "needs more memory than there is; make the picture smaller") from None
    except OSError as error:
        reason = one_line(error.strerror or " ".join(str(error).split()), 120)
        raise refused(file, f"cannot be decoded ({reason}); save the picture anew or remove it") from None
    except Exception as error:  # a damaged picture makes its decoder raise nearly anything
        reason = one_line(" ".join(str(error).split()) or type(error).__name__, 120)
        raise refused(file, f"is damaged ({reason}); save the picture anew or remove it") from None


def _check(file: Path, image: Image) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise _too_large(file, f"{height:,} × {width:,}")
    if image.mode not in (*_GREY, *_COLOUR):
        raise refused(file, f"has pixels of kind '{image.mode}'; save it with 8 bits per pixel and colour")


def _too_large(file: Path, pixels: str) -> DataError:
    return refused(file, f"has {pixels} pixels, more than {MOST_PIXELS:,}; make the picture smaller")


TEST = "test"
_IGNORED = ("thumbs.db", "desktop.ini")
"""What systems leave in folders of pictures, besides hidden files."""
_MOST_LISTED = 20


@dataclass(frozen=True)
class PictureFolder:
    """All clients' pictures in one pool, by the sorted names of their folders, and those of the test folder."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    population: PooledPopulation
    test: Records | None
    input_shape: tuple[int, ...]


@dataclass(frozen=True)
class _Listed:
    """The pictures of one client, or of the test set, by class."""

    folder: Path
    files: dict[str, list[Path]]

    def pictures(self) -> list[Path]:
        return [file for files in self.files.values() for file in files]


def holds_pictures(folder: Path) -> bool:
    """Whether the folder is meant to hold folders of pictures: it has folders, and no files of records."""
    try:
        inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:
        return False
    return any(path.is_dir() for path in inside) and not any(path.is_file() and suffix(path) for path in inside)


def read_picture_folder(
    path: str | Path,
    size: tuple[int, int] | None = None,
    *,
    classes: tuple[str, ...] = (),
    channels: int | None = None,
) -> PictureFolder:
    """Every picture, decoded once; one `DataError` lists all that cannot be used.

    All pictures have one height and width, or are resized to `size`. If any has colours, grey ones get three channels.
    A client need not have every class; the classes are those of all clients, sorted by name. Declared `classes` and
    `channels` are taken as they are.
    """
    folder = Path(path).expanduser()
    clients, test = _list_clients(folder)
    classes = _declared(classes, clients, test) if classes else _classes(folder, clients, test)
    parts = [*clients, *([test] if test else [])]
    every = [file for part in parts for file in part.pictures()]
    looks: list[Look] = []
    _each(folder, every, lambda _, file: looks.append(look_at(file)))
    height, width = _one_size(every, looks) if size is None else size
    channels = max(look.channels for look in looks) if channels is None else channels
    _refuse_too_many(folder, len(every), height * width * channels)
    images = np.empty((len(every), channels, height, width), dtype=np.uint8)

    def decode(place: int, file: Path) -> None:
        images[place] = read_picture(file, channels, size)

    _each(folder, every, decode)
    labels = [classes.index(name) for part in parts for name, files in part.files.items() for _ in files]
    pool = Records(Pictures(torch.from_numpy(images)), torch.tensor(labels, dtype=torch.int64))
    ends = np.cumsum([len(part.pictures()) for part in parts])
    rows = np.split(np.arange(len(every)), ends[:-1])
    return PictureFolder(
        names=tuple(part.folder.name for part in clients),
        classes=classes,
        population=PooledPopulation(pool, rows[: len(clients)]),
        test=_some(pool, rows[-1]) if test else None,
        input_shape=images.shape[1:],
    )


def read_classes(folder: Path, classes: tuple[str, ...], size: tuple[int, int], channels: int) -> Records:
    """One client's pictures, FOLDER/CLASS/PICTURE; the order of `classes` numbers them."""
    listed = _list_classes(folder)
    for name in listed.files:
        if name not in classes:
            raise refused(folder / name, unknown("class", name, classes))
    files = listed.pictures()
    images = np.empty((len(files), channels, *size), dtype=np.uint8)

    def decode(place: int, file: Path) -> None:
        images[place] = read_picture(file, channels, size)

    _each(folder, files, decode)
    labels = [classes.index(name) for name, pictures in listed.files.items() for _ in pictures]
    return Records(Pictures(torch.from_numpy(images)).dense(), torch.tensor(labels, dtype=torch.int64))


def every_picture(folder: Path) -> list[Path]:
    """The pictures in a folder and in the folders below it, sorted: for those without a class."""
    found = [path for path in sorted(folder.rglob("*")) if is_picture(path) and path.is_file()]
    shown = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not shown:
        raise refused(folder, f"no pictures ({', '.join(PICTURES)}) in it")
    return shown


def _some(pool: Records, rows: np.ndarray) -> Records:
    """Some of the pictures, still as bytes."""
    assert isinstance(pool.inputs, Pictures)
    return Records(pool.inputs.originals(rows), pool.targets[torch.from_numpy(rows)])


def _list_clients(folder: Path) -> tuple[list[_Listed], _Listed | None]:
    found = [_list_classes(path) for path in _inside(folder, "a client", folders=True)]
    clients = [part for part in found if part.folder.name != TEST]
    if not clients:
        raise refused(folder, "no client folders; expected FOLDER/CLIENT/CLASS/PICTURE")
    return clients, next((part for part in found if part.folder.name == TEST), None)


def _list_classes(client: Path) -> _Listed:
    loose = [path for path in _listing(client) if path.is_file() and is_picture(path)]
    if loose:
        raise refused(
            client,
            f"pictures such as {named(loose[0].name)} lie in no class; expected FOLDER/CLIENT/CLASS/PICTURE, so move"
            " them into folders named after their classes",
        )
    files = {path.name: _inside(path, "a picture", folders=False) for path in _inside(client, "a class", folders=True)}
    if not files:
        raise refused(client, "has no class folders; expected FOLDER/CLIENT/CLASS/PICTURE, or remove the folder")
    for name, pictures in files.items():
        if not pictures:
            raise refused(client / name, f"no pictures ({', '.join(PICTURES)}) in it; add some or remove the folder")
    return _Listed(client, files)


def _inside(folder: Path, what: str, *, folders: bool) -> list[Path]:
    """What is in a folder, sorted: folders alone or pictures alone; anything else is refused, not lost in silence."""
    found = _listing(folder)
    for path in found:
        if not (path.is_dir() if folders else is_picture(path) and not path.is_dir()):
            wanted = "a folder" if folders else f"a file that ends in {', '.join(PICTURES)}"
            raise refused(path, f"is not {wanted}, so it is not {what}; convert it or move it elsewhere")
    return found


def _listing(folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise refused(folder, f"cannot be read ({error.strerror or error})") from None
    return [path for path in found if path.name.lower() not in _IGNORED]


def _declared(classes: tuple[str, ...], clients: Sequence[_Listed], test: _Listed | None) -> tuple[str, ...]:
    """The declared classes; pictures of any other are refused."""
    for part in (*clients, *([test] if test else [])):
        if strange := [name for name in part.files if name not in classes]:
            raise refused(part.folder, f"class {named(strange[0])} is not declared; ⟨classes⟩ says {listed(classes)}")
    return classes


def _classes(folder: Path, clients: Sequence[_Listed], test: _Listed | None) -> tuple[str, ...]:
    names = sorted({name for client in clients for name in client.files})
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.casefold().strip(), name)
        if other != name:
            raise refused(folder, f"classes {named(other)} and {named(name)} differ only in case or spaces; rename one")
    if len(names) < 2:
        raise refused(folder, f"all pictures are of class {named(names[0])}; two classes or more are needed")
    if test is not None and (strange := [name for name in test.files if name not in names]):
        raise refused(test.folder, f"class {named(strange[0])} is no client's; theirs are {listed(names)}")
    return tuple(names)


def _each(folder: Path, files: Sequence[Path], read: Callable[[int, Path], None]) -> None:
    """Read every file; one error lists the bad ones, each in a line."""
    bad = []
    for place, file in enumerate(files):
        try:
            read(place, file)
        except DataError as error:
            bad.append(str(error))
    if bad:
        rest = [f"and {len(bad) - _MOST_LISTED} more"] if len(bad) > _MOST_LISTED else []
        lines = "\n  ".join(bad[:_MOST_LISTED] + rest)
        raise DataError(f"{one_line(folder)}: {len(bad)} bad picture{'s' * (len(bad) > 1)}\n  {lines}")


def _one_size(files: Sequence[Path], looks: Sequence[Look]) -> tuple[int, int]:
    first = looks[0]
    for file, look in zip(files, looks, strict=True):
        if (look.height, look.width) != (first.height, first.width):
            raise refused(
                file,
                f"has {look.height} × {look.width} pixels, but {files[0].name} {first.height} × {first.width}; make"
                f" them one size, or say ⟨image-size⟩ {first.height}x{first.width}",
            )
    return first.height, first.width


def _refuse_too_many(folder: Path, count: int, size: int) -> None:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return
    if count * size > memory:
        raise refused(
            folder, f"{count:,} pictures of {size:,} bytes need more memory than there is; say a smaller ⟨image-size⟩"
        )
