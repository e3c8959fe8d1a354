"""The outbox: whatever an endpoint does, no event is lost, none is reordered, and nobody waits for long."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support.tasks.lineage.endpoints import HANG_UP, Collector, free_port, hanging, saying

from dpcore.errors import SpecError, WorkspaceError
from tasks.lineage import outbox
from tasks.lineage.endpoint import SILENT, TOKEN_FILE, Endpoint, endpoint_of
from tasks.lineage.events import append_line
from tasks.lineage.outbox import LATE, TRIES, Delivery, Outbox
from tasks.spec import parse_spec
from tasks.spec.operations import LineageSpec
from tasks.workspace.folders import Workspace

EVENTS = 12


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """A workspace whose log holds some events that were never sent."""
    place = Workspace(tmp_path)
    place.create()
    write(place, range(EVENTS))
    return place


def write(place: Workspace, numbers: range) -> None:
    for number in numbers:
        append_line(place.lineage_path, json.dumps({"number": number, "filler": "x" * 1500}))


def logged(place: Workspace) -> list[str]:
    return place.lineage_path.read_text().splitlines()


def deliver(place: Workspace, url: str, seconds: float = 10.0) -> Delivery:
    return Outbox(place).deliver(Endpoint(url), seconds=seconds)


def numbers(collector: Collector) -> list[int]:
    return [json.loads(body)["number"] for body in collector.bodies]


def only(number: int, status: int) -> Any:
    """A judge that has something against one event."""
    return lambda event: status if event["number"] == number else 200


# ---------------------------------------------------------------- a good endpoint


def test_a_good_endpoint_gets_every_event_once_in_order_and_as_logged(place: Workspace):
    with Collector() as collector:
        assert deliver(place, collector.url) == Delivery(EVENTS, 0, 0, "")
        assert deliver(place, collector.url) == Delivery(0, 0, 0, "")
        assert collector.lines == logged(place)
        assert {path for path, _ in collector.requests} == {"/api/v1/lineage"}
        assert all(headers["Content-Type"] == "application/json" for _, headers in collector.requests)


@pytest.mark.parametrize("suffix", ["/", "/api/v1/lineage"])
def test_the_path_is_appended_once(place: Workspace, suffix: str):
    with Collector() as collector:
        deliver(place, LineageSpec(url=collector.url + suffix).url)
        assert {path for path, _ in collector.requests} == {"/api/v1/lineage"}


def test_later_events_follow_where_the_last_delivery_ended(place: Workspace):
    with Collector() as collector:
        deliver(place, collector.url)
        write(place, range(EVENTS, EVENTS + 3))
        assert deliver(place, collector.url).sent == 3
        assert numbers(collector) == list(range(EVENTS + 3))


def test_a_log_that_is_not_there_has_nothing_to_send(tmp_path: Path):
    with Collector() as collector:
        assert deliver(Workspace(tmp_path), collector.url) == Delivery(0, 0, 0, "")


def test_an_endpoint_that_closes_every_connection_gets_all(place: Workspace):
    with saying(b"HTTP/1.0 200 OK\r\n\r\nthank you") as url:
        assert deliver(place, url) == Delivery(EVENTS, 0, 0, "")


def test_an_answer_longer_than_anybody_wants_is_not_waited_for(place: Workspace):
    with saying(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", b"x" * 200_000) as url:
        assert deliver(place, url) == Delivery(EVENTS, 0, 0, "")


def test_nothing_is_read_from_the_environment(place: Workspace, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "OPENLINEAGE_URL"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    with Collector() as collector:
        assert deliver(place, collector.url).sent == EVENTS


# ---------------------------------------------------------------- endpoints that are away, slow or broken


def test_a_dead_endpoint_costs_no_event(place: Workspace):
    port = free_port()
    assert deliver(place, f"http://127.0.0.1:{port}") == Delivery(0, 0, EVENTS, "the connection failed")
    with Collector(port=port) as collector:
        assert deliver(place, collector.url).sent == EVENTS
        assert collector.lines == logged(place)


def test_a_hanging_endpoint_costs_one_timeout_and_no_event(place: Workspace):
    with hanging() as server:
        assert deliver(place, server.url) == Delivery(0, 0, EVENTS, "the endpoint did not answer in time")
        assert server.connections() == 1


@pytest.mark.parametrize(
    "pieces",
    [
        (b"H",) * 4000,
        (b"HTTP/1.1 100 Continue\r\n\r\n",) * 4000,
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n", *(b"x",) * 4000),
    ],
)
def test_an_endpoint_that_answers_a_byte_at_a_time_is_cut_when_the_time_is_over(
    place: Workspace, pieces: Any, monkeypatch: pytest.MonkeyPatch
):
    """It would go on for longer than this test waits, and what was not cut counts as if nothing had been said."""
    monkeypatch.setattr(outbox, "_GRACE_SECONDS", 60.0)
    with saying(*pieces, pause=0.1) as url:
        delivery = deliver(place, url, seconds=1.0)
    said_yes = sum(b"200 OK" in piece for piece in pieces)
    assert (delivery.sent, delivery.waiting) == (said_yes, EVENTS - said_yes)
    assert delivery.fault == (LATE.reason if said_yes else SILENT.reason)


def test_a_slow_endpoint_gets_what_its_time_allows_and_the_rest_later(place: Workspace):
    late = threading.Event()

    def slowly(event: dict[str, int]) -> int:
        if event["number"] >= 3:
            late.wait(60)
        return 200

    with Collector(slowly) as collector:
        delivery = deliver(place, collector.url, seconds=1.5)
        assert (delivery.sent, delivery.waiting) == (3, EVENTS - 3)
        late.set()
        deliver(place, collector.url)
        assert list(dict.fromkeys(numbers(collector))) == list(range(EVENTS))
        assert len(collector.bodies) <= EVENTS + 1, "only the event that was cut may come twice"


@pytest.mark.parametrize("status", [500, 503, 302, 408, 429])
def test_an_endpoint_in_trouble_stops_the_delivery_and_loses_nothing(place: Workspace, status: int):
    with Collector(lambda _: status) as collector:
        expected = Delivery(0, 0, EVENTS, f"the endpoint answered with status {status}")
        assert deliver(place, collector.url) == expected
        assert numbers(collector) == [0], "no redirection is followed, and nobody is asked again at once"
        collector.judge = lambda _: 200
        assert deliver(place, collector.url) == Delivery(EVENTS, 0, 0, "")
        assert numbers(collector)[1:] == list(range(EVENTS))


@pytest.mark.parametrize("said", [b"220 mail ready\r\n", b"", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_no_http_is_no_success(place: Workspace, said: bytes):
    with saying(said) as url:
        delivery = deliver(place, url, seconds=3)
        assert (delivery.sent, delivery.set_aside, delivery.waiting) == (0, 0, EVENTS)


@pytest.mark.parametrize("url", ["http://no-such-host.invalid", f"http://{'a' * 70}.invalid"])
def test_a_host_without_an_address_is_a_failed_connection(place: Workspace, url: str):
    assert deliver(place, url, seconds=3).waiting == EVENTS


@pytest.mark.parametrize("ending", [HANG_UP, 500])
def test_an_endpoint_that_dies_and_comes_back_misses_nothing_and_sees_one_event_twice(place: Workspace, ending: int):
    with Collector(lambda event: ending if event["number"] >= 5 else 200) as collector:
        delivery = deliver(place, collector.url)
        assert (delivery.sent, delivery.waiting) == (5, EVENTS - 5)
        before = numbers(collector)
        collector.judge = lambda _: 200
        assert deliver(place, collector.url).sent == EVENTS - 5
        after = numbers(collector)[len(before) :]
    assert before[:5] == [0, 1, 2, 3, 4]
    assert set(before[5:]) == {5}, "the event at the boundary, and no other"
    assert after == list(range(5, EVENTS))


# ---------------------------------------------------------------- refusals


def test_a_refused_event_is_set_aside_and_the_rest_goes_on(place: Workspace):
    with Collector(only(3, 400)) as collector:
        assert deliver(place, collector.url) == Delivery(EVENTS - 1, 1, 0, "")
        assert numbers(collector) == [0, 1, 2, *[3] * TRIES, *range(4, EVENTS)]
        assert deliver(place, collector.url) == Delivery(0, 0, 0, "")
    assert Outbox(place).refused_path.read_text().splitlines() == [logged(place)[3]]


def test_a_refusal_that_does_not_last_costs_nothing(place: Workspace):
    refusals = iter([404, 404])
    with Collector(lambda event: next(refusals, 200) if event["number"] == 3 else 200) as collector:
        assert deliver(place, collector.url) == Delivery(EVENTS, 0, 0, "")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_an_endpoint_that_refuses_everything_loses_nothing(place: Workspace, status: int):
    with Collector(lambda _: status) as collector:
        for _ in range(TRIES + 2):
            delivery = deliver(place, collector.url)
            assert delivery == Delivery(0, 0, EVENTS, f"the endpoint answered with status {status}")
        assert not Outbox(place).refused_path.exists()
        collector.bodies.clear()
        collector.judge = lambda _: 200
        assert deliver(place, collector.url).sent == EVENTS
        assert collector.lines == logged(place)


def test_the_last_event_is_set_aside_only_when_a_later_one_is_accepted(place: Workspace):
    with Collector(only(EVENTS - 1, 422)) as collector:
        assert deliver(place, collector.url).waiting == 1
        write(place, range(EVENTS, EVENTS + 1))
        assert deliver(place, collector.url) == Delivery(1, 1, 0, "")


def test_an_event_on_which_the_endpoint_always_breaks_down_does_not_block_the_rest_for_ever(place: Workspace):
    with Collector(only(3, 500)) as collector:
        deliveries = [deliver(place, collector.url) for _ in range(TRIES + 1)]
        assert [d.set_aside for d in deliveries] == [0] * TRIES + [1]
        assert deliveries[-1] == Delivery(EVENTS - 4, 1, 0, "")


def test_an_endpoint_that_is_dead_for_long_loses_nothing(place: Workspace):
    port = free_port()
    for _ in range(TRIES + 3):
        assert deliver(place, f"http://127.0.0.1:{port}").waiting == EVENTS
    with Collector(port=port) as collector:
        assert deliver(place, collector.url) == Delivery(EVENTS, 0, 0, "")


# ---------------------------------------------------------------- the log and the cursor


def test_a_torn_last_line_is_not_sent_and_does_not_block(place: Workspace):
    with place.lineage_path.open("a") as file:
        file.write('{"number": 99')
    with Collector() as collector:
        assert deliver(place, collector.url) == Delivery(EVENTS, 0, 0, "")
        write(place, range(EVENTS, EVENTS + 2))
        assert deliver(place, collector.url) == Delivery(2, 0, 0, "")
        assert numbers(collector) == list(range(EVENTS + 2))


def test_a_cursor_that_a_crash_did_not_move_sends_one_event_again(place: Workspace):
    outbox = Outbox(place)
    with Collector() as collector:
        deliver(place, collector.url)
        kept = (outbox.folder / "cursor.json").read_bytes()
        write(place, range(EVENTS, EVENTS + 1))
        deliver(place, collector.url)
        (outbox.folder / "cursor.json").write_bytes(kept)
        deliver(place, collector.url)
        assert numbers(collector) == [*range(EVENTS + 1), EVENTS]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"delivered": "x"}', b'{"endpoint": 1, "delivered": -9}'])
def test_a_spoiled_cursor_sends_everything_again(place: Workspace, content: bytes):
    with Collector() as collector:
        deliver(place, collector.url)
        (Outbox(place).folder / "cursor.json").write_bytes(content)
        assert deliver(place, collector.url).sent == EVENTS


@pytest.mark.parametrize("more", [0, 40])
def test_a_log_restored_from_a_backup_is_sent_again_rather_than_passed_over(place: Workspace, more: int):
    backup = "".join(f"{line}\n" for line in logged(place)[:4])
    with Collector() as collector:
        deliver(place, collector.url)
        place.lineage_path.write_text(backup)
        write(place, range(100, 100 + more))
        assert deliver(place, collector.url).sent == 4 + more


def test_another_endpoint_gets_everything(place: Workspace):
    with Collector() as first, Collector() as second:
        deliver(place, first.url)
        deliver(place, second.url)
        assert first.lines == second.lines == logged(place)


@pytest.mark.parametrize("flushers", [2, 4])
def test_concurrent_deliveries_send_each_event_once_in_order(place: Workspace, flushers: int):
    with Collector() as collector:
        workers = [threading.Thread(target=deliver, args=(place, collector.url)) for _ in range(flushers)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert numbers(collector) == list(range(EVENTS))


def test_whoever_finds_a_delivery_at_work_waits_for_it_within_its_own_time(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outbox, "ANSWER_SECONDS", 60.0)
    begun, done = threading.Event(), threading.Event()

    def judge(_: object) -> int:
        begun.set()
        return 200 if done.wait(60) else 500

    with Collector(judge) as collector:
        first = threading.Thread(target=deliver, args=(place, collector.url, 60.0))
        first.start()
        assert begun.wait(60)
        delivery = deliver(place, collector.url, seconds=0.5)
        assert first.is_alive()
        done.set()
        first.join()
        assert numbers(collector) == list(range(EVENTS))
    assert (delivery.sent, delivery.waiting) == (0, EVENTS)
    assert delivery.fault == "another delivery is running"


# ---------------------------------------------------------------- the specification

SPEC = """
name: small
source: {path: landing}
privacy: {population: people, unit: row, neighbours: add-remove, epsilon: 0.1, lifetime: {epsilon: 1.2}}
expected_rows: 100
columns:
  - {name: age, kind: numeric, bounds: [0, 1]}
"""


def test_the_address_is_private_and_shapes_no_measurement():
    plain, sending = parse_spec(SPEC), parse_spec(f"{SPEC}lineage: {{url: https://hidden.example}}")
    assert plain.lineage is None
    assert sending.lineage == LineageSpec(url="https://hidden.example")
    assert sending.as_public_json() == plain.as_public_json()
    assert sending.digest() == plain.digest()


REFUSED = {
    "no url": ("{}", "missing-key", "lineage.url"),
    "not a mapping": ("https://host", "not-a-mapping", "lineage"),
    "unknown key": ("{url: https://host, api_key: hunter2}", "unknown-key", "lineage.api_key"),
    "another scheme": ("{url: 'ftp://hunter2'}", "lineage-url", "lineage.url"),
    "a password": ("{url: 'https://user:hunter2@host'}", "lineage-url", "lineage.url"),
    "a query": ("{url: 'https://host?token=hunter2'}", "lineage-url", "lineage.url"),
    "a fragment": ("{url: 'https://host#hunter2'}", "lineage-url", "lineage.url"),
    "no host": ("{url: 'https:///path'}", "lineage-url", "lineage.url"),
    "no port": ("{url: 'https://host:99999'}", "lineage-url", "lineage.url"),
    "port zero": ("{url: 'https://host:0'}", "lineage-url", "lineage.url"),
    "spaces": ("{url: 'https://host/a b'}", "lineage-url", "lineage.url"),
    "a broken bracket": ("{url: 'https://[::1'}", "lineage-url", "lineage.url"),
    "letters beyond ascii": ("{url: 'https://höst'}", "lineage-url", "lineage.url"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_plain_address_is_refused_and_never_quoted(case: str):
    text, rule, where = REFUSED[case]
    with pytest.raises(SpecError) as refusal:
        parse_spec(f"{SPEC}lineage: {text}")
    assert (refusal.value.rule, refusal.value.where) == (rule, where)
    assert "hunter2" not in str(refusal.value.as_json())


# ---------------------------------------------------------------- the token


def give_token(place: Workspace, text: str, mode: int = 0o600) -> None:
    path = place.keys / TOKEN_FILE
    path.write_text(text)
    path.chmod(mode)


def test_the_token_of_the_workspace_is_shown_to_the_endpoint_alone(place: Workspace):
    give_token(place, "s3cret\n")
    with Collector() as collector:
        Outbox(place).deliver(endpoint_of(place, LineageSpec(url=collector.url)), seconds=5)
        assert {headers["Authorization"] for _, headers in collector.requests} == {"Bearer s3cret"}
        assert not any("s3cret" in line for line in collector.lines)


def test_without_a_token_nothing_is_shown(place: Workspace):
    with Collector() as collector:
        Outbox(place).deliver(endpoint_of(place, LineageSpec(url=collector.url)), seconds=5)
        assert not any("Authorization" in headers for _, headers in collector.requests)


@pytest.mark.parametrize(
    ("text", "mode", "url"),
    [
        ("s3cret", 0o644, "https://host"),
        ("", 0o600, "https://host"),
        ("two words", 0o600, "https://host"),
        ("line\r\nX-Other: header", 0o600, "https://host"),
        ("s3cret", 0o600, "http://host"),
    ],
    ids=["loose", "empty", "spaces", "header", "in the clear"],
)
def test_a_token_that_cannot_be_kept_secret_or_sent_is_refused(place: Workspace, text: str, mode: int, url: str):
    give_token(place, text, mode)
    with pytest.raises(WorkspaceError) as refusal:
        endpoint_of(place, LineageSpec(url=url))
    assert refusal.value.rule == "lineage-token-unusable"
    assert not text or text not in str(refusal.value.as_json())


def test_the_outbox_is_closed_to_others(place: Workspace):
    with Collector() as collector:
        deliver(place, collector.url)
    assert Outbox(place).folder.stat().st_mode & 0o077 == 0
