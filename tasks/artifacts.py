"""The door to the orchestrator's history: a run's name, tags and artifacts.

What a release leaves there is for people to look at. The ledger, the record and the
lineage do not rely on it, so nothing here can fail a release: a server that is down or
slow, or a picture that cannot be drawn, is reported to the operator and skipped.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.context import SettingsContext, get_settings_context
from prefect.exceptions import PrefectException

from tasks.boundary import log_operator
from tasks.workspace.redaction import own_error

PATIENCE = 5.0
"""Seconds to wait for an answer of the server; requests are not repeated."""

SILENCE = 30.0
"""Seconds during which no request is sent to a server that did not answer."""


class Board:
    """The name, tags and artifacts of one flow run."""

    def __init__(self, flow_run_id: str) -> None:
        self._run_id, self._silent_until = UUID(flow_run_id), 0.0

    def attempt(self, what: str, action: Callable[[], object]) -> None:
        """Try an action; if it fails, tell the operator and continue the release."""
        if time.monotonic() < self._silent_until:
            return
        try:
            with self._asking_once():
                action()
        except (httpx.HTTPError, PrefectException) as error:
            self._silent_until = time.monotonic() + SILENCE
            log_operator(f"could not record {what} in Prefect's run history: no answer ({type(error).__name__})")
        except Exception as error:  # noqa: BLE001  whatever it is, the release goes on
            log_operator(f"could not record {what} in Prefect's run history: {own_error(error, 'show')}")

    @contextmanager
    def _asking_once(self) -> Iterator[None]:
        """Disable the retries of Prefect's client, which take a minute and more."""
        with SettingsContext(profile=self._settings.profile, settings=self._settings.settings):
            yield

    @cached_property
    def _settings(self) -> SettingsContext:
        """The settings as they are, without retries; `temporary_settings` would read all of them anew."""
        context = get_settings_context()
        client = context.settings.client.model_copy(update={"max_retries": 0})
        return context.model_copy(update={"settings": context.settings.model_copy(update={"client": client})})

    @cached_property
    def _client(self) -> SyncPrefectClient:
        return get_client(httpx_settings={"timeout": PATIENCE}, sync_client=True)

    def label(self, *, name: str, tags: Sequence[str]) -> None:
        """Name the run and set its tags."""
        self._client.update_flow_run(self._run_id, name=name, tags=list(tags))

    def table(self, key: str, rows: Sequence[dict[str, Any]], description: str) -> None:
        """Create a table, with one dictionary per row."""
        self._create("table", key, json.dumps(rows, allow_nan=False), description)

    def markdown(self, key: str, text: str, description: str) -> None:
        """A page of text."""
        self._create("markdown", key, text, description)

    def picture(self, key: str, png: bytes, description: str) -> None:
        """A picture on a page of its own."""
        self._create("markdown", key, picture(png, description), description)

    def progress(self, description: str) -> UUID:
        """A progress bar at its beginning."""
        return self._create("progress", None, 0.0, description)

    def advance(self, progress: UUID, percent: float, description: str) -> None:
        """Move a progress bar."""
        self._client.update_artifact(progress, ArtifactUpdate(data=percent, description=description))

    def _create(self, kind: str, key: str | None, data: str | float, description: str) -> UUID:
        artifact = ArtifactCreate(type=kind, key=key, data=data, description=description, flow_run_id=self._run_id)
        return self._client.create_artifact(artifact).id


def picture(png: bytes, words: str) -> str:
    """A picture inside a page: it travels with it, and needs no place that others can reach.

    Prefect's own image artifacts show the whole address besides, which is the picture itself here.
    """
    return f"![{words}](data:image/png;base64,{base64.b64encode(png).decode()})"
