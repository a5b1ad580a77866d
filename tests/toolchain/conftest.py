from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test starts with an empty cache of its own."""
    root = tmp_path / "cache"
    monkeypatch.setenv("WEFT_CACHE", str(root))
    return root
