"""Deal scikit-learn's handwritten threes and eights out to five owners, and some to the server.

python make_data.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

THREE, EIGHT = 3, 8
MEAN = 0.3  # of grey, about: pictures that are all positive mostly say how much ink they have


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    inputs = (digits.images[:, None] / 16 - MEAN).astype(np.float32)
    targets = (digits.target == EIGHT).astype(np.int64)
    order = np.random.default_rng(0).permutation(np.flatnonzero(np.isin(digits.target, (THREE, EIGHT))))
    parts = {"public": order[:10], "test": order[10:110]}
    parts |= {f"owner-{number}": rows for number, rows in enumerate(np.array_split(order[110:], 5))}
    for name, rows in parts.items():
        np.savez(folder / f"{name}.npz", inputs=inputs[rows], targets=targets[rows])
    print(f"wrote owner-0.npz … owner-4.npz, public.npz and test.npz to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
