"""The public schemas that a bundle's documents are held against."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import yaml

from tasks.bundle.record import record_faults

REGISTRY_SCHEMA = Path(__file__).with_name("deployments_registry") / "deployments-schema.yaml"
"""The DP Deployments Registry's own (github.com/opendp/deployments-registry-data, MIT), unchanged."""


@cache
def _registry_validator() -> jsonschema.Draft202012Validator:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(yaml.safe_load(REGISTRY_SCHEMA.read_text()), format_checker=checker)


def registry_faults(text: str) -> list[str]:
    """Where a registry entry breaks the registry's schema."""
    return sorted(
        f"{error.json_path}: {error.message}" for error in _registry_validator().iter_errors(yaml.safe_load(text))
    )


def assert_valid_documents(bundle: Path) -> None:
    """Record and registry entry keep to their schemas."""
    assert record_faults(json.loads((bundle / "record.json").read_text())) == []
    assert registry_faults((bundle / "registry.yaml").read_text()) == []
