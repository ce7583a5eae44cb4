"""The errors of this package.

SparklagError
├── ContractError             a message does not keep the contract
│   ├── MalformedMessage
│   ├── UnsupportedVersion
│   ├── OutOfBounds
│   │   └── FutureTime
│   ├── OverLimit
│   ├── WrongSignature
│   ├── WrongTeam
│   └── WrongPlace
├── SettingsError             a setting has a wrong value or an unknown name
├── MissingPackage            an extra of sparklag is not installed
└── RegistryError             Avro cannot be written or read now
    ├── RegistryUnavailable
    └── RegistryRefused
        └── IncompatibleSchema
"""

from __future__ import annotations

from typing import ClassVar


class SparklagError(Exception):
    """Base of all errors of sparklag. Its text is one line for people."""


class ContractError(SparklagError):
    """A message does not keep the contract."""

    kind: ClassVar[str] = "malformed"
    """The label that refused messages are counted by."""


class MalformedMessage(ContractError):
    """The message has the wrong shape; the text names the error and its place."""


class UnsupportedVersion(ContractError):
    """The message has a newer major version than this sparklag reads."""

    kind = "version"


class OutOfBounds(ContractError):
    """The message is larger, or has more parts, than the settings allow."""

    kind = "bounds"


class FutureTime(OutOfBounds):
    """A time in the message is later than the time at which the message was written."""

    kind = "future"


class OverLimit(ContractError):
    """The limit on all messages together is reached."""

    kind = "limit"


class WrongSignature(ContractError):
    """The message is not signed with an accepted key."""

    kind = "signature"


class WrongTeam(ContractError):
    """The message is signed with the key of a team, and its query is of others."""

    kind = "team"


class WrongPlace(ContractError):
    """The record has the key of another query, or is in the wrong partition."""

    kind = "place"


class SettingsError(SparklagError):
    """A setting is wrong; the text names it, its value and what it takes, without secrets."""


class MissingPackage(SparklagError):
    """A package is not installed; the text names it and the extra that installs it."""


def install_command(extra: str) -> str:
    """How to install an extra: where sparklag is installed or an index has it; beside a clone."""
    return f"pip install 'sparklag[{extra}]' (beside a clone: pip install './sparklag[{extra}]')"


class RegistryError(SparklagError):
    """The schema registry failed; the text names its address and the cause."""


class RegistryUnavailable(RegistryError):
    """The registry does not answer, or refuses these credentials."""


class RegistryRefused(RegistryError):
    """The registry refuses the request, or its response cannot be read."""


class IncompatibleSchema(RegistryRefused):
    """Our schema is incompatible with the schemas registered under the subject."""
