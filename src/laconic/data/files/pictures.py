"""One picture, PNG or JPEG, as an array. Pillow decodes it; nothing is decoded that a header shows to be too large."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from laconic.data.files.user_file import open_file, refused
from laconic.errors import ConfigError, DataError, LaconicError, how_to_install, one_line

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
            f"--image-size {one_line(text, 40)}: write height x width in pixels, 1 to {MOST_SIDE}, such as 32x48"
        )
    return size


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Image]:
    """The picture, not yet decoded; whatever goes wrong with it becomes a `DataError` that names the file."""
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
        raise refused(file, "is neither PNG nor JPEG, whatever its name says; convert or remove it") from None
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
