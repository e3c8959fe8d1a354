"""A release's page in the orchestrator's history: what each stage did, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from dpcore.errors import LandingError, RefusedError
from dpcore.evaluation.copula_fit import measured_summary
from dpcore.evaluation.table_summary import TableSummary
from dpcore.evaluation.utility import MeasuredSummary, noisy_spectrum, utility_report
from dpcore.measure import Released
from dpcore.measurements.noisy_moments import NoisyMoments
from dpcore.measurements.projection import Projection
from dpcore.mechanisms.names import PROJECTION
from flows.recipe import SCORE, STAGES, P, R, StageObserver
from flows.run_labels import REFUSED, keep_verdict, tags_of
from tasks.artifacts import Board, picture
from tasks.bundle.projection_text import kept_dimension
from tasks.ledger.entries.bodies import Failure, Void
from tasks.ledger.entries.entry import Entry
from tasks.ledger.releases import ReleaseState
from tasks.lineage.events import public_words
from tasks.release.context import ReleaseRun
from tasks.release.stage_values import BundleRef, Grant, MeasuredMoments, SyntheticTable
from tasks.report import cards, spectra
from tasks.report.plots import utility_plot
from tasks.workspace.helper_process import in_helper

WITHOUT_RUN = (Failure, Void)
"""Kinds of entries that do not name the flow run that wrote them."""


class RunPage:
    """The page of one release in the orchestrator's history, kept up to date while the run goes on."""

    def __init__(self, run: ReleaseRun, release_id: str) -> None:
        self._run, self._release_id, self.board = run, release_id, Board(run.flow_run_id)
        self._key, self._title = run.planned.spec.name, f"{run.planned.spec.name} {run.planned.period}"
        head = run.ledger.state().head
        self._before = head.seq if head else 0
        self._pictures: list[tuple[str, Callable[[], None]]] = []
        self._measured: MeasuredMoments | None = None
        self.label()

    # -- names and tags ------------------------------------------------------------

    def label(self, ending: str = "") -> None:
        """Name the run after its release, and tag it with the ledger entries that it has written by now."""
        name = self._release_id + ending
        self.board.attempt("the run's name", lambda: self.board.label(name=name, tags=self._tags()))

    def _tags(self) -> list[str]:
        return tags_of(self._run, self._release_id, [entry for entry in self._entries() if self._is_own(entry)])

    def _entries(self) -> list[Entry]:
        return [entry for entry in self._run.ledger.entries() if entry.release_id == self._release_id]

    def _is_own(self, entry: Entry) -> bool:
        """Whether this run wrote an entry; only one run of a name is here at a time."""
        if entry.is_a(*WITHOUT_RUN):
            return entry.seq > self._before
        return entry.flow_run_id == self._run.flow_run_id

    @property
    def _release(self) -> ReleaseState:
        return self._run.ledger.state().releases[self._release_id]

    # -- stages --------------------------------------------------------------------

    def show_stage(self, name: str, value: object) -> None:
        """Show what a stage returned; pictures that no stage waits for are drawn at the end."""
        if name == SCORE:
            self.label()  # with the ledger entries of the budgeted checks
        match value:
            case Grant():
                self._show_reservation()
            case Projection():
                self._show_choice(value)
            case MeasuredMoments():
                self._show_measurement(value)
            case SyntheticTable() if self._measured is not None:  # before the checks, which may refuse what it shows
                measured = self._measured
                self._pictures.append(("the utility plot", lambda: self._show_utility(measured, value.summary)))

    def _show_reservation(self) -> None:
        """What each measurement may spend, and the budget before and after."""
        self.label()
        self.board.attempt("the allocation", self._show_allocation)

    def _show_allocation(self) -> None:
        state = self._run.ledger.state()
        release, words = state.releases[self._release_id], f"What {self._release_id} may spend on each measurement"
        self.board.table(f"{self._key}-allocation", cards.allocation_rows(self._run.planned, release), words)
        words = f"Lifetime budget of {release.population}, with {self._release_id}"
        self.board.table(f"{self._key}-budget", cards.budget_rows(state, release), words)

    def _show_choice(self, projection: Projection) -> None:
        """The projection; where it comes out of the moments, it is shown after those."""
        if not self._run.planned.plan.reuses_gram:
            self.label()
            self.board.attempt("the projection", lambda: self._show_projection(projection, None))

    def _show_projection(self, projection: Projection, moments: NoisyMoments | None) -> None:
        text = cards.projection_card(self._run.planned, projection, self._release)
        png = self._projection_picture(projection, moments)
        shown = f"\n\n{picture(png, 'What the projection keeps')}" if png else ""
        self.board.markdown(f"{self._key}-projection", text + shown, f"Projection of {self._release_id}")

    def _projection_picture(self, projection: Projection, moments: NoisyMoments | None) -> bytes | None:
        """The noisy spectrum where one was measured, else the part that is kept of each column; None if all is."""
        run = self._run
        released = moments.released if moments else run.ledger.measurement(self._release_id, PROJECTION)
        spectrum = (
            spectra.components_spectrum(released, run.planned.encoding) if isinstance(released, Released) else None
        )
        if spectrum is not None:
            return in_helper(
                spectra.components_plot, self._title, *spectrum, kept=kept_dimension(run.planned, projection)
            )
        if projection.dimension == projection.width:
            return None
        return in_helper(spectra.kept_plot, self._title, spectra.kept_shares(projection, run.planned.encoding))

    def _show_measurement(self, measured: MeasuredMoments) -> None:
        """The noise, and the spectrum above it."""
        self._measured = measured
        self.label()
        if self._run.planned.plan.reuses_gram:
            self.board.attempt("the projection", lambda: self._show_projection(measured.projection, measured.moments))
        self.board.attempt("the noise level", lambda: self._show_noise(measured))

    def _show_noise(self, measured: MeasuredMoments) -> None:
        spectrum, count = noisy_spectrum(self._summary_of(measured)), measured.moments.count
        rows = cards.noise_rows(self._run.planned, self._release, count=count, spectrum=spectrum)
        self.board.table(f"{self._key}-noise", rows, f"Noise of {self._release_id}, planned and found")
        self._pictures.append(("the spectrum", lambda: self._show_spectrum(spectrum)))

    def _show_spectrum(self, spectrum: dict[str, Any]) -> None:
        png = in_helper(spectra.moments_plot, self._title, spectrum)
        self.board.picture(f"{self._key}-spectrum", png, f"Noisy moments of {self._release_id} against the noise")

    def _summary_of(self, measured: MeasuredMoments) -> MeasuredSummary:
        return measured_summary(self._run.planned.encoding, measured.moments, measured.projection)

    def _show_utility(self, measured: MeasuredMoments, summary: TableSummary) -> None:
        utility = utility_report(self._summary_of(measured), summary)
        facts = {"name": self._run.planned.spec.name, "period": self._run.planned.period, "utility": utility}
        words = f"Synthetic rows of {self._release_id} and their noisy measurements"
        self.board.picture(f"{self._key}-utility", in_helper(utility_plot, facts), words)

    # -- the end -------------------------------------------------------------------

    def _draw(self) -> None:
        """Draw the pictures of measurements and rows, for which no stage waits."""
        for what, show in self._pictures:
            self.board.attempt(what, show)

    def show_bundle(self, bundle: BundleRef) -> None:
        """Show the release card of a bundle that is published, or waits for approval."""
        self.label()
        self.board.attempt("the release card", lambda: self._show_card(bundle))
        self._draw()

    def _show_card(self, bundle: BundleRef) -> None:
        folder = self._run.workspace.bundle(self._run.planned.spec.name, self._release_id)
        place = folder.relative_to(self._run.workspace.root).as_posix()
        text = cards.release_card(bundle.record, status=bundle.status, entries=self._entries(), folder=place)
        self.board.markdown(f"{self._key}-release-card", text, f"{self._release_id}: {bundle.status}")

    @contextmanager
    def report_failure(self) -> Iterator[None]:
        """Show how a run ended that released nothing: what it spent, and how to go on."""
        try:
            yield
        except RefusedError as error:
            keep_verdict(self._run.workspace, self._release_id, error)
            self._report_refusal(error)
            raise
        except Exception as error:
            self._report_failure(error)
            raise

    def _report_refusal(self, error: RefusedError) -> None:
        self.label(REFUSED)
        words = public_words(error) if isinstance(error, LandingError) else f"{error.message} ({error.rule})"
        self.board.attempt("the refusal", lambda: self._show_refusal(words))
        self._draw()

    def _show_refusal(self, words: str) -> None:
        text = cards.refusal_card(self._release_id, words=words, entries=self._entries())
        self.board.markdown(f"{self._key}-refused", text, f"{self._release_id}: refused")

    def _report_failure(self, error: Exception) -> None:
        self.label()
        words = public_words(error)
        self.board.attempt("the failure", lambda: self._show_failure(words))
        self._draw()

    def _show_failure(self, words: str) -> None:
        release, entries = self._run.ledger.state().releases.get(self._release_id), self._entries()
        if release is None:  # it failed before anything was reserved
            command = f"dprelease run --period {self._run.planned.period}"
            text = cards.card(
                f"{self._release_id} was not published", {"What happened": words, "Again": f"`{command}`"}
            )
        else:
            text = cards.failure_card(release, words=words, entries=entries)
        self.board.markdown(f"{self._key}-unfinished", text, f"{self._release_id}: not published")


class PageObserver(StageObserver):
    """Watches the stages for Prefect's history too: a progress bar, and the page of the release."""

    def __init__(self, run: ReleaseRun, release_id: str) -> None:
        super().__init__(run, release_id)
        self._page, self._done = RunPage(run, release_id), 0
        self._bundle: BundleRef | None = None
        self._progress: UUID | None = None
        self._page.board.attempt("the progress bar", self._begin)

    def _begin(self) -> None:
        self._progress = self._page.board.progress("stages of the release")

    @contextmanager
    def watch_release(self) -> Iterator[None]:
        """Watch a release, and show its card or its failure at the end."""
        with self._page.report_failure(), super().watch_release():
            yield
        if self._bundle is not None:
            self._page.show_bundle(self._bundle)

    def run_stage(self, name: str, stage: Callable[P, R], *inputs: P.args, **options: P.kwargs) -> R:
        """Run one stage, advance the progress bar, and show what the stage made."""
        value = super().run_stage(name, stage, *inputs, **options)
        self._advance(name)
        self._page.show_stage(name, value)
        if isinstance(value, BundleRef):
            self._bundle = value
        return value

    def _advance(self, name: str) -> None:
        self._done += 1
        stages = len(STAGES) + bool(self.run.planned.plan.check_events)
        percent, progress, board = 100 * self._done / stages, self._progress, self._page.board
        if progress is not None:
            board.attempt("its progress", lambda: board.advance(progress, percent, f"after {name}"))
