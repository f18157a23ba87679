"""How a run begins under torchrun: the same settings everywhere, or an error that says what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from e2e_tools import call
from rank_tools import together

from laconic.errors import ConfigError, RankFailed
from laconic.ranks.group import Ranks
from laconic.ranks.start import _device, lead, with_threads
from laconic.settings.config import RunConfig

CONFIG = RunConfig().with_values({"data.dataset": "synthetic", "data.num_clients": 20, "run.rounds": 1})


def started(meeting: Path, answer: dict[str, object], **changes: object) -> object:
    """Rank 0 begins; rank 1 gives this answer."""

    def other(ranks: Ranks) -> None:
        assert ranks.hear(0)["config"]["run"]["threads"] == torch.get_num_threads()
        ranks.tell(answer, 0)
        assert ranks.hear(0) == {"what": "stop"}

    config = CONFIG.with_values({"run.threads": torch.get_num_threads()} | changes)
    return together(meeting, 2, lambda ranks: lead(ranks, config, meeting.parent / "run", new=True), other)


def test_a_rank_with_other_data_or_code_is_refused(tmp_path: Path) -> None:
    answer = {"what": "ready", "experiment": "another", "environment": "here"}
    with pytest.raises(ConfigError, match="rank 1 has another experiment than rank 0"):
        started(tmp_path / "meeting", answer)


def test_what_another_rank_cannot_build_is_said_by_rank_0(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="rank 1: no such file") as failed:
        started(tmp_path / "meeting", {"what": "failed", "error": "no such file", "code": 4})
    assert failed.value.exit_code == 4


def test_rank_0_hears_the_others_out_before_it_says_its_own_error(tmp_path: Path) -> None:
    answer = {"what": "failed", "error": "the same", "code": 2}
    with pytest.raises(ConfigError, match="unknown model"):
        started(tmp_path / "meeting", answer, **{"model.name": "nothing"})


def test_threads_do_not_follow_from_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert with_threads(CONFIG).run.threads == 1
    for said, threads in (("3", 3), ("0", 1), ("many", 1)):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert with_threads(CONFIG).run.threads == threads
    assert with_threads(CONFIG.with_values({"run.threads": 2})).run.threads == 2


class _Two:
    """Rank 1 of two on a machine."""

    size, local = 2, 1


def test_every_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [_device(_Two(), name) for name in ("cpu", "cuda", "auto")] == ["cpu", "cuda:1", "cuda:1"]  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="--device cuda:1 is one GPU for 2 ranks: use --device cuda"):
        _device(_Two(), "cuda:1")  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="has no GPU of its own, there are 1: lower --nproc-per-node"):
        _device(_Two(), "auto")  # type: ignore[arg-type]


def test_other_commands_take_one_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    ended = call(capsys, "audit", "fl-std-dp")
    assert ended.code == 2
    assert "only laconic run takes several ranks: start laconic audit without torchrun" in ended.err
    monkeypatch.setenv("RANK", "1")
    assert call(capsys, "audit", "fl-std-dp").err == "", "rank 0 has said it"
