"""Deal scikit-learn's handwritten digits out to five owners, and some to the server.

python make_data.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    inputs = (digits.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(inputs))
    parts = {"public": order[:50], "test": order[50:350]}
    parts |= {f"owner-{number}": rows for number, rows in enumerate(np.array_split(order[350:], 5))}
    for name, rows in parts.items():
        np.savez(folder / f"{name}.npz", inputs=inputs[rows], targets=digits.target[rows])
    print(f"wrote owner-0.npz … owner-4.npz, public.npz and test.npz to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
