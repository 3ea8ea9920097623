"""The dashboard, the alert rules and the scrape configuration: what they name exists, with those labels."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fencehold.observe.catalogue import BY_NAME, HISTOGRAM, SERVER
from tests.docs.pages import ROOT, anchors

FOLDER = ROOT / "deploy/observe"
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that a scrape or a histogram adds."""
_SELECTOR = re.compile(r"\b(fencehold_[a-z_]+)(\{[^}]*\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def expressions() -> Iterator[tuple[str, str, list[str]]]:
    """Where, what is asked, and the labels that are shown of it."""
    dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
    for rule in rules():
        shown = re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))
        yield rule["alert"], rule["expr"], shown


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alert-rules.yaml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def labels_of(name: str) -> set[str]:
    """The labels of a metric, which must exist; of a histogram its buckets have them."""
    if name in BY_NAME:
        assert BY_NAME[name].kind != HISTOGRAM, f"{name} is a histogram: ask for its buckets"
        return set(BY_NAME[name].labels)
    base = re.sub("_(bucket|count|sum)$", "", name)
    assert base in BY_NAME, f"there is no metric {name}"
    assert BY_NAME[base].kind == HISTOGRAM
    return set(BY_NAME[base].labels)


@pytest.mark.parametrize(("where", "expression", "shown"), list(expressions()))
def test_every_metric_exists_with_those_labels(where: str, expression: str, shown: list[str]) -> None:
    """In dashboard and rules: a renamed metric would leave an empty panel, or an alert that never comes."""
    found = _SELECTOR.findall(expression)
    assert found, where
    known = set(OF_PROMETHEUS)
    for name, selector in found:
        labels = labels_of(name)
        known |= labels
        assert set(_LABEL.findall(re.sub(r'"[^"]*"', '""', selector))) <= labels | OF_PROMETHEUS, (where, name)
    grouped = {label.strip() for by in _BY.findall(expression) for label in by.split(",") if label.strip()}
    assert grouped <= known, where
    assert set(shown) <= known, where


def test_every_alert_has_a_page_to_turn_to() -> None:
    """A section of the runbook that exists."""
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor in anchors(ROOT / page), rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_every_alert_is_seen_to_fire_and_not_to() -> None:
    """By Prometheus' own tool, in `make matrix`: a rule that can never fire is found there."""
    tests = yaml.safe_load((ROOT / "tests/matrix/alert-rules-test.yaml").read_text())["tests"]
    expected = [each for test in tests for each in test["alert_rule_test"]]
    fired = {each["alertname"] for each in expected if each["exp_alerts"]}
    silent = {each["alertname"] for each in expected if not each["exp_alerts"]}
    assert {rule["alert"] for rule in rules()} == fired
    assert fired - silent <= {"FenceholdSlowAppends"}


def test_the_dashboard_shows_every_kind_of_trouble() -> None:
    """What there is an alert for can be seen, too."""
    dashboard = (FOLDER / "grafana-dashboard.json").read_text()
    alerted = {name for rule in rules() for name, _ in _SELECTOR.findall(rule["expr"])} - {"fencehold_held_back"}
    assert {name for name in alerted if name not in dashboard} == set()


def test_names_are_as_prometheus_wants_them() -> None:
    """Counters end with _total, and nothing else does; units are seconds and bytes."""
    for metric in SERVER:
        assert metric.name.startswith("fencehold_")
        assert (metric.kind == "counter") is metric.name.endswith("_total"), metric.name
        assert not re.search(r"_(ms|us|milliseconds|kb|mb)(_|$)", metric.name)
        assert metric.words[0].isupper() or metric.words[0].isdigit()
        assert metric.words.endswith(".")


def test_the_scrape_configuration_is_read_by_its_own_rules() -> None:
    """It names the file of rules that lies beside it."""
    scrape = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    assert all((FOLDER / name).exists() for name in scrape["rule_files"])
    assert scrape["scrape_configs"][0]["job_name"] == "fencehold"
