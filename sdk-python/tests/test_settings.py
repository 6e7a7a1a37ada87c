"""Tests where the client finds the address and the key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbar import Client, ConfigurationError
from sandbar._settings import Settings, resolve_settings

URL = "http://127.0.0.1:7070"


def write(file: Path, base_url: str, api_key: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"base_url": base_url, "api_key": api_key, "email": "a@b"}))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "user"), "SANDBAR_HOME": str(tmp_path / "service")}


@pytest.fixture
def login(tmp_path: Path) -> Path:
    return tmp_path / "user" / ".config" / "sandbar" / "credentials.json"


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return tmp_path / "service" / "credentials.json"


def test_arguments_win_over_the_environment_and_that_over_files(env: dict[str, str], login: Path, local: Path) -> None:
    write(local, "http://local", "k-local")
    assert resolve_settings(env=env) == Settings("http://local", "k-local")
    write(login, "http://login", "k-login")
    assert resolve_settings(env=env) == Settings("http://login", "k-login")
    named = {**env, "SANDBAR_BASE_URL": "http://env/", "SANDBAR_API_KEY": "k-env"}
    assert resolve_settings(env=named) == Settings("http://env", "k-env")
    assert resolve_settings("http://given", "k-given", named) == Settings("http://given", "k-given")
    assert resolve_settings(api_key="k-given", env=named) == Settings("http://env", "k-given")


def test_the_file_of_the_login_follows_xdg_config_home(env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "xdg" / "sandbar" / "credentials.json", "http://xdg", "k-xdg")
    assert resolve_settings(env={**env, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}) == Settings("http://xdg", "k-xdg")


def test_the_key_of_a_file_is_only_sent_to_the_address_in_it(env: dict[str, str], login: Path, local: Path) -> None:
    write(login, "http://login", "k-login")
    write(local, "http://local/", "k-local")
    assert resolve_settings("http://local", env=env) == Settings("http://local", "k-local")
    with pytest.raises(ConfigurationError, match="no key for http://elsewhere: set SANDBAR_API_KEY"):
        resolve_settings("http://elsewhere", env=env)


def test_a_key_without_an_address_goes_to_the_address_of_the_first_file(env: dict[str, str], local: Path) -> None:
    write(local, "http://local", "k-local")
    assert resolve_settings(api_key="k", env=env) == Settings("http://local", "k")


@pytest.mark.parametrize("name", ["SANDBAR_BASE_URL", "SANDBAR_API_KEY"])
@pytest.mark.parametrize("value", ["", "  "])
def test_a_variable_that_is_set_but_empty_is_an_error(env: dict[str, str], local: Path, name: str, value: str) -> None:
    write(local, "http://local", "k-local")
    with pytest.raises(ConfigurationError, match=f"{name} is set, but empty"):
        resolve_settings(env={**env, name: value})


def test_an_empty_argument_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBAR_BASE_URL", URL)
    with pytest.raises(ConfigurationError, match="api_key is set, but empty"):
        Client(api_key="")
    monkeypatch.setenv("SANDBAR_API_KEY", "")
    with pytest.raises(ConfigurationError, match="SANDBAR_API_KEY is set, but empty"):
        Client()


@pytest.mark.parametrize("url", ["localhost:7070", "ftp://x", "http://", "http://[", "http://x:99999", " http://x"])
def test_an_address_that_is_no_http_address_is_an_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url must be an address"):
        resolve_settings(url, "k", {})


@pytest.mark.parametrize("key", ["sbr_x\n", "sbr x", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_an_error(key: str) -> None:
    with pytest.raises(ConfigurationError, match="api_key has characters"):
        resolve_settings(URL, key, {})


def test_without_any_setting_the_error_says_what_to_do(env: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="run sandbar login, or set SANDBAR_BASE_URL"):
        resolve_settings(env=env)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"base_url": 1, "api_key": "k"}', '{"base_url": "x:y", "api_key": "k"}']
)
def test_a_damaged_file_is_an_error(env: dict[str, str], local: Path, text: str) -> None:
    local.parent.mkdir()
    local.write_text(text)
    with pytest.raises(ConfigurationError):
        resolve_settings(env=env)
