"""The evidence page: what can be downloaded, and the commands that verify it without trusting this site."""

from __future__ import annotations

import shlex
from typing import Any

from tasks.site.folder import AUDIT, BUNDLES, EVIDENCE, EXPORT, KEYS, sealing_keys
from tasks.site.frame import Site

PATH = "evidence.html"


def evidence_page(site: Site) -> str:
    """Render the page."""
    releases = site.survey.state.releases
    listed = [(bundle, releases.get(release_id)) for release_id, bundle in sorted(site.survey.bundles.items())]
    return site.render(
        "evidence.html.j2",
        PATH,
        bundles=listed,
        keys=list(sealing_keys(site.survey)),
        commands=commands(site),
        paths={"export": f"{EVIDENCE}/{EXPORT}", "audit": f"{EVIDENCE}/{AUDIT}", "keys": f"{EVIDENCE}/{KEYS}"},
        whole=has_all_bundles(site),
        retracted=sorted(release_id for release_id, release in releases.items() if release.retraction),
    )


def has_all_bundles(site: Site) -> bool:
    """Whether the bundle of every published release is here, retracted ones apart, so that one command verifies all."""
    releases = site.survey.state.releases.values()
    needed = [release.release_id for release in releases if release.published and not release.retraction]
    return all(release_id in site.survey.bundles for release_id in needed)


def commands(site: Site) -> list[str]:
    """Return what to run in the site's folder: one command for everything, or one per release of this workspace."""
    keys = sealing_keys(site.survey)
    if not keys or not site.survey.entries:
        return []
    given = [f"--public-key {shlex.quote(f'{EVIDENCE}/{KEYS}/{key_id}.pub')}" for key_id in keys]
    rest = f"--export {EVIDENCE}/{EXPORT} --bundles {EVIDENCE}/{BUNDLES} {' '.join(given)}"
    if has_all_bundles(site) or not site.survey.shared:
        return [f"dprelease audit {rest}"]
    return [f"dprelease audit {shlex.quote(release_id)} {rest}" for release_id in _own_releases(site)]


def _own_releases(site: Site) -> list[Any]:
    known = site.survey.state.releases
    return [release_id for release_id in site.survey.bundles if release_id in known]
