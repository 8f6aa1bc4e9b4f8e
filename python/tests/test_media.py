"""The recipes for sound and film of your-data.md, as the page has them: what they give, and what bad files say."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import conftest
import films
import pytest
from test_pages import BLOCKS

import uringload
from uringload import DataLoader

pytestmark = conftest.needs_numpy

RATE = 16_000
#: Of each recipe, the packages that it needs.
SOUND = {"soundfile": ("soundfile", "soxr"), "torchcodec": ("torchcodec.decoders", "soundfile")}


def recipe(root: pathlib.Path, *parts: str) -> dict[str, Any]:
    """The names of the block of code that has these parts, run on the data below `root`; its loader is closed."""
    (block,) = (block for block in BLOCKS if "your-data" in block.place and all(part in block.text for part in parts))
    names: dict[str, Any] = {"uringload": uringload, "step": lambda *columns: None}
    exec(compile(block.text.replace('"/data/', f'"{root}/'), block.place, "exec"), names)
    names["loader"].close()
    return names


def needs(*packages: str) -> None:
    for name in packages:
        if not conftest.is_there(name):
            pytest.skip(f"skipped: {name} cannot be imported")


def tone(path: pathlib.Path, rate: int, seconds: float, channels: int = 1, hertz: float = 440.0) -> None:
    """A sine, sound everywhere in the file."""
    import numpy as np
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    wave = 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)
    soundfile.write(path, np.repeat(wave[:, None], channels, 1), rate)


@pytest.fixture
def sounds(tmp_path: pathlib.Path) -> pathlib.Path:
    needs("soundfile")
    root = tmp_path / "audio"
    tone(root / "0" / "long.flac", RATE, 3)
    tone(root / "0" / "other_rate.flac", 44_100, 2, channels=2)
    tone(root / "1" / "short.flac", 8_000, 0.5)
    tone(root / "1" / "plain.wav", RATE, 1)
    return root


@pytest.fixture(params=SOUND)
def second(request: pytest.FixtureRequest, sounds: pathlib.Path) -> Callable[..., Any]:
    needs(*SOUND[request.param])
    import_of = {"soundfile": "import soundfile", "torchcodec": "AudioDecoder"}[request.param]
    return recipe(sounds.parent, import_of)["second"]  # type: ignore[no-any-return]


def read(root: pathlib.Path, transform: Any, **given: Any) -> list[Any]:
    given = {"batch_size": 4, "binary": "data", "output": "numpy", **given}
    with DataLoader(root, transform=transform, **given) as loader:
        return list(loader)


def test_sound_is_cropped_resampled_and_padded(sounds: pathlib.Path, second: Callable[..., Any]) -> None:
    import numpy as np

    (batch,) = read(sounds, second)
    audio = np.asarray(batch["audio"])
    assert audio.shape == (4, RATE) and audio.dtype == np.float32
    assert np.asarray(batch["label"]).tolist() == [0, 0, 1, 1]
    names = ["long", "other_rate", "plain", "short"]
    for name, row in zip(names, audio):
        heard = row[: RATE // 2 if name == "short" else RATE]
        peak = np.abs(np.fft.rfft(heard)).argmax() * RATE / len(heard)
        assert abs(peak - 440) <= 2 and 0.3 < np.abs(heard).max() < 0.6, name
        assert not row[RATE // 2 + RATE // 50 :].any() or name != "short", "zeros follow"


def test_crops_of_sound_are_drawn_by_epoch_and_sample(sounds: pathlib.Path, second: Callable[..., Any]) -> None:
    import numpy as np

    runs = []
    for threads in (0, 2):
        with DataLoader(sounds, 4, binary="data", output="numpy", transform=second, num_threads=threads) as loader:
            runs.append([np.asarray(batch["audio"]) for _ in range(2) for batch in loader])
    assert all(np.array_equal(one, other) for one, other in zip(*runs))
    first, then = runs[0]
    assert not np.array_equal(first[0], then[0]), "another crop in the next epoch"


@pytest.mark.parametrize("how", ["cut", "cut.mp3", "cut.wav", "empty", "silent", "other"])
def test_bad_sound_is_named(sounds: pathlib.Path, second: Callable[..., Any], how: str) -> None:
    how, _, kind = how.partition(".")
    bad = sounds / "0" / "long.flac"
    if how == "silent":
        tone(bad, RATE, 0)
    else:
        made = bad.with_suffix(f".{kind or 'flac'}")
        tone(made, RATE, 3)
        whole = made.replace(bad).read_bytes()
        bad.write_bytes({"cut": whole[: len(whole) // 3], "empty": b"", "other": b"text" * 1000}[how])
    with pytest.raises(Exception) as caught:  # noqa: PT011 (each decoder has its own)
        for _ in range(20):
            read(sounds, second)
    assert any("sample 0 (key" in note and str(bad) in note for note in caught.value.__notes__), caught.value.__notes__
    with DataLoader(sounds, 4, binary="data", output="numpy", transform=second, on_error="skip") as loader:
        for _ in range(20):
            (batch,) = loader
            if batch.failed:
                break
    ((number, _, error, _),) = batch.failed
    assert number == 0 and error.file == str(bad) and len(batch["audio"]) == 3


def test_a_clip_has_frames_in_a_row(tmp_path: pathlib.Path) -> None:
    needs("torchcodec.decoders", "av")
    import numpy as np

    films.folder(tmp_path / "films")
    clip = recipe(tmp_path, "VideoDecoder")["clip"]
    (batch,) = read(tmp_path / "films", clip)
    shown = np.asarray(batch["clip"])
    assert shown.shape == (2, 8, 3, films.HEIGHT, films.WIDTH) and shown.dtype == np.uint8
    numbers = (shown.mean((2, 3, 4)) - 20) / 4
    assert np.allclose(np.diff(numbers[0]), 1, atol=0.6), numbers
    assert np.allclose(numbers[1], [0, 1, 2, 3, 4, 4, 4, 4], atol=0.6), numbers


def test_a_bad_film_is_named(tmp_path: pathlib.Path) -> None:
    needs("torchcodec.decoders", "av")
    films.folder(tmp_path / "films")
    clip = recipe(tmp_path, "VideoDecoder")["clip"]
    bad = tmp_path / "films" / "run" / "0.mp4"
    for content in (b"", bad.read_bytes()[:600]):
        bad.write_bytes(content)
        with pytest.raises(Exception) as caught:  # noqa: PT011 (torchcodec's own)
            read(tmp_path / "films", clip)
        assert any(str(bad) in note for note in caught.value.__notes__)


@pytest.fixture
def with_frame(tmp_path: pathlib.Path) -> Callable[..., Any]:
    needs("av", "pyarrow")
    films.lerobot(tmp_path / "lerobot")
    return recipe(tmp_path, "import av")["with_frame"]  # type: ignore[no-any-return]


def test_a_step_of_lerobot_has_its_frame(tmp_path: pathlib.Path, with_frame: Callable[..., Any]) -> None:
    import numpy as np

    seen = 0
    for batch in read(tmp_path / "lerobot" / "data", with_frame, shuffle=True, binary=()):
        assert batch["image"].shape == (4, films.HEIGHT, films.WIDTH, 3) and batch["image"].dtype == np.uint8
        assert batch["action"].shape == (4, films.ACTION_ELEMENTS) and batch["action"].dtype == np.float32
        gray = 40 + 100 * batch["episode_index"] + 4 * batch["frame_index"]
        assert np.abs(batch["image"].mean((1, 2, 3)) - gray).max() < 2, "the frame of its time, of its episode"
        assert np.allclose(batch["observation.state"][:, 0], batch["timestamp"])
        seen += len(gray)
    assert seen == 24


def test_a_film_of_lerobot_that_is_short_or_gone_is_named(
    tmp_path: pathlib.Path, with_frame: Callable[..., Any]
) -> None:
    film = tmp_path / "lerobot/videos/chunk-000/observation.images.top/episode_000001.mp4"
    films.write(film, [100] * 5)
    with pytest.raises(ValueError, match=r"episode_000001.mp4 has no frame at 0\.\d+ s") as caught:
        read(tmp_path / "lerobot" / "data", with_frame, binary=())
    assert any("in the transform of sample 17 " in note for note in caught.value.__notes__)
    film.unlink()
    with pytest.raises(FileNotFoundError, match="episode_000001.mp4"):
        read(tmp_path / "lerobot" / "data", with_frame, binary=())
