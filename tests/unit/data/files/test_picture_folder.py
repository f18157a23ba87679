"""The user's own pictures: read right, or refused in a line that names the file."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laconic.data.files.pictures import holds_pictures, image_size, read_picture, read_picture_folder
from laconic.data.inputs import dense
from laconic.errors import ConfigError, DataError, LaconicError

pytestmark = pytest.mark.filterwarnings("error")


def picture(
    value: int | tuple[int, int, int], size: tuple[int, int] = (4, 6), kind: str = "PNG", **options: object
) -> bytes:
    """A picture of one colour, (height, width)."""
    mode = "L" if isinstance(value, int) else "RGB"
    stream = io.BytesIO()
    Image.new(mode, (size[1], size[0]), value).save(stream, kind, **options)
    return stream.getvalue()


def write(folder: Path, files: dict[str, bytes | None]) -> Path:
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


GOOD: dict[str, bytes | None] = {
    "berlin/cat/1.png": picture(10),
    "berlin/cat/2.jpg": picture(20, kind="JPEG"),
    "berlin/dog/1.PNG": picture(30),
    "athens/dog/9.jpeg": picture(40, kind="JPEG"),
    "test/cat/1.png": picture(50),
}


def test_clients_and_classes_are_folders_in_the_order_of_their_names(tmp_path: Path) -> None:
    found = read_picture_folder(write(tmp_path, GOOD))
    assert holds_pictures(tmp_path)
    assert found.names == ("athens", "berlin") and found.classes == ("cat", "dog")
    assert found.input_shape == (1, 4, 6)
    population = found.population
    assert [population.size(client) for client in range(2)] == [1, 3]
    athens, berlin = population.records(0), population.records(1)
    assert athens.targets.tolist() == [1] and berlin.targets.tolist() == [0, 0, 1]
    np.testing.assert_allclose(berlin.inputs[:, 0, 0, 0], np.array([10, 20, 30]) / 255, atol=1 / 255)
    assert found.test is not None and found.test.targets.tolist() == [0]


def test_one_picture_in_colours_makes_all_have_three_channels(tmp_path: Path) -> None:
    found = read_picture_folder(write(tmp_path, GOOD | {"athens/cat/red.png": picture((200, 0, 0))}))
    assert found.input_shape == (3, 4, 6)
    athens, berlin = ((dense(found.population.records(client).inputs) * 255).round() for client in range(2))
    assert athens[0, :, 0, 0].tolist() == [200, 0, 0]
    assert berlin[0, :, 0, 0].tolist() == [10, 10, 10]


def test_pictures_of_two_sizes_are_resized_if_asked(tmp_path: Path) -> None:
    write(tmp_path, GOOD | {"athens/cat/large.png": picture(90, (40, 60))})
    found = read_picture_folder(tmp_path, image_size("2x3"))
    assert found.input_shape == (1, 2, 3)
    assert (dense(found.population.records(0).inputs)[0] * 255).round().unique().tolist() == [90]


def test_a_picture_stands_upright_as_the_camera_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    array = np.zeros((4, 6), dtype=np.uint8)
    array[:, :2] = 255
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG", exif=exif)
    (tmp_path / "a.png").write_bytes(stream.getvalue())
    upright = read_picture(tmp_path / "a.png", 1)
    assert upright.shape == (1, 6, 4) and upright[0, :2].min() == 255 and upright[0, 2:].max() == 0


def test_transparency_and_palettes_are_read_as_colours(tmp_path: Path) -> None:
    for mode in ("RGBA", "P", "LA", "1", "CMYK"):
        stream = io.BytesIO()
        Image.new("RGB", (3, 3), (255, 255, 255)).convert(mode).save(stream, "JPEG" if mode == "CMYK" else "PNG")
        (tmp_path / "a.png").write_bytes(stream.getvalue())
        assert read_picture(tmp_path / "a.png", 3).min() >= 250, mode


def test_what_systems_leave_behind_is_no_picture(tmp_path: Path) -> None:
    strays = {"berlin/.DS_Store": b"x", "berlin/cat/.hidden.png": b"x", "athens/dog/Thumbs.db": b"x", ".git/a/b": b"x"}
    assert read_picture_folder(write(tmp_path, GOOD | strays)).names == ("athens", "berlin")


def bomb(side: int) -> bytes:
    """A PNG of a few bytes whose header claims side × side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def gif() -> bytes:
    stream = io.BytesIO()
    Image.new("L", (6, 4)).save(stream, "GIF")
    return stream.getvalue()


def deep() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((4, 6), dtype=np.uint16)).save(stream, "PNG")
    return stream.getvalue()


BAD: dict[str, tuple[dict[str, bytes | None], str, str]] = {
    "an empty class folder": ({"berlin/fox": None}, "berlin/fox", "no pictures"),
    "an empty client folder": ({"cairo": None}, "cairo", "has no class folders"),
    "two sizes": ({"berlin/cat/3.png": picture(1, (5, 6))}, "berlin/cat/3.png", "--image-size 4x6"),
    "a text named .jpg": ({"berlin/cat/a.jpg": b"hello"}, "berlin/cat/a.jpg", "neither PNG nor JPEG"),
    "a GIF named .png": ({"berlin/cat/a.png": gif()}, "berlin/cat/a.png", "neither PNG nor JPEG"),
    "a truncated JPEG": ({"berlin/cat/a.jpg": GOOD["berlin/cat/2.jpg"][:-40]}, "berlin/cat/a.jpg", "anew"),  # type: ignore[index]
    "a truncated PNG": ({"berlin/cat/a.png": GOOD["berlin/cat/1.png"][:-26]}, "berlin/cat/a.png", "anew"),  # type: ignore[index]
    "an empty file": ({"berlin/cat/a.png": b""}, "berlin/cat/a.png", "neither PNG nor JPEG"),
    "a picture that claims 10^8 pixels": (
        {"berlin/cat/a.png": bomb(10_000)},
        "berlin/cat/a.png",
        "make the picture smaller",
    ),
    "a picture that claims 10^9 pixels": (
        {"berlin/cat/a.png": bomb(40_000)},
        "berlin/cat/a.png",
        "make the picture smaller",
    ),
    "pictures without a class": ({"berlin/a.png": picture(1)}, "berlin", "lie in no class"),
    "a stray table": ({"berlin/cat/a.txt": b"x"}, "berlin/cat/a.txt", "is not a picture"),
    "a stray file among clients": ({"readme.txt": b"x"}, "readme.txt", "is not a client"),
    "a folder in a class": ({"berlin/cat/more/1.png": picture(1)}, "berlin/cat/more", "is not a picture"),
    "a test class of nobody": ({"test/fox/1.png": picture(1)}, "test", "class 'fox' is no client's"),
    "two spellings of a class": ({"athens/Cat/1.png": picture(1)}, "", "'Cat' and 'cat' differ only in case"),
    "16 bits": ({"berlin/cat/a.png": deep()}, "berlin/cat/a.png", "8 bits"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_pictures_are_refused_by_name(name: str, tmp_path: Path) -> None:
    more, culprit, words = BAD[name]
    with pytest.raises(DataError) as caught:
        read_picture_folder(write(tmp_path, GOOD | more))
    message = str(caught.value)
    assert str(tmp_path / culprit) in message and words in message
    assert len(message.splitlines()) <= 2  # the folder, and its bad picture


def test_all_bad_pictures_are_listed(tmp_path: Path) -> None:
    write(tmp_path, GOOD | {f"berlin/cat/bad{i:02}.png": b"x" for i in range(25)})
    with pytest.raises(DataError) as caught:
        read_picture_folder(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("25 bad pictures") and len(lines) == 22 and lines[-1].strip() == "and 5 more"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"cat/1.png": picture(1), "dog/2.png": picture(2)}, "lie in no class"),
        ({"test/cat/1.png": picture(1)}, "no client folders"),
        ({"berlin/cat/1.png": picture(1)}, "two classes or more"),
    ],
)
def test_a_folder_that_cannot_be_a_federation_is_refused(files: dict[str, bytes], words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        read_picture_folder(write(tmp_path, dict(files)))


@pytest.mark.parametrize("text", ["", "0", "4x", "-4", "4x5x6", "1e3", "99999", "²"])
def test_a_bad_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="--image-size .*32x48"):
        image_size(text)
    assert image_size("7") == (7, 7) and image_size(None) is None


def test_without_pillow_the_way_to_install_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(LaconicError, match=r"Pillow: pip install '.\[pictures\]'"):
        read_picture_folder(tmp_path)


def test_every_damaged_byte_is_survived(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Flip and cut at random: what comes out is a picture or a line, never another exception."""
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 255, (12, 12, 3), dtype=np.uint8))
    for kind in ("PNG", "JPEG"):
        stream = io.BytesIO()
        noise.save(stream, kind)
        plain = stream.getvalue()
        for _ in range(150):
            damaged = bytearray(plain)
            for place in rng.integers(0, len(plain), 3):
                damaged[place] = rng.integers(256)
            (tmp_path / "a.png").write_bytes(bytes(damaged[: rng.integers(len(plain) // 2, len(plain) + 1)]))
            try:
                assert read_picture(tmp_path / "a.png", 3).dtype == np.uint8
            except DataError as error:
                assert "a.png" in str(error) and len(str(error).splitlines()) == 1
    assert capfd.readouterr() == ("", "")


def test_more_pictures_than_fit_into_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, GOOD)
    monkeypatch.setattr("os.sysconf", lambda name: 10)
    with pytest.raises(DataError, match="smaller --image-size"):
        read_picture_folder(tmp_path)
