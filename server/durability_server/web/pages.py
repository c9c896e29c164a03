"""The pages: their addresses, their content, and their updates.

A page is rendered completely on the server. Once a second its live part is rendered again and sent to the
browsers that show it (server-sent events). All files come from this server, and the browser is told to load
no others. Every string is made one plain line and escaped by the templates, because a model or a label may
have any text. Every method except GET and HEAD is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib import resources
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import durability
from durability import plain_text
from durability.bench.kept_result import is_result_id, other_cell
from durability.campaign.assignments import removal
from durability.campaign.cycles import arm_of
from durability.campaign.health import health_rows, health_warnings
from durability.campaign.progress import hours
from durability.campaign.results import sentence
from durability.errors import DurabilityError, RefusedError, StoreError, UsageError
from durability.formats.case import RUNS_SCHEMA, SHOW_SCHEMA, case_to_value
from durability.formats.documents import to_json
from durability.formats.histogram import supported
from durability.formats.plan import Plan
from durability.units import (
    counted,
    duration,
    few_digits,
    format_run,
    format_size,
    parse_run,
    percent_at_most,
)
from durability_server.store.client_store import Client
from durability_server.web import comparisons, metrics, pictures
from durability_server.web.event_stream import EventStream, Parts
from durability_server.web.live_samples import Percentile
from durability_server.web.page_exchange import PageSettings
from durability_server.web.page_listener import PageListener
from durability_server.web.readings import (
    CampaignView,
    Overview,
    RunView,
    campaign_view,
    overview,
    run_view,
)
from durability_server.web.result_view import ResultView, result_view
from durability_server.web.verdict_view import verdict_view
from durability_server.web.viewer_access import AGAIN, ViewerAccess, is_viewer
from durability_server.web.watch import SAMPLED_RUNS_MAX, Topic, Watch

_HTML = "text/html; charset=utf-8"
_STATIC = {
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
_AGE = {"cache-control": "no-store"}
_SCRAPE_S = 4.0  # time for the store to answer; Prometheus waits 5 s in docs/examples/prometheus.yml


def application(watch: Watch, settings: PageSettings, listener: PageListener) -> Starlette:
    """The application for uvicorn."""
    find = None if settings.open else _finder(watch)
    pages = _Pages(watch, listener, find)
    routes = [
        Route("/", pages.overview),
        Route("/live", pages.overview_live),
        Route("/runs.json", pages.runs_json),
        Route("/runs/{run}.json", pages.run_json),
        Route("/runs/{run}", pages.run),
        Route("/runs/{run}/live", pages.run_live),
        Route("/campaigns/{name}", pages.campaign),
        Route("/campaigns/{name}/live", pages.campaign_live),
        Route("/results", pages.results),
        Route("/results/{result}", pages.result),
        Route("/compare", pages.compare),
        Route("/metrics", pages.metrics),
        Route("/static/{name}", pages.static),
    ]
    access = Middleware(ViewerAccess, find=find, host=settings.host)
    return Starlette(
        routes=routes,
        middleware=[access],
        exception_handlers={404: _not_found, DurabilityError: _failed},
    )


class _Pages:
    """The handlers of all addresses. `find` is as in `ViewerAccess`; streams check it for revoked viewers."""

    def __init__(
        self, watch: Watch, listener: PageListener, find: Callable[[str], Awaitable[Client | None]] | None
    ) -> None:
        self._watch = watch
        self._listener = listener
        self._find = find

    # Overview.

    async def overview(self, _: Request) -> Response:
        """Page with machines, drives, campaigns and runs."""
        return _page("overview.html", parts=await self._shown(self._overview_parts()))

    async def overview_live(self, request: Request) -> Response | EventStream:
        """The live part of the overview, sent whenever it changes."""
        return self._stream(request, self._overview_parts())

    async def runs_json(self, _: Request) -> Response:
        """The output of `durability runs --json`."""
        seen = await self._seen().get()
        drives = [drive.row for drive in seen.drives]
        return _json({"schema": RUNS_SCHEMA, "runs": list(seen.runs), "drives": drives})

    async def metrics(self, _: Request) -> Response:
        """The metrics for Prometheus, also if the store cannot be read."""
        seen = None
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_SCRAPE_S):
                seen = await self._seen().get()
        data = metrics.metrics(seen, self._watch, len(self._listener))
        return Response(data, headers={**_AGE, "content-type": metrics.CONTENT_TYPE})

    def _seen(self) -> Topic[Overview]:
        async def read() -> Overview:
            watch = self._watch
            return await watch.ask(
                overview, watch.store, watch.campaigns, watch.pulse.silent_s, SAMPLED_RUNS_MAX
            )

        return self._watch.topic("seen", read)

    def _overview_parts(self) -> Topic[Parts]:
        async def make() -> Parts:
            seen = await self._seen().get()
            tracks = {run.run: self._watch.track(run.run) for run in seen.live}
            lines = {run: _lines(track, over=False) for run, track in tracks.items()}
            return _parts("overview", seen=seen, lines=lines)

        return self._watch.topic("overview", make)

    # Common parts of live pages.

    async def _shown(self, parts: Topic[Parts]) -> Parts:
        """The parts with the reason why they may be old."""
        return {**await parts.get(), "trouble": self._trouble("")}

    def _trouble(self, why: str) -> str:
        """Why the page may be old: the parts cannot be made, or the server cannot write its store."""
        return _render("trouble.html", text=why or self._watch.pulse.failure or self._watch.failure)

    def _stream(self, request: Request, parts: Topic[Parts]) -> Response | EventStream:
        find, shown = self._find, request.headers.get("authorization", "")

        async def may_go_on() -> bool:
            return find is None or await is_viewer(find, shown)

        return EventStream(parts, self._listener, trouble=self._trouble, may_go_on=may_go_on)

    # A run.

    async def run(self, request: Request) -> Response:
        """Page of a run: its progress, target, events, verdicts and evidence."""
        view = await self._run(request).get()
        return _page("run.html", parts=await self._shown(self._run_parts(request)), view=view)

    async def run_live(self, request: Request) -> Response | EventStream:
        """The live part of a run."""
        with suppress(StoreError):  # the stream reports this error
            await self._run(request).get()  # an unknown run must be an error, not a stream
        return self._stream(request, self._run_parts(request))

    async def run_json(self, request: Request) -> Response:
        """The output of `durability show --json`."""
        view = await self._run(request).get()
        return _json(
            {
                "schema": SHOW_SCHEMA,
                "case": case_to_value(view.case),
                "verdicts": list(view.verdicts),
                "evidence": list(view.evidence),
            }
        )

    def _run(self, request: Request) -> Topic[RunView]:
        run = parse_run(request.path_params["run"])
        watch = self._watch

        async def read() -> RunView:
            return await watch.ask(_run_view, watch, run)

        return watch.topic(f"run {run}", read)

    def _run_parts(self, request: Request) -> Topic[Parts]:
        reading = self._run(request)

        async def make() -> Parts:
            view = await reading.get()
            track = self._watch.track(view.case.run)
            live, plan = view.now.session_end == "live", Plan.decode(bytes.fromhex(view.case.plan))
            return _parts(
                "run",
                view=view,
                plan=plan,
                verdicts=tuple(map(verdict_view, view.verdicts)),
                lines=_lines(track, over=not live),
                sample=track.newest if track is not None and live else None,
                rate_text=_rate_text(plan),
            )

        return self._watch.topic(f"parts of run {parse_run(request.path_params['run'])}", make)

    # A campaign.

    async def campaign(self, request: Request) -> Response:
        """Page of a campaign: cuts, bound, arms, health by cycle, time left."""
        name = request.path_params["name"]
        return _page("campaign.html", parts=await self._shown(self._campaign_parts(name)), name=name)

    async def campaign_live(self, request: Request) -> Response | EventStream:
        """The live part of a campaign."""
        parts = self._campaign_parts(request.path_params["name"])
        with suppress(StoreError):
            await parts.get()
        return self._stream(request, parts)

    def _campaign_parts(self, name: str) -> Topic[Parts]:
        watch = self._watch

        def made(silent_s: dict[str, float]) -> Parts:
            known = next((one for one in watch.campaigns.read() if one.name == name), None)
            if known is None or known.state.settings is None:
                raise RefusedError("campaign-unknown", f"there is no campaign {name!r}")
            return _campaign_parts(campaign_view(known, silent_s), known.state)

        async def make() -> Parts:
            return await watch.ask(made, watch.pulse.silent_s.get(name, {}))

        return watch.topic(f"campaign {name}", make)

    # Benchmark results.

    async def results(self, _: Request) -> Response:
        """Page of kept results, where two or more can be chosen for a comparison."""
        watch = self._watch

        async def read() -> tuple[Mapping[str, Any], ...]:
            return await watch.ask(comparisons.kept_results, watch.store)

        return _page("results.html", results=await watch.topic("results", read).get())

    async def result(self, request: Request) -> Response:
        """Page of a kept result: the four lines, the best size and the warnings."""
        name, watch = request.path_params["result"], self._watch
        if not is_result_id(name):
            return _missing("There is no such result.")

        async def read() -> ResultView:
            return await watch.ask(result_view, watch.store, name)

        return _page("result.html", view=await watch.topic(f"result {name}", read).get())

    async def compare(self, request: Request) -> Response:
        """Page that compares the chosen results as `durability compare` does."""
        names = comparisons.chosen(request.query_params.getlist("result"))
        watch = self._watch

        async def read() -> str:
            view = await watch.ask(comparisons.comparison_view, watch.store, watch.campaigns, names)
            return _render("compare.html", view=view, names=names)

        text = await watch.topic(f"compare {' '.join(names)}", read).get()
        return Response(text, headers={**_AGE, "content-type": _HTML})

    # Static files.

    async def static(self, request: Request) -> Response:
        """Icon, style and script."""
        name = request.path_params["name"]
        if name not in _STATIC:
            return _missing("There is no such page.")
        headers = {"cache-control": "max-age=31536000, immutable", "content-type": _STATIC[name]}
        return Response(_file(name), headers=headers)


def _finder(watch: Watch) -> Callable[[str], Awaitable[Client | None]]:
    async def find(client: str) -> Client | None:
        return await watch.ask(watch.store.clients.find, client)

    return find


def _run_view(watch: Watch, run: int) -> RunView:
    """A run. Its events include that a campaign had its files removed. Raises RefusedError and StoreError."""
    view = run_view(watch.store, run, watch.boot_id)
    removals = (removal(one.state, format_run(run)) for one in watch.campaigns.read())
    found = tuple(one for one in removals if one is not None)[:1]
    return replace(view, case=replace(view.case, events=(*view.case.events, *found)))


def _lines(track: Any, *, over: bool) -> tuple[pictures.PictureLine, ...]:
    """The pictures of a run's samples. `over`: the run is not live."""
    if track is None:
        return ()
    samples = tuple(track.samples)
    lines = (
        pictures.line_of("acknowledged", [one.rate for one in samples], _rate_text(track.plan), over=over),
        _percentiles("p50", [one.p50 for one in samples], over=over),
        _percentiles("p99", [one.p99 for one in samples], over=over),
        pictures.line_of("frame age", [one.lag_s for one in samples], pictures.seconds_text, over=over),
    )
    return tuple(line for line in lines if line is not None)


def _rate_text(plan: Plan) -> Callable[[float], str]:
    """The function that gives the rate of a run as text."""
    written = plan.record_bytes if plan.contract.always_writes else 0
    return partial(pictures.rate_text, record_bytes=written)


def _percentiles(
    name: str, values: Sequence[Percentile | None], *, over: bool
) -> pictures.PictureLine | None:
    """The picture of a percentile. Its name has the span of the newest value."""
    micros = [None if one is None else one.us for one in values]
    named = _of_commits(name, values[-1] if values else None)
    return pictures.line_of(named, micros, pictures.micros_text, over=over)


def _of_commits(name: str, one: Percentile | None) -> str:
    """The label of the percentile `name`, with its span if that is longer than a second."""
    span = "" if one is None or round(one.span_s) <= 1 else f", newest {one.span_s:.0f} s"
    return f"{name} of a commit{span}"


def _campaign_parts(view: CampaignView, state: Any) -> Parts:
    health = []
    for result in view.results:
        rows = health_rows(state, result.drive)
        health.append((result.drive, pictures.health_lines(rows), health_warnings(rows)))
    known = [past for past in state.cycles if past.began.cycle]
    cycles = [(past, arm_of(state.plan, past.began.cycle).name) for past in known]
    recent = tuple(reversed(cycles[-50:]))
    return _parts("campaign", view=view, health=health, recent=recent)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("durability_server.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=plain_text.as_line_if_text,
    )
    environment.globals.update(
        version=durability.__version__,
        percent_at_most=percent_at_most,
        hours=hours,
        counted=counted,
        duration=duration,
        few_digits=few_digits,
        format_size=format_size,
        other_cell=other_cell,
        sentence=sentence,
        micros_text=pictures.micros_text,
        of_commits=_of_commits,
        seconds_text=pictures.seconds_text,
        supported=supported,
        asset=_asset,
    )
    return environment


@cache
def _file(name: str) -> bytes:
    return resources.files("durability_server.web").joinpath("templates", name).read_bytes()


@cache
def _asset(name: str) -> str:
    """The address of a static file, which changes with its content."""
    return f"/static/{name}?{hashlib.sha256(_file(name)).hexdigest()[:12]}"


def _parts(page: str, **values: Any) -> Parts:
    """The parts `now`, which changes all the time, and `rest`."""
    return {name: _render(f"{page}_{name}.html", **values) for name in ("now", "rest")}


def _render(template: str, /, **values: Any) -> str:
    return _templates().get_template(template).render(**values)


def _page(template: str, /, *, status: int = 200, **values: Any) -> Response:
    return Response(_render(template, **values), status, headers={**_AGE, "content-type": _HTML})


def _json(value: object) -> Response:
    return Response(to_json(value) + "\n", headers={**_AGE, "content-type": "application/json"})


def _missing(text: str) -> Response:
    return _page("error.html", heading="Not found", text=text, status=404)


async def _not_found(_: Request, __: Exception) -> Response:
    return _missing("There is no such page.")


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, RefusedError | UsageError):
        return _missing(str(error))
    text = plain_text.as_line(str(cast(DurabilityError, error)))
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(f"{text}\n", 503)
    response = _page("error.html", heading="Not available now", text=text, status=503)
    response.headers.update(AGAIN)
    return response
