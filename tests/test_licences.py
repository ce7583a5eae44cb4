"""Whatever is installed with sparklag has a licence that goes with Apache-2.0."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Final

from packaging.requirements import Requirement

# As classifiers and the fields License and License-Expression name them.
ALLOWED: Final = {
    *("Apache-2.0", "Apache Software License"),
    *("BSD-2-Clause", "BSD-3-Clause", "BSD License", "3-Clause BSD License"),
    *("ISC", "ISC License (ISCL)"),
    *("MIT", "MIT License", "MIT-0"),
    *("PSF-2.0", "Python Software Foundation License"),
}
ALSO_ALLOWED: Final = {
    # Copyleft for their own files only, which nobody changes here.
    "certifi": "Mozilla Public License 2.0 (MPL 2.0)",
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
}
NOT_LOCKED: Final = {"gcsfs", "adlfs"}
"""What nothing here is tested with, for it takes a cloud."""


def installed_with(name: str) -> dict[str, Distribution | None]:
    """Each package that it, or an extra of it, asks for, directly or not."""
    packages: dict[str, Distribution | None] = {}
    received: set[tuple[str, str]] = set()
    extras = distribution(name).metadata.get_all("Provides-Extra", [])
    left = [(name, extra) for extra in ("", *extras)]
    while left:
        package, extra = left.pop()
        if (package, extra) in received:
            continue
        received.add((package, extra))
        try:
            packages[package] = distribution(package)
        except PackageNotFoundError:
            packages[package] = None
            continue
        for requirement in map(Requirement, distribution(package).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                required = re.sub(r"[-_.]+", "-", requirement.name).lower()
                left += [(required, each) for each in ("", *requirement.extras)]
    return packages


def licences(package: Distribution) -> set[str]:
    metadata = package.metadata
    if "License-Expression" in metadata:
        return set(re.split(r" (?:AND|OR) ", metadata["License-Expression"].strip("()")))
    classifiers = metadata.get_all("Classifier", [])
    of_classifiers = {c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: ")}
    named = metadata.get_all("License", [])
    return of_classifiers or {*named} or {"none is named"}


def test_every_package_of_a_user_has_an_allowed_licence() -> None:
    packages = installed_with("sparklag")
    assert {name for name, package in packages.items() if package is None} == NOT_LOCKED
    refused = {
        name: others
        for name, package in packages.items()
        if package and (others := licences(package) - ALLOWED - {ALSO_ALLOWED.get(name)})
    }
    assert refused == {}


def test_an_exception_is_still_needed() -> None:
    for name, licence in ALSO_ALLOWED.items():
        assert licences(distribution(name)) == {licence}
