"""Where the store keeps its things."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import URL, make_url

POSTGRESQL = "postgresql"


class StoreSettings(BaseSettings):
    """Read from ``BESSEMER_*``; the defaults need nothing but a folder."""

    model_config = SettingsConfigDict(env_prefix="BESSEMER_", extra="ignore", frozen=True)

    data: Path = Field(default=Path("bessemer-data"), description="The folder of everything that is kept.")
    database_url: str | None = Field(
        default=None,
        description="`postgresql://user:password@host/name`, or `sqlite:///file`; default: a file in `data`.",
    )
    engine_url: str | None = Field(
        default=None,
        description="The job engine's database; default: `database_url` if that is PostgreSQL, else a file.",
    )
    artifacts_url: str | None = Field(
        default=None,
        description="`s3://bucket/prefix`, `gs://…`, `az://…`, `file:///folder`; default: within `data`.",
    )

    @property
    def folder(self) -> Path:
        """``data`` as an absolute path."""
        return self.data.expanduser().resolve()

    @property
    def database(self) -> URL:
        """The database of jobs, models and workers, with the driver that is installed."""
        return _with_driver(make_url(self.database_url or f"sqlite:///{self.folder / 'bessemer.sqlite'}"))

    @property
    def engine(self) -> URL:
        """The job engine's database. SQLite keeps it in a file of its own: its writers would block ours."""
        if self.engine_url:
            return _with_driver(make_url(self.engine_url))
        if self.database.get_backend_name() == POSTGRESQL:
            return self.database
        return make_url(f"sqlite:///{self.folder / 'engine.sqlite'}")

    @property
    def artifacts(self) -> str:
        """The URL of the artifact store."""
        return self.artifacts_url or (self.folder / "artifacts").as_uri()


def _with_driver(url: URL) -> URL:
    if url.get_backend_name() in (POSTGRESQL, "postgres"):
        return url.set(drivername="postgresql+psycopg")
    return url
