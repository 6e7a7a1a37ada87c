"""Finds the address of the service and the API key: in the arguments, the environment or a credentials file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import ConfigurationError


@dataclass(frozen=True)
class Settings:
    base_url: str
    api_key: str


def resolve_settings(
    base_url: str | None = None, api_key: str | None = None, env: Mapping[str, str] | None = None
) -> Settings:
    """
    Takes the address and the key from the arguments, else from `SANDBAR_BASE_URL` and `SANDBAR_API_KEY`, else from the
    file that `sandbar login` writes, else from credentials.json of the service on this computer. The key of a file is
    only sent to the address in the same file. Raises ConfigurationError when the address or the key is missing, empty
    or malformed. An empty variable is an error too, because whoever set it did not want the key of a file.
    """
    env = os.environ if env is None else env
    address = _read_address("base_url", base_url) or _read_address("SANDBAR_BASE_URL", env.get("SANDBAR_BASE_URL"))
    key = _read_key("api_key", api_key) or _read_key("SANDBAR_API_KEY", env.get("SANDBAR_API_KEY"))
    if address is not None and key is not None:
        return Settings(address, key)
    files = [_login_file(env), _home(env) / "credentials.json"]
    stored = [(file, settings) for file in files if (settings := _read_file(file)) is not None]
    if not stored:
        paths = " nor ".join(map(str, files))
        raise ConfigurationError(
            f"no service is known: there is no {paths}; run sandbar login, or set SANDBAR_BASE_URL and SANDBAR_API_KEY"
        )
    if address is None:
        _, first = stored[0]
        return Settings(first.base_url, first.api_key if key is None else key)
    for _, settings in stored:
        if settings.base_url == address:
            return settings
    known = ", ".join(f"the one in {file} is for {settings.base_url}" for file, settings in stored)
    raise ConfigurationError(f"no key for {address}: set SANDBAR_API_KEY ({known})")


def _read_filled(name: str, value: str | None) -> str | None:
    if value is not None and value.strip() == "":
        raise ConfigurationError(f"{name} is set, but empty: give it a value or remove it")
    return value


def _read_address(name: str, value: str | None) -> str | None:
    address = _read_filled(name, value)
    return None if address is None else _address(name, address)


def _address(name: str, value: str) -> str:
    try:
        parts = urlsplit(value)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or value != value.strip():
        raise ConfigurationError(f'{name} must be an address such as http://127.0.0.1:7070, not "{value}"')
    return value.rstrip("/")


def _read_key(name: str, value: str | None) -> str | None:
    key = _read_filled(name, value)
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigurationError(f"{name} has characters that no API key has, such as a space or a line break")
    return key


def _login_file(env: Mapping[str, str]) -> Path:
    return Path(env.get("XDG_CONFIG_HOME") or _user_home(env) / ".config") / "sandbar" / "credentials.json"


def _home(env: Mapping[str, str]) -> Path:
    """The data directory of the service on this computer."""
    if env.get("SANDBAR_HOME"):
        return Path(env["SANDBAR_HOME"])
    if hasattr(os, "getuid") and os.getuid() == 0:
        return Path("/var/lib/sandbar")
    return Path(env.get("XDG_DATA_HOME") or _user_home(env) / ".local" / "share") / "sandbar"


def _user_home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _read_file(file: Path) -> Settings | None:
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from error
    try:
        stored = json.loads(text)
        base_url, api_key = stored["base_url"], stored["api_key"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{file} is damaged: move it away and sign in again") from error
    if not isinstance(base_url, str) or not isinstance(api_key, str) or api_key == "":
        raise ConfigurationError(f"{file} is damaged: move it away and sign in again")
    return Settings(_address(f"base_url in {file}", base_url), api_key)
