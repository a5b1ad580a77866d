from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a separate, empty cache."""
    root = tmp_path / "cache"
    monkeypatch.setenv("WEFT_CACHE", str(root))
    return root
