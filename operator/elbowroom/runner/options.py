"""Where the runner finds what: arguments and environment, the same for the pod's first process and its agent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .config import ConfigError, parse

if TYPE_CHECKING:
    from .config import VMConfig

CONFIG = "ELBOWROOM_VM"
"""The configuration itself, as YAML; or a path in CONFIG_FILE."""
CONFIG_FILE = "ELBOWROOM_VM_FILE"
CERTIFICATES = "ELBOWROOM_CERTIFICATES"
STATE = "ELBOWROOM_STATE"
RECEIVE = "ELBOWROOM_RECEIVE"
"""The number of the attempt that a receiver was made for."""
STOPPING = "ELBOWROOM_STOPPING"
"""Set by the pod's first process for an agent that replaces one while the pod is ending."""


@dataclass(frozen=True)
class Options:
    """What the environment says."""

    text: str | None
    file: Path | None
    certificates: Path
    state: Path
    receiving: int | None
    stopping: bool

    @classmethod
    def from_environment(cls) -> Options:
        """Read the environment."""
        env = os.environ
        number = env.get(RECEIVE, "")
        if number and not (number.isdecimal() and int(number) > 0):
            raise ConfigError(f"{RECEIVE}: {number!r} is not the number of an attempt")
        return cls(
            text=env.get(CONFIG),
            file=Path(env[CONFIG_FILE]) if CONFIG_FILE in env else None,
            certificates=Path(env.get(CERTIFICATES, "/etc/elbowroom/tls")),
            state=Path(env.get(STATE, "/run/elbowroom")),
            receiving=int(number) if number else None,
            stopping=STOPPING in env,
        )

    def load_config(self) -> VMConfig:
        """Read and check the configuration."""
        if self.text is not None:
            config = parse(self.text)
        elif self.file is not None:
            try:
                config = parse(self.file.read_text())
            except OSError as error:
                raise ConfigError(f"the configuration {self.file} cannot be read: {error.strerror}") from error
        else:
            raise ConfigError(f"there is no configuration: put YAML into {CONFIG}, or a file's path into {CONFIG_FILE}")
        config.check_files()
        return config
