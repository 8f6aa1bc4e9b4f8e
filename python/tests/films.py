"""Writes small films, by PyAV, and a dataset as LeRobot lays it out."""

from __future__ import annotations

import json
import pathlib
from typing import Any

FRAMES_A_SECOND, HEIGHT, WIDTH = 10, 48, 64
#: Of a step in LeRobot's tables.
ACTION_ELEMENTS = 6


def write(path: pathlib.Path, grays: list[int]) -> None:
    """A film whose frames are each of one gray."""
    import av
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as film:
        stream: Any = film.add_stream("mpeg4", rate=FRAMES_A_SECOND)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = WIDTH, HEIGHT, "yuv420p", 4_000_000
        for gray in grays:
            image = np.full((HEIGHT, WIDTH, 3), gray, np.uint8)
            film.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        film.mux(stream.encode(None))


def folder(root: pathlib.Path) -> None:
    """Films in class folders, the second with fewer frames than a clip has: frame n is of gray 20 + 4 n."""
    write(root / "run" / "0.mp4", [20 + 4 * number for number in range(40)])
    write(root / "walk" / "1.mp4", [20 + 4 * number for number in range(5)])


def lerobot(root: pathlib.Path, episodes: int = 2, steps: int = 12) -> None:
    """Frame `step` of episode `episode` is of gray 40 + 100 episode + 4 step."""
    import pyarrow
    import pyarrow.parquet

    for episode in range(episodes):
        name = f"episode_{episode:06d}"
        write(root / f"videos/chunk-000/observation.images.top/{name}.mp4",
              [40 + 100 * episode + 4 * step for step in range(steps)])  # fmt: skip
        vectors = pyarrow.array([[step / 10] * ACTION_ELEMENTS for step in range(steps)],
                                pyarrow.list_(pyarrow.float32(), ACTION_ELEMENTS))  # fmt: skip
        numbers = pyarrow.array(range(steps), pyarrow.int64())
        columns = {
            "observation.state": vectors, "action": vectors,
            "timestamp": pyarrow.array([step / FRAMES_A_SECOND for step in range(steps)], pyarrow.float32()),
            "frame_index": numbers, "episode_index": pyarrow.array([episode] * steps, pyarrow.int64()),
            "index": pyarrow.array(range(episode * steps, (episode + 1) * steps), pyarrow.int64()),
        }  # fmt: skip
        path = root / f"data/chunk-000/{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    (root / "meta").mkdir(exist_ok=True)
    (root / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v2.1", "fps": FRAMES_A_SECOND}))
