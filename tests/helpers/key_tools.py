"""What tests of encrypted keys share: cheap scrypt, secrets in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from laconic.guard.keys import wrapping


@pytest.fixture
def cheap_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real cost is for people who guess."""
    monkeypatch.setattr(wrapping, "SCRYPT_N", 2)


def private_file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path
