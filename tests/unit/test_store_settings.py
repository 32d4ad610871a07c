"""The store's locations, by default and by URL."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from bessemer.store.settings import StoreSettings, read_settings

DATA = Path("/data")


def test_the_defaults_need_only_a_folder() -> None:
    settings = StoreSettings(data=DATA)
    assert str(settings.database) == "sqlite:////data/bessemer.sqlite"
    assert str(settings.engine) == "sqlite:////data/engine.sqlite"
    assert settings.artifacts == "file:///data/artifacts"


def test_a_relative_folder_is_made_absolute() -> None:
    assert StoreSettings(data=Path("here")).artifacts == (Path.cwd() / "here" / "artifacts").as_uri()


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_postgresql_holds_the_engine_too_and_uses_the_installed_driver(scheme: str) -> None:
    settings = StoreSettings(data=DATA, database_url=f"{scheme}://user:secret@host:5432/name")
    expected = "postgresql+psycopg://user:secret@host:5432/name"
    assert settings.database.render_as_string(hide_password=False) == expected
    assert settings.engine == settings.database


def test_each_place_can_be_named_by_itself() -> None:
    settings = StoreSettings(
        data=DATA,
        database_url="sqlite:////elsewhere/jobs.sqlite",
        engine_url="postgresql://host/engine",
        artifacts_url="s3://bucket/prefix",
    )
    assert str(settings.database) == "sqlite:////elsewhere/jobs.sqlite"
    assert str(settings.engine) == "postgresql+psycopg://host/engine"
    assert settings.artifacts == "s3://bucket/prefix"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("database_url", "nonsense"),
        ("database_url", "postgresql://user:secret@host:port/name"),
        ("database_url", "mysql://user:secret@host/name"),
        ("engine_url", "http://user:secret@host"),
        ("artifacts_url", "nonsense"),
        ("artifacts_url", "ftp://user:secret@host"),
    ],
)
def test_an_invalid_url_is_refused_without_printing_its_secret(name: str, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        StoreSettings.model_validate({name: text})
    (error,) = caught.value.errors()
    assert error["loc"] == (name,)
    assert "not a URL such as" in error["msg"]
    assert "secret" not in error["msg"]


@pytest.mark.parametrize("text", ["postgres://host/name", "postgresql://host/name"])
def test_either_name_of_postgresql_is_accepted(text: str) -> None:
    assert StoreSettings(database_url=text).engine.drivername == "postgresql+psycopg"


def test_the_environment_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BESSEMER_DATA", "/other")
    monkeypatch.setenv("BESSEMER_ARTIFACTS_URL", "gs://bucket")
    settings = StoreSettings()
    assert (settings.folder, settings.artifacts) == (Path("/other"), "gs://bucket")


def test_a_misspelled_quota_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BESSEMER_QUOTA_RUNING_JOBS", "1")
    with pytest.raises(SystemExit):
        read_settings(StoreSettings)
    printed = capsys.readouterr().err
    assert "BESSEMER_QUOTA_RUNING_JOBS is not a setting" in printed
    assert "BESSEMER_QUOTA_RUNNING_JOBS" in printed
