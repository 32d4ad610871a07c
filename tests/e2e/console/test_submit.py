"""Submitting a model from a browser, with and without scripts."""

import hashlib
import random
import re
from pathlib import Path

import pytest
from conftest import LiveApp
from playwright.sync_api import Page, Route, expect

from app.console.uploads import PART_BYTES
from bessemer.contract.problem import ErrorCode, make_problem
from tests.inspections import inspected
from tests.integration.app.app_samples import WITH_SHAPES, WITHOUT_SHAPES
from tests.tenant_data import own

ONE_COMPILATION = re.compile(r"/console/compilations/[0-9a-f]{32}$")


def file_of(folder: Path, name: str, size: int) -> tuple[Path, str]:
    """A file that no other test uploads, and its digest."""
    content = random.Random(f"{name} {size}").randbytes(size)
    path = folder / name
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def chosen(page: Page, path: Path) -> None:
    """Open the page and choose a file."""
    page.goto("/console/submit")
    page.get_by_label("Drop a model file here").set_input_files(path)


def stored(page: Page, digest: str) -> None:
    """Wait until the upload has ended."""
    expect(page.locator("#model-digest")).to_have_value(digest)


@pytest.mark.sampled
@pytest.mark.parametrize("size", [1, 63, 64, 120, 70_000, PART_BYTES, 2 * PART_BYTES + 12_345])
def test_a_file_of_any_size_arrives_under_its_own_digest(
    page: Page, live: LiveApp, tmp_path: Path, size: int
) -> None:
    path, digest = file_of(tmp_path, f"of-{size}.pt2", size)
    chosen(page, path)
    stored(page, digest)
    model = own(live.store).models.get(digest)
    assert model is not None
    assert (model.size_bytes, model.name) == (size, f"of-{size}")
    assert own(live.store).parts.stored_bytes() == 0


def test_an_upload_goes_on_where_the_connection_was_lost(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "interrupted.pt2", 3 * PART_BYTES + 1)
    sent: list[str] = []

    def lose_the_second(route: Route) -> None:
        sent.append(route.request.url.rpartition("/")[2])
        if len(sent) == 2:
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/uploads/parts/*", lose_the_second)
    chosen(page, path)
    expect(page.locator("#upload-status")).to_contain_text("Trying again")
    stored(page, digest)
    assert len(sent) == 5 and len(set(sent)) == 4 and sent[1] == sent[2]


def test_a_file_that_is_chosen_again_sends_the_missing_parts_only(
    page: Page, live: LiveApp, tmp_path: Path
) -> None:
    path, digest = file_of(tmp_path, "again.pt2", 3 * PART_BYTES)
    sent: list[str] = []

    def lose_the_third(route: Route) -> None:
        sent.append(route.request.url)
        if len(sent) > 2:
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/uploads/parts/*", lose_the_third)
    chosen(page, path)
    expect(page.locator("#upload-status")).to_contain_text("Trying again")
    page.goto("/console/sign-in")
    page.unroute_all(behavior="ignoreErrors")
    sent.clear()
    page.on("request", lambda request: sent.append(request.url) if request.method == "PUT" else None)
    chosen(page, path)
    stored(page, digest)
    assert len(sent) == 1


def test_a_paused_upload_resumes(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "paused.pt2", 2 * PART_BYTES)
    held: list[Route] = []
    page.route("**/uploads/parts/*", lambda route: held.append(route))
    chosen(page, path)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#upload-status")).to_have_text("Paused")
    page.unroute_all(behavior="ignoreErrors")
    page.get_by_role("button", name="Resume").click()
    stored(page, digest)


def test_a_stored_file_is_not_sent_again(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "known.pt2", 1000)
    chosen(page, path)
    stored(page, digest)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "PUT" else None)
    chosen(page, path)
    stored(page, digest)
    assert sent == []


def test_an_inspected_model_fills_in_its_inputs(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "inspected.pt2", 500)
    chosen(page, path)
    stored(page, digest)
    inspected(live.store, digest, WITH_SHAPES)
    shape = page.get_by_label("Shape of x")
    expect(shape).to_have_value("1x784")
    expect(page.locator("#code .json")).not_to_contain_text("inputs")
    shape.fill("8 x 784")
    page.get_by_text("JSON", exact=True).click()
    expect(page.locator("#code .json")).to_contain_text('"shape": [\n        8,')


def test_a_model_without_shapes_asks_for_them(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "shapeless.pt", 501)
    chosen(page, path)
    stored(page, digest)
    inspected(live.store, digest, WITHOUT_SHAPES)
    expect(page.get_by_text("the file has no shapes")).to_be_visible()
    expect(page.locator("#problems .error")).to_contain_text("takes, in this order: x")
    page.get_by_label("Shape of x").fill("batchx784")
    expect(page.locator("[data-error=dimensions]")).to_contain_text("batch")
    page.get_by_text("Other inputs and dynamic sizes").click()
    page.get_by_label("Ranges of named sizes").fill("batch=1..64")
    expect(page.locator("#problems .error")).to_have_count(0)
    page.get_by_role("button", name="Compile").click()
    page.wait_for_url(ONE_COMPILATION)
    job = own(live.store).jobs.get(page.url.rpartition("/")[2])
    assert job is not None
    assert [str(spec) for spec in job.request.inputs] == ["x=batchx784:float32"]
    assert job.request.dimensions["batch"].maximum == 64


def test_a_rejected_model_says_why(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "rejected.pt2", 502)
    chosen(page, path)
    stored(page, digest)
    inspected(live.store, digest, make_problem(ErrorCode.MODEL_NOT_RECOGNIZED, "It is a poem."))
    expect(page.get_by_role("alert")).to_contain_text("It is a poem.")


def test_the_code_beside_the_form_follows_what_one_types(page: Page) -> None:
    page.goto("/console/submit")
    page.get_by_label("Trials", exact=True).fill("64")
    expect(page.locator("#code .curl")).to_contain_text('"tune": {"trials": 64}')
    page.get_by_text("Command line", exact=True).click()
    expect(page.locator("#code .command")).to_be_visible()
    expect(page.locator("#code .command")).to_contain_text("--option tune.trials=64")
    page.get_by_text("Python", exact=True).click()
    expect(page.locator("#code .python")).to_contain_text("tune=TuneOptions(trials=64)")


def test_what_the_api_refuses_is_said_at_its_field(page: Page) -> None:
    page.goto("/console/submit")
    trials = page.get_by_label("Trials", exact=True)
    page.get_by_label("Labels").fill("team=vision")
    trials.fill("many")
    error = page.locator("[data-error='tune.trials']")
    expect(error).to_be_visible()
    expect(error).to_contain_text("whole number")
    expect(trials).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#code .curl")).to_contain_text('"labels": {"team": "vision"}')
    expect(page.locator("#code .curl")).not_to_contain_text("trials")
    expect(page.locator("#problems .corrections a")).to_have_attribute("href", "#e-tune.trials")
    page.locator("#problems .corrections a").click()
    expect(error).to_be_in_viewport()
    trials.fill("5")
    expect(error).to_be_hidden()
    expect(trials).not_to_have_attribute("aria-invalid", "true")


def test_a_submitted_form_leads_to_the_compilation(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "submitted.pt2", 2 * PART_BYTES)
    chosen(page, path)
    page.get_by_label("Trials", exact=True).fill("16")
    page.get_by_role("button", name="Compile").click()  # while the upload goes on
    page.wait_for_url(ONE_COMPILATION)
    job = own(live.store).jobs.get(page.url.rpartition("/")[2])
    assert job is not None
    assert (job.request.model, job.request.tune.trials, job.name) == (digest, 16, "submitted")


def test_several_targets_lead_to_the_list_of_their_group(page: Page, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "several.pt2", 503)
    chosen(page, path)
    stored(page, digest)
    page.get_by_label("x86-64-v3").check()
    page.get_by_role("button", name="Compile").click()
    page.wait_for_url(re.compile(r"/console/compilations\?group="))
    expect(page.get_by_role("link", name="several")).to_have_count(2)


def test_without_scripts_a_form_submits_its_file(plain: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "plain.pt2", 504)
    chosen(plain, path)
    plain.get_by_label("Trials", exact=True).fill("many")
    plain.get_by_role("button", name="Compile").click()
    expect(plain.locator("[data-error='tune.trials']")).to_contain_text("whole number")
    expect(plain.get_by_role("alert")).to_contain_text("tune.trials: expected a whole number")
    expect(plain.locator(".stored")).to_contain_text(digest[:8])
    plain.get_by_label("Trials", exact=True).fill("3")
    plain.get_by_role("button", name="Compile").click()
    plain.wait_for_url(ONE_COMPILATION)
    job = own(live.store).jobs.get(plain.url.rpartition("/")[2])
    assert job is not None
    assert (job.request.model, job.request.tune.trials, job.name) == (digest, 3, "plain")


def test_a_form_uploads_its_extensions(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "extended.pt2", 506)
    extension = tmp_path / "my_rewrites.py"
    extension.write_text("REWRITES = ()\n")
    chosen(page, path)
    stored(page, digest)
    page.locator(".group", has_text="General").locator("summary").click()
    page.get_by_label("Extension files").set_input_files(extension)
    page.get_by_role("button", name="Compile").click()
    page.wait_for_url(ONE_COMPILATION)
    job = own(live.store).jobs.get(page.url.rpartition("/")[2])
    assert job is not None
    known = hashlib.sha256(extension.read_bytes()).hexdigest()
    assert (job.request.extensions, job.request.extension_names) == ((known,), {known: "my_rewrites.py"})


def test_a_refused_extension_leaves_the_form_as_it_was(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "kept.pt2", 507)
    empty = tmp_path / "empty.py"
    empty.touch()
    chosen(page, path)
    stored(page, digest)
    page.get_by_label("Labels").fill("team=vision")
    page.locator(".group", has_text="General").locator("summary").click()
    page.get_by_label("Extension files").set_input_files(empty)
    page.get_by_role("button", name="Compile").click()
    expect(page.locator("[data-error='extensions']")).to_have_text(
        "empty.py: The file is empty. Choose another file."
    )
    expect(page.locator("#code .curl")).not_to_contain_text("extension")
    expect(page.locator("#model-digest")).to_have_value(digest)
    expect(page.get_by_label("Labels")).to_have_value("team=vision")


def test_an_earlier_request_fills_in_the_form(page: Page, live: LiveApp, tmp_path: Path) -> None:
    path, digest = file_of(tmp_path, "earlier.pt2", 505)
    chosen(page, path)
    stored(page, digest)
    page.get_by_label("Labels").fill("team=vision")
    page.get_by_role("button", name="Compile").click()
    page.wait_for_url(ONE_COMPILATION)
    page.goto(f"/console/submit?from={page.url.rpartition('/')[2]}&tune.trials=128")
    expect(page.locator("#model-digest")).to_have_value(digest)
    expect(page.get_by_label("Labels")).to_have_value("team=vision")
    expect(page.get_by_label("Trials", exact=True)).to_have_value("128")
