"""The command that trains a cost model says what is wrong with its paths."""

from pathlib import Path

import pytest

from worker.learn import DATABASE, main


@pytest.mark.parametrize(
    ("files", "folder", "output", "said"),
    [
        ((), "missing", "model.json", "there is no folder missing; `bessemer records export missing` makes"),
        ((), "records", "model.json", "records has no database_workload.json and no database_tuning_record"),
        (DATABASE[:1], "records", "model.json", "records has no database_tuning_record.json"),
        (DATABASE, "records", "nowhere/model.json", "--output: there is no folder nowhere"),
    ],
)
def test_a_path_without_records_is_refused_with_status_2(
    files: tuple[str, ...],
    folder: str,
    output: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("records").mkdir()
    for name in files:
        (Path("records") / name).touch()
    with pytest.raises(SystemExit) as ended:
        main([folder, "--output", output])
    assert ended.value.code == 2
    assert f"error: {said}" in capsys.readouterr().err
